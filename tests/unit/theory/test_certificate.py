"""`moac.certify` and `moac certify`: looks, refusals, what is kept and what is shown."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import moac
from moac import momdp
from moac.cli.main import main
from moac.envs import Environment
from moac.policies import GaussianMLP
from moac.policies.gaussian import Squash
from moac.policies.networks import Vectors
from moac.theory import certificate
from moac.theory.certificate import Plan
from moac.theory.episodes import sampler
from moac.training.trained import TrainedPolicy
from tests.helpers.certificates import Case


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a model, in a folder, with its certificate."""
    folder = tmp_path_factory.mktemp("certify") / "run"
    moac.train("fishwood-v0", num_iterations=3, num_evaluations=1, trials=2, out=folder)
    return folder


def test_the_command_is_the_call_and_the_run_keeps_it(run, capsys):
    assert main(["certify", str(run), "--episodes", "80", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = moac.certify(run, episodes=80)
    assert (record["low"], record["high"]) == (found.low, found.high)
    assert record["metric"] == "theta" and record["natural"]["metric"] == "fisher"
    assert found.low <= 1e-12 < found.high  # every policy of fishwood is stationary
    assert np.sum(found.weights) == pytest.approx(1) and len(found.norms) == 2
    assert f"{np.sqrt(found.high):.2g} per unit step" in found.sentence
    assert found.untrained is not None and found.ratio is not None and found.ratio[1] == np.inf
    assert certificate.read(run)[0]["high"] == found.high
    assert found.record()["untrained"]["high"] == found.untrained.high
    page = (run / "report.html").read_text()
    assert "Stationary is not optimal" in page and found.sentence in page
    assert main(["certify", str(run), "--episodes", "80", "--trial", "1"]) == 0
    assert "no direction improves every objective" in " ".join(capsys.readouterr().out.split())
    assert sorted(certificate.read(run)) == [0, 1]
    assert main(["evaluate", str(run), "--episodes", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])["certificates"]
    assert shown[0] == {"trial": 0, **{name: record[name] for name in certificate.SHORT}}


def test_training_ends_with_a_certificate(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "fishwood-v0", "--iterations", "2", "--certify", "--json", "--out", str(run)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(summary["certificate"]) == {"low", "high", "confidence", "metric"}
    assert summary["stationarity_gap"] < 1e-12  # stays what it was
    average = ["train", "fishwood-v0", "--setting", "average", "--certify", "--out", str(tmp_path / "other")]
    assert main(average) == 2
    assert "`--certify` must be left out" in capsys.readouterr().err and not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 79}, "`episodes` must be a whole number of at least 80, got 79"),
        ({"confidence": 1.0}, "`confidence` must be between 0 and 1, got 1.0"),
        ({"until": 0.0}, "`until` must be above 0, got 0.0"),
        ({"trial": 2}, "`trial` must be a whole number in"),
    ],
)
def test_mistakes(run, arguments, message, capsys):
    with pytest.raises(ValueError, match=message.partition(",")[0]):
        moac.certify(run, **arguments)
    (name, value), *_ = arguments.items()
    assert main(["certify", str(run), f"--{name}", str(value)]) == 2
    assert message in capsys.readouterr().err


def test_half_an_episode_is_refused():
    with pytest.raises(ValueError, match=r"`episodes` must be a whole number, got 100\.5"):
        certificate.Plan(episodes=100.5)


def test_the_average_setting_is_one_line(run):
    with pytest.raises(ValueError, match="`setting` must be discounted"):
        moac.certify(replace(moac.load(run), setting=moac.Average()), momdp.library.fishwood())


@pytest.mark.parametrize("damage", [{"trial": "x"}, {"low": "x"}, {"high": [1]}, {"norms": [0.1, "x"]}])
def test_a_damaged_file_is_one_line(damage, tmp_path):
    ends = {"low": 0.1, "high": None}  # no upper end is infinite
    whole = {"trial": 0, **ends, "natural": ends, "norms": [0.2, 0.3]}
    (tmp_path / certificate.FILE).write_text(json.dumps({"certificates": [whole]}))
    assert certificate.read(tmp_path) == {0: whole}
    (tmp_path / certificate.FILE).write_text(json.dumps({"certificates": [whole | damage]}))
    with pytest.raises(ValueError, match=r"certificate\.json"):
        certificate.read(tmp_path)
    assert certificate.read(tmp_path / "nowhere") == {}


def subject():
    case = Case(momdp.library.fishwood(), moac.Discounted(0.9))
    return certificate.Subject(case.model, case.trained)


def interrupting(at):
    """Ctrl-C when episodes from there on are sampled."""

    def show(what, first, count):
        if first == at:
            raise KeyboardInterrupt

    return show


def test_looks_share_the_confidence_and_stop_when_they_know():
    levels = [alpha for _, alpha in Plan(until=0.1).levels()]
    assert levels[:3] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12]) and sum(levels) < 0.05
    shown = []
    found = certificate.certify(subject(), Plan(80, until=0.5), show=lambda *told: shown.append(told))
    counts, _, highs = zip(*found.looks, strict=True)
    assert counts == tuple(80 << k for k in range(len(counts))) and found.episodes == counts[-1]
    assert highs[-1] <= 0.5 < min(highs[:-1], default=1.0)
    assert shown[0] == ("episodes", 0, 80)


def test_ctrl_c_keeps_the_last_look():
    found = certificate.certify(subject(), Plan(80, until=1e-6), show=interrupting(160))
    assert [count for count, *_ in found.looks] == [80, 160]
    with pytest.raises(KeyboardInterrupt):
        certificate.certify(subject(), Plan(80), show=interrupting(0))


def test_a_saturated_policy_is_warned_about(run):
    found = moac.certify(run, episodes=80, untrained=False)
    assert found.warning is None and found.rarest > 0.1
    model = momdp.library.fishwood()
    trained = replace(moac.load(run), theta=np.array([[[9.0, 0.0], [9.0, 0.0]]], np.float32))
    sharp = moac.certify(trained, model, episodes=80, untrained=False)
    assert sharp.rarest == pytest.approx(1 / (1 + np.exp(9)), rel=1e-3)
    assert sharp.warning is not None and "stationary" in sharp.warning


def test_an_environment_gives_episodes_like_those_of_its_model():
    """Means of what an episode sums, with the same policy: returns and ratios."""
    real, gamma = moac.envs.make("fishwood-v0"), (0.9, 0.8)
    case = Case(momdp.library.fishwood(), moac.Discounted(gamma), theta=np.array([[3.0, 0.0], [0.0, 1.0]], np.float32))
    trained = replace(case.trained, observations=real.spec.observations)
    played, drawn = sampler(real, trained, gamma, 0)(0, 1000), case.episodes(1000)
    for name in ("reward", "weight"):
        sums = [each.per_episode(each.weight * (each.reward if name == "reward" else 1)) for each in (played, drawn)]
        error = np.sqrt(sum(each.var(axis=0) for each in sums) / 1000)
        assert np.all(np.abs(sums[0].mean(axis=0) - sums[1].mean(axis=0)) < 4.5 * error)
    returns = played.per_episode(played.weight * played.reward)
    assert np.all(np.abs(returns.mean(axis=0) - case.exact.returns) < 4.5 * returns.std(axis=0) / np.sqrt(1000))
    again = sampler(real, trained, gamma, 0)(0, 1000)
    np.testing.assert_array_equal(again.observation, played.observation)
    assert played.rarest.min() == pytest.approx(drawn.rarest.min()) and not played.cut.any()


def test_a_time_limit_is_named_and_vectors_are_acted_on():
    real = moac.envs.make("mo-mountaincarcontinuous-v0", num_envs=2)
    policy, spec = GaussianMLP(Vectors(2), (3,), Squash((-1.0,), (1.0,))), real.spec
    theta = jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy.init(jax.random.key(0)))
    trained = TrainedPolicy.of(policy, theta, spec, None, moac.Discounted(0.99))
    limited = replace(real.interface, make=lambda **options: (real.interface.make(**options)[0], 30))
    found = moac.certify(trained, Environment(limited, spec), episodes=80, untrained=False)
    assert "a time limit ends 7" in found.objective or "a time limit ends 8" in found.objective  # .99^30 = .74
    assert found.rarest == 1.0 and found.warning is None and 0 < found.high < np.inf


@pytest.fixture(scope="module")
def conditioned(tmp_path_factory):
    """A run of one network for every preference, in a folder."""
    folder = tmp_path_factory.mktemp("conditioned") / "run"
    small = {"actor_batch_size": 16, "minibatch_size": 16, "epochs": 1, "hidden": (3,), "num_evaluations": 1}
    made = moac.envs.make("minecart-deterministic-v0", 2, evaluation_episodes=1)
    short = moac.Discounted(0.5)  # an episode has two steps, about
    moac.train(made, num_iterations=1, conditioned=True, setting=short, out=folder, **small)
    return folder


def test_a_conditioned_network_is_certified_for_each_preference_of_a_grid(conditioned, capsys):
    assert main(["certify", str(conditioned), "--episodes", "80", "--preferences", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [each["preference"] for each in record["each"]] == np.eye(3).tolist()
    assert record["confidence"] == 0.95 and "each of 3 preferences" in record["sentence"]
    for end in ("low", "high"):
        assert record[end] == max(each[end] for each in record["each"])
    policy, problem = moac.load(conditioned), moac.envs.make("minecart-deterministic-v0")
    one = moac.certify(policy.at([0, 0, 1]), problem, episodes=80, confidence=1 - 0.05 / 3, untrained=False)
    assert (one.low, one.high) == (record["each"][2]["low"], record["each"][2]["high"])  # a third of α each
    assert one.preference == (0.0, 0.0, 1.0) and one.each == ()
    page = (conditioned / "report.html").read_text()
    assert page.count("0, p = ") == 3


def test_preferences_are_for_conditioned_networks(run, conditioned):
    with pytest.raises(ValueError, match="`preferences` must be left out"):
        moac.certify(run, episodes=80, preferences=3)
    with pytest.raises(ValueError, match="vectors of 3 numbers"):
        moac.certify(conditioned, episodes=80, preferences=[[0.5, 0.5]])


def test_the_worst_of_several_preferences_stands_for_all(monkeypatch):
    """The largest lower and the largest upper end, in either metric, and the rarest action of all."""
    one = certificate.certify(subject(), Plan(80))
    ends = {0: (0.1, 0.9, 0.3, 0.5, 0.02), 1: (0.4, 0.6, 0.2, 0.8, 0.03), 2: (0.2, 0.7, 0.4, 0.6, 0.01)}

    def of_policy(preference, plan, show):
        assert plan.confidence == pytest.approx(1 - 0.05 / 3)
        low, high, natural_low, natural_high, rarest = ends[preference]
        natural = replace(one.natural, low=natural_low, high=natural_high)
        return replace(one, low=low, high=high, natural=natural, rarest=rarest)

    monkeypatch.setattr(certificate, "_of_policy", of_policy)
    monkeypatch.setattr(certificate.Subject, "at", lambda self, p: p)
    found = certificate.certify(subject(), Plan(80), preferences=[0, 1, 2])
    assert (found.low, found.high) == (0.4, 0.9)
    assert (found.natural.low, found.natural.high) == (0.4, 0.8)
    assert found.rarest == 0.01 and found.confidence == 0.95
    assert [each.high for each in found.each] == [0.9, 0.6, 0.7]


def test_a_quarter_of_the_episodes_deviate_once_by_the_largest_discount():
    """Of A actions the policy's own is drawn with 1 − ε + ε/A, ε = (1 − c)/4, c = max γ; its ratio is 1 over that."""
    model, gamma = momdp.library.fishwood(), (0.9, 0.5)
    case = Case(model, moac.Discounted(gamma), theta=np.array([[40.0, 0.0], [40.0, 0.0]], np.float32))
    episodes, epsilon = sampler(model, case.trained, gamma, 0)(0, 200), 0.25 * 0.1
    first = np.searchsorted(episodes.number, np.arange(200))
    own = first[episodes.action[first] == 0]
    np.testing.assert_allclose(episodes.weight[own], 1 / (1 - epsilon / 2), rtol=1e-6)
