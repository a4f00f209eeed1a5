"""What a policy that has learned from a log recommends, and what its run keeps for that."""

import csv
import errno
import json
import re
import shutil
from dataclasses import fields

import jax
import numpy as np
import pytest

import moac
from moac import files
from moac.cli.main import main
from moac.logs import About, LoggedDataset, Rows
from moac.logs.catalogue import Catalogue, code_of, codes_of
from moac.offline import recommend
from moac.policies.observations import StateSpec
from moac.runs import log_files
from moac.training.trained import TrainedPolicy, ranked
from tests.helpers.log_runs import built_run, model_of, saved, untrained
from tests.helpers.run_folders import invented, rewrite


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return built_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def trained(made):
    return moac.load(made.path, trial=1)


@pytest.fixture
def copy(made, tmp_path):
    """The run's folder, to spoil."""
    return shutil.copytree(made.path, tmp_path / "run")


def own_log(**about):
    """A log of one's own: float features, contexts without names, a train context that lacks the highest code."""
    rng = np.random.default_rng(0)
    n = 400
    rows = Rows(rng.integers(0, 30, n) * 7, rng.integers(20, 29, n), rng.random((n, 2)), None,
                rng.integers(0, 3, (n, 2)), np.full(n, 1 / 9))  # fmt: skip
    options = {"users": rng.random((30, 4)), "window": 3} | about
    return LoggedDataset.from_numpy(rows, About("own", **options))


def request(dataset, row, after=False):
    """A row as one would ask for it: ids of user and history, and codes."""
    user = dataset.user[row]
    viewed = dataset.tables.history[dataset.tables.first[user] : dataset.end[row] + after]
    return dataset.user_ids[user], dataset.context[row], dataset.item_ids[viewed]


def answers(dataset, row, after=False):
    """The responses to that history, as logged; those at the time of the row are not known to it."""
    if dataset.tables.responses is None:
        return None
    first, end = dataset.tables.first[dataset.user[row]], dataset.end[row] + after
    found = dataset.tables.responses[first:end] / 127 * np.array(dataset.response_scale) * np.array(dataset.signs)
    return np.where((np.arange(first, end) < (end if after else dataset.answered[row]))[:, None], found, np.nan)


def test_a_run_on_a_log_with_taste_finds_its_states_again(made, tmp_path):
    """From its folder and the data's: the same propensities, and requests in the same states."""
    plain = LoggedDataset.from_parquet(made.data).with_taste()
    dataset = plain.with_behaviour(model_of(plain))
    folder = saved(untrained(dataset, moac.Config()), tmp_path / "run")
    again = log_files.dataset_of(folder)
    assert again.fingerprint == dataset.fingerprint != made.dataset.fingerprint
    assert again.num_features == dataset.num_features > made.dataset.num_features
    assert log_files.own_or_other(folder, made.data).fingerprint == dataset.fingerprint
    row = int(dataset.rows("test")[-1])
    user, context, history = request(dataset, row)
    policy = moac.load(folder, trial=0)
    x, _ = policy.observations.catalogue.see(user, context, history, answers(dataset, row))
    np.testing.assert_array_equal(x, np.asarray(dataset.features(dataset.observation([row])))[0])
    assert len(policy.recommend(user, context, history, responses=answers(dataset, row), k=3).ids) == 3


def softmax(logits):
    shifted = np.exp(np.float64(logits) - np.max(logits))
    return shifted / shifted.sum()


@pytest.mark.parametrize("which", ["built", "own", "own, actions with features"])
def test_a_request_is_seen_as_the_logged_row_is(made, which):
    rng = np.random.default_rng(1)
    options = {"actions": rng.random((9, 2)) if "features" in which else None}
    dataset = made.dataset if which == "built" else own_log(**options)
    rows = rng.permutation(dataset.num_rows)[:150]
    catalogue = Catalogue.of(dataset)
    expected = np.asarray(dataset.features(dataset.observation(rows)))
    for x, row in zip(expected, rows, strict=True):
        seen, notes = catalogue.see(*request(dataset, row), answers(dataset, row))
        np.testing.assert_array_equal(seen, x)
        assert not notes


def test_what_is_recommended_is_the_softmax_of_the_policy(made, trained):
    row = int(np.argmax(made.dataset.end - made.dataset.tables.first[made.dataset.user]))
    x = np.asarray(made.dataset.features(made.dataset.observation(row)))
    p = softmax(trained.policy.logits(trained.trial_theta, x))
    known = answers(made.dataset, row)
    found = trained.recommend(*request(made.dataset, row), k=12, responses=known)
    place = {name: k for k, name in enumerate(made.dataset.action_ids.tolist())}
    np.testing.assert_allclose(found.probabilities, [p[place[name]] for name in found.ids], rtol=1e-5)
    assert sorted(found.ids) == sorted(place)
    assert list(found.probabilities) == sorted(found.probabilities, reverse=True)
    assert sum(found.probabilities) == pytest.approx(1, abs=1e-12)
    assert [trained.log_prob(x, place[name]) for name in found.ids] == pytest.approx(
        np.log(found.probabilities), rel=1e-4
    )
    first = trained.recommend(*request(made.dataset, row), k=3, responses=known)
    assert list(first) == list(found)[:3]
    assert 0 <= trained.act(x, jax.random.key(0)) < 12
    other = made.result.policy.of_trial(1)
    assert list(other.recommend(*request(made.dataset, row), k=3, responses=known)) == list(first)


def test_names_of_the_context_and_what_is_unknown(made, trained):
    user, (tab, hour, day), history = request(made.dataset, 40)
    named = trained.recommend(user, {"day": day, "tab": tab, "hour": hour}, history)
    assert named == trained.recommend(user, (tab, hour, day), history.tolist())
    skipped = trained.recommend(user, (tab, hour, day), [10**7, *history, 10**8])
    assert skipped.ids == named.ids
    assert skipped.probabilities == named.probabilities
    said = "responses to the history are unknown: zeros"
    assert skipped.notes == (f"2 of {len(history) + 2} items of the history are unknown: skipped", said)
    assert "2303" not in repr(named)
    assert re.fullmatch(
        r"Recommendation\((\d+: 0\.\d+, ){9}\d+: 0\.\d+; 2 of \d+ items .* skipped; responses .*\)", repr(skipped)
    )
    stranger, notes = Catalogue.of(made.dataset).see(10**9, (99, 0, 0), [])
    assert notes == ("user 1000000000 is unknown: no features", "context tab=99 is unknown")
    d = made.dataset.tables.users.shape[1]
    np.testing.assert_array_equal(np.flatnonzero(stranger), [d + 15, d + 15 + 24])


def test_a_value_of_the_context_may_be_written_in_another_way():
    codes = codes_of(("1", "2.5", "true", "01", "x"))
    written = {"1": 0, 1.0: 0, "1.00": 0, "2.50": 1, np.float32(2.5): 1, "True": 2, "TRUE": 2, "01": 3, "x": 4}
    assert {value: code_of(codes, value) for value in written} == written
    assert [code_of(codes, value) for value in ("X", "10", "", None, "nan", "False")] == [-1] * 6


def test_what_was_seen_can_be_left_out(made, trained):
    user, context, history = request(made.dataset, made.dataset.num_rows - 1, after=True)
    whole, rest = (trained.recommend(user, context, history, 12, exclude_seen=flag) for flag in (False, True))
    kept = [(name, p) for name, p in whole if name not in history]
    assert 0 < len(kept) < 12
    assert rest.ids == tuple(name for name, _ in kept)
    np.testing.assert_allclose(rest.probabilities, np.array([p for _, p in kept]) / sum(p for _, p in kept), rtol=1e-12)
    nothing = trained.recommend(user, context, made.dataset.action_ids, 12, exclude_seen=True)
    assert len(nothing) == 0


def test_actions_that_are_alike_keep_their_order():
    found = ranked(np.array([[0.0, 1.0, 1.0, -800.0]], np.float32), 4)
    assert found.places.tolist() == [[1, 2, 0, 3]]
    np.testing.assert_allclose(found.probabilities[0, :3], np.exp([1, 1, 0]) / (2 * np.e + 1), rtol=1e-12)
    assert not np.isnan(found.probabilities).any()
    logits = np.random.default_rng(0).integers(0, 4, (300, 12)).astype(np.float32)  # ties at every border
    for k in range(1, 13):
        np.testing.assert_array_equal(ranked(logits, k).places, np.argsort(-logits, axis=1, kind="stable")[:, :k])


class Biased:
    """A policy with the three functions it needs, and no logits."""

    def init(self, _):
        return jax.numpy.zeros(12)

    def sample(self, theta, _, key):
        return jax.random.categorical(key, theta)

    def log_prob(self, theta, observation, action):
        return jax.nn.log_softmax(theta + observation[0])[action]


def test_a_policy_of_ones_own_recommends_too(made):
    theta = np.arange(12, dtype=np.float32)[None] / 4
    trained = TrainedPolicy(Biased(), theta, made.dataset.spec.observations)
    found = trained.recommend(*request(made.dataset, 3), k=4)
    assert found.ids == tuple(made.dataset.action_ids[:-5:-1].tolist())
    np.testing.assert_allclose(found.probabilities, softmax(theta[0])[:-5:-1], rtol=1e-5)


@pytest.mark.parametrize(
    ("request_part", "value"),
    [
        ({"k": 0}, "0"),
        ({"k": 13}, "13"),
        ({"k": 2.5}, "2.5"),
        ({"user": "anna"}, "'anna'"),
        ({"context": (1, 2)}, "[1, 2]"),
        ({"context": (1, 2, -1)}, "[1, 2, -1]"),
        ({"context": None}, "[]"),
        ({"context": {"tab": 1, "hours": 2}}, "tab, hours"),
        ({"context": (1, 2.5, 3)}, "[1.0, 2.5, 3.0]"),
        ({"history": ["a"]}, "'a'"),
        ({"history": 7}, "7"),
    ],
)
def test_a_wrong_request_is_named_with_its_value(trained, request_part, value):
    (name,) = request_part
    with pytest.raises(ValueError, match=rf"^`{name}` must .*, got {re.escape(value)}\.$"):
        trained.recommend(**({"user": 1, "context": (1, 2, 3), "history": []} | request_part))


def test_wrong_vectors_and_policies_of_no_log_are_refused(trained, made):
    with pytest.raises(ValueError, match=rf"`observation` must be {trained.catalogue.size} finite numbers"):
        trained.act(np.zeros(3), jax.random.key(0))
    other = TrainedPolicy(trained.policy, trained.theta, StateSpec(3))
    with pytest.raises(ValueError, match="not trained on a log"):
        other.recommend(1, None, [])
    with pytest.raises(ValueError, match="not trained on a log"):
        recommend.all_users(other, made.dataset)
    with pytest.raises(ValueError, match=r"than those of own\."):
        recommend.all_users(trained, own_log())
    with pytest.raises(ValueError, match="`k` must be"):
        recommend.all_users(trained, made.dataset, k=99)  # before anything is iterated


@pytest.mark.parametrize("exclude_seen", [False, True])
def test_all_users_are_scored_as_one_by_one(made, trained, monkeypatch, exclude_seen):
    monkeypatch.setattr(recommend, "BLOCK", 7)
    dataset = made.dataset
    last = [np.flatnonzero(dataset.user == user)[-1] for user in np.unique(dataset.user)]
    blocks = list(recommend.all_users(trained, dataset, 12, exclude_seen=exclude_seen))
    assert [len(block.user_ids) for block in blocks[:-1]] == [7] * (len(blocks) - 1)
    found = [
        (user, ids[:count], p[:count])
        for block in blocks
        for user, ids, p, count in zip(block.user_ids, block.ids, block.probabilities, block.counts, strict=True)
    ]
    assert len(found) == len(last)
    for (user, ids, p), row in zip(found, last, strict=True):
        asked = {"k": 12, "exclude_seen": exclude_seen, "responses": answers(dataset, row, after=True)}
        expected = trained.recommend(*request(dataset, row, after=True), **asked)
        assert user == dataset.user_ids[dataset.user[row]]
        assert dict(expected).keys() == set(ids.tolist())
        np.testing.assert_allclose(p, expected.probabilities, rtol=1e-5)
    x = Catalogue.of(dataset).see(*request(dataset, last[5], after=True), answers(dataset, last[5], after=True))[0]
    np.testing.assert_array_equal(x, dataset.features(dataset.next_observation(last[5])))


def test_who_is_recommended_nothing_is_counted(made, trained, tmp_path):
    blocks = list(recommend.all_users(trained, made.dataset, 2))
    blocks[0].counts[:3] = 0
    assert recommend.write(tmp_path / "scores.csv", blocks)["without"] == 3


def test_a_file_of_scores_that_fails_leaves_the_old_one(made, trained, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("before\n")

    def failing():
        yield next(recommend.all_users(trained, made.dataset, 2))
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        recommend.write(path, failing())
    assert path.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_stands_alone(made, trained):
    model, kept = made.dataset.behaviour, log_files.behaviour_of(made.path)
    assert (kept.policy, kept.options, kept.identity) == (model.policy, model.options, model.identity)
    assert len(kept.members) == len(model.members) == 3
    for one, other in zip(kept.members, model.members, strict=True):
        assert (one.temperature, one.rounds, one.log_loss) == (other.temperature, other.rounds, other.log_loss)
        for mine, its in zip(one.weights, other.weights, strict=True):
            assert mine.dtype == its.dtype
            np.testing.assert_array_equal(mine, its)
    assert trained.catalogue.same(Catalogue.of(made.dataset))
    for field in fields(Catalogue):
        assert (
            np.asarray(getattr(trained.catalogue, field.name)).dtype
            == np.asarray(getattr(Catalogue.of(made.dataset), field.name)).dtype
        )
    again = log_files.dataset_of(made.path)
    assert again.fingerprint == made.dataset.fingerprint
    np.testing.assert_array_equal(again.propensity, made.dataset.propensity)
    np.testing.assert_array_equal(again.behaviour.propensities(again).astype(np.float32), again.propensity)
    np.testing.assert_array_equal(moac.resume(made.path, again).returns, made.result.returns)


def test_a_dataset_that_has_moved_is_found_where_one_says(made, copy, tmp_path):
    moved = shutil.copytree(made.data, tmp_path / "moved")
    assert log_files.dataset_of(copy, moved).fingerprint == made.dataset.fingerprint
    rewrite(copy / "config.json", {"problem.log": {"data": str(tmp_path / "gone")}})
    with pytest.raises(ValueError, match=r"gone, on which .*run was trained, is not there"):
        log_files.dataset_of(copy)
    rewrite(copy / "config.json", {"problem.log": {}})
    with pytest.raises(ValueError, match="was trained on arrays in Python"):
        log_files.dataset_of(copy)


def test_other_data_is_refused(made, copy):
    rewrite(copy / "config.json", {"problem.fingerprint": "0123456789abcdef"})
    found = re.escape(made.dataset.fingerprint.partition(":")[0])
    with pytest.raises(
        ValueError, match=rf"was trained on other data than .*fingerprint is 0123456789abcdef, not {found}"
    ):
        log_files.dataset_of(copy)


def test_a_model_that_does_not_belong_to_the_data_is_refused(made, copy):
    path = copy / "behaviour.safetensors"
    arrays, about = files.read_arrays(path)
    files.write_arrays(path, arrays, about | {"identity": "other"})
    with pytest.raises(ValueError, match=r"behaviour\.safetensors was fitted on other data than"):
        log_files.dataset_of(copy)
    files.write_arrays(path, arrays | {"propensity": arrays["propensity"] / 2}, about)
    with pytest.raises(ValueError, match="was trained on other data than"):
        log_files.dataset_of(copy)
    path.unlink()
    with pytest.raises(ValueError, match=r"behaviour\.safetensors is damaged: it is missing\."):
        log_files.dataset_of(copy)


DAMAGE = {
    "behaviour": {
        "weights.1.0": np.zeros((2, 5), np.float32),
        "weights.0.1": np.zeros((6, 12)),
        "temperature": np.ones(1),
        "log_loss": np.ones(3),
    },
    "catalogue": {
        "users": np.zeros((3, 2), np.int8),
        "action_items": np.full(12, 10**6),
        "item_ids": np.zeros(0, int),
        "user_ids": np.zeros(3, np.float32),
    },
}


@pytest.mark.parametrize(("name", "array"), [(name, array) for name, arrays in DAMAGE.items() for array in arrays])
def test_sizes_are_checked(copy, name, array):
    path = copy / f"{name}.safetensors"
    arrays, about = files.read_arrays(path)
    files.write_arrays(path, arrays | {array: DAMAGE[name][array]}, about)
    with pytest.raises(ValueError, match=rf"{name}\.safetensors is damaged: .*"):
        log_files.behaviour_of(copy) if name == "behaviour" else moac.load(copy)


@pytest.mark.parametrize(
    ("name", "about"),
    [("behaviour", "options"), ("behaviour", "hidden"), ("catalogue", "window"), ("catalogue", "signs")],
)
def test_what_is_missing_is_named(copy, name, about):
    path = copy / f"{name}.safetensors"
    arrays, known = files.read_arrays(path)
    files.write_arrays(path, arrays, {key: value for key, value in known.items() if key != about})
    with pytest.raises(ValueError, match=rf"{name}\.safetensors is damaged: '{about}' is missing"):
        log_files.behaviour_of(copy) if name == "behaviour" else moac.load(copy)


def test_a_catalogue_of_another_log_is_refused(copy):
    path = copy / "catalogue.safetensors"
    arrays, about = files.read_arrays(path)
    files.write_arrays(path, arrays, about | {"fingerprint": "other"})
    with pytest.raises(ValueError, match=r"catalogue\.safetensors belongs to another log than the run"):
        moac.load(copy)


@pytest.mark.parametrize("name", ["behaviour", "catalogue"])
def test_a_torn_file_is_one_clear_line(copy, name):
    path = copy / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=rf"{name}\.safetensors is damaged: "):
        log_files.dataset_of(copy) if name == "behaviour" else moac.load(copy)


def test_a_log_that_knows_how_it_chose_keeps_a_catalogue_alone(tmp_path):
    own = own_log()
    result = untrained(own, moac.Config(hidden=(4,), behaviour_pull=0.0))
    run = saved(result, tmp_path / "run")
    assert log_files.behaviour_of(run) is None
    assert (run / "catalogue.safetensors").exists()
    responses = [[0.5, 0.25], [1.0, 0.0]]
    found = moac.load(run).recommend(14, (1, 2), [21, 22], k=9, responses=responses)
    x = Catalogue.of(own).see(14, [1, 2], [21, 22], responses)[0]
    theta = jax.tree.map(lambda leaf: leaf[0], result.policy.theta)
    p = softmax(result.policy.policy.logits(theta, x))
    np.testing.assert_allclose(found.probabilities, np.sort(p)[::-1], rtol=1e-5)
    with pytest.raises(ValueError, match=r"`context` must hold 2 codes, got tab\."):
        moac.load(run).recommend(14, {"tab": 1}, [], k=1)


def test_scores_of_all_users_from_the_command_line(made, trained, tmp_path, capsys):
    out = tmp_path / "deep" / "scores.csv"
    options = ["--data", str(made.data), "--out", str(out), "--k", "3", "--trial", "1", "--json"]
    assert main(["offline", "score", str(made.path), *options]) == 0
    summary = json.loads(capsys.readouterr().out)
    users = len(np.unique(made.dataset.user))
    assert (summary["users"], summary["lines"]) == (users, 3 * users)
    assert summary["users_without_rows"] == made.dataset.num_users - users
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["user_id", "rank", "item_id", "probability"]
    expected = next(recommend.all_users(trained, made.dataset, 3))
    assert [int(row["item_id"]) for row in rows[:6]] == expected.ids[:2].ravel().tolist()
    assert [int(row["rank"]) for row in rows[:6]] == [1, 2, 3, 1, 2, 3]
    assert [float(row["probability"]) for row in rows[:6]] == pytest.approx(
        expected.probabilities[:2].ravel(), rel=1e-8
    )
    assert {int(row["user_id"]) for row in rows} == set(made.dataset.user_ids[np.unique(made.dataset.user)].tolist())


def test_one_user_from_the_command_line(made, trained, capsys):
    asked = ["--user", "4", "--context", "1", "2", "3", "--history", "5", "100000000", "--k", "2", "--trial", "1"]
    assert main(["offline", "recommend", str(made.path), *asked]) == 0
    shown = capsys.readouterr()
    expected = trained.recommend(4, (1, 2, 3), [5, 10**8], k=2)
    assert [int(line.split()[1]) for line in shown.out.splitlines()[1:]] == list(expected.ids)
    assert [line.removeprefix("note: ") for line in shown.err.splitlines()] == list(expected.notes)
    assert main(["offline", "recommend", str(made.path), *asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["probabilities"] == pytest.approx(expected.probabilities)


MISTAKES = {
    "": "got nothing",
    "scores": "got 'scores'. Did you mean score?",
    "score": "`RUN` must be given",
    "score RUN": "`--out` must be given",
    "score RUN --out TMP": "`out` must be a file that ends in .parquet or .csv, got TMP",
    "score RUN --out scores.csv.gz": "`out` must be a file that ends in .parquet or .csv, got scores.csv.gz",
    "score RUN --out FILE --k 13": "`k` must",
    "score RUN --out FILE --data TMP": "TMP is not a dataset",
    "score RUN --out FILE --trial 2": "`trial` must be a whole number in [0, 2), got 2",
    "score TMP --out FILE": "TMP is not a run directory",
    "recommend RUN": "`--user` must be given",
    "recommend RUN --user anna --context 1 2 3 --history 5": "`user` must be a whole number, as the log has them, got",
    "recommend RUN --user 1 --context 1 2": "`context` must",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line(made, tmp_path, capsys, typed):
    named = {"RUN": str(made.path), "TMP": str(tmp_path), "FILE": str(tmp_path / "scores.csv")}
    assert main(["offline", *(named.get(word, word) for word in typed.split())]) == 2
    line = capsys.readouterr().err
    assert line.startswith("moac: ") and line.count("\n") == 1
    assert MISTAKES[typed].replace("TMP", str(tmp_path)) in line
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_on_no_log_says_so(tmp_path, capsys):
    run = invented(tmp_path / "run")
    assert main(["offline", "score", str(run), "--out", str(tmp_path / "scores.csv")]) == 2
    assert "which is not a log." in capsys.readouterr().err
