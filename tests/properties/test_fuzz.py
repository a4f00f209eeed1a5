"""Files and options from hell, by a seeded generator: every one ends well or with one clear line, and leaves nothing.

Fast, a few hundred inputs; slow, more than ten thousand.
"""

import random
import shlex
import shutil

import jax
import numpy as np
import pytest

from moac import momdp, training
from moac.cli.main import main
from moac.config import Config
from moac.kuairand import schema
from moac.logs import engine, folder, source_files
from moac.runs import directory
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.run import History
from tests.helpers.kuairand import build, generated
from tests.helpers.limits import limited
from tests.helpers.run_folders import invented

TOKENS = [
    b"", b"0", b"-1", b"1e999", b"NaN", b"null", b"[]", b"{}", b"true", b'"', b"\\", b"\n", b"\x00", b"\xff\xfe", b"=",
    b",", b"9" * 30, b"../" * 9, b"[" * 999, b"x" * 300, b"[[", b"'", b"#", b"\xf0\x9f\x92\xa5", b"0x7fffffffffff",
]  # fmt: skip
_SECONDS = 60
"""That one input may take; most take milliseconds."""
MODEL = momdp.library.random_ergodic(jax.random.key(0), num_states=5, num_actions=3, num_objectives=2)
CONFIG = Config(num_iterations=9, num_critic_steps=1, critic_batch_size=2, actor_batch_size=2)


def mutated(content, rng):
    """The bytes with a few things wrong: flipped, cut, doubled, moved, or with something else in place."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        a = rng.randrange(len(found) + 1)
        b = min(len(found), a + rng.choice((0, 1, 2, 8, 64)))
        how = rng.randrange(6)
        if how == 0 and found:
            found[min(a, len(found) - 1)] ^= 1 << rng.randrange(8)
        elif how == 1:
            del found[a:]
        elif how == 2:
            del found[a:b]
        elif how == 3:
            found[a:a] = found[a:b]
        elif how == 4:
            found[a:b] = rng.choice(TOKENS)
        else:
            c = rng.randrange(len(found) + 1)
            found[a:a] = found[c : c + 16]
    return bytes(found)


def survives(work, *given):
    """Whether it was accepted; the only way to refuse is a ValueError of one line."""
    try:
        with limited(_SECONDS):
            work(*given)
    except ValueError as error:
        assert str(error).strip(), "an error must say something"
        return False
    return True


def tree(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def fuzz_files(root, paths, work, count, seed):
    """Change one file of a folder at a time; the folder holds the same files afterwards."""
    rng, accepted, before = random.Random(seed), 0, tree(root)
    whole = {path: path.read_bytes() for path in paths}
    for path in rng.choices(paths, k=count):
        path.write_bytes(mutated(whole[path], rng))
        accepted += survives(work, path)
        path.write_bytes(whole[path])
    assert tree(root) == before
    assert all(survives(work, path) for path in paths)
    assert accepted < count


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz")
    source = generated(place, rows=800, num_users=60, num_videos=40, random_rows=80)
    build(source, place / "data", actions=5)
    return source, place / "data"


def fuzz_checkpoints(count, tmp_path, dataset):
    run = result.prepare(MODEL, CONFIG, 2, 4)
    directory = RunDirectory.create(tmp_path / "run", run)
    trials = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), training.template(run))
    directory.checkpoints().write(training.Snapshot.of(3, trials, History.empty()))
    paths = [directory.path / "config.json", *(directory.path / "checkpoint").iterdir()]

    def opened(path):
        Config.from_json(directory.description["config"])
        if path.name != "config.json" or path.read_bytes() != config:
            directory.checkpoints().newest(run)

    config = paths[0].read_bytes()
    fuzz_files(directory.path, paths, opened, count, 2)


def fuzz_finished_runs(count, tmp_path, dataset):
    path = invented(tmp_path / "run")
    paths = [path / name for name in ("config.json", "provenance.json", "history.safetensors", "policy.safetensors")]
    fuzz_files(path, paths, lambda _: directory.read(path), count, 3)


def fuzz_csvs(count, tmp_path, dataset):
    source = tmp_path / "source"
    shutil.copytree(dataset[0], source)
    kinds = {name: kind for kind in schema.KINDS for name in kind.file_names("pure")}
    paths = [path for path in sorted(source.rglob("*.csv")) if path.name in kinds]

    with engine.connect(engine.limits("600MB", 1), tmp_path / "spill") as connection:

        def read(path):
            source_files.hashed(path, kinds[path.name].table)
            source = engine.source(connection, path, kinds[path.name].table)
            engine.copy_checked(connection, f"SELECT * FROM {source.table}", [source], tmp_path / "rows.parquet")

        fuzz_files(source, paths, read, count, 4)


def fuzz_datasets(count, tmp_path, dataset):
    copy = tmp_path / "data"
    shutil.copytree(dataset[1], copy)
    paths = [path for path in sorted(copy.rglob("*")) if path.suffix in (".safetensors", ".json")]

    def loaded(_):
        folder.load(copy)
        folder.describe(copy)

    fuzz_files(copy, paths, loaded, count, 5)


def fuzz_configs(count, tmp_path, dataset):
    rng, plain = random.Random(6), result.prepare(MODEL, CONFIG, 2, 4).config.to_json()
    values = [None, True, -1, 0, 1, 2**70, 1e308, float("nan"), "", "x", "1/t", [], {}, [0.5, 0.5], {"name": "average"}]
    for _ in range(count):
        data = dict(plain)
        for _ in range(rng.choice((1, 2, 3))):
            data[rng.choice([*plain, "colour", ""])] = rng.choice(values)
        survives(lambda data=data: result.prepare(MODEL, Config.from_json(data), 2, 4))


def fuzz_options(count, tmp_path, dataset, capsys):
    """Commands that end before anything is trained: something is always wrong with them."""
    rng = random.Random(7)
    words = shlex.split(
        "train resume front theory report evaluate watch reproduce data kuairand build describe generate --out "
        "--trials "
        "--iterations --discount --momentum --weights --seed --json --setting average -1 0 1e9 nan x 0.5 fishwood-v0 "
        "--checkpoint-every --sink --hidden -- --help=1 --num_envs --policy mlp '' = --=x --out= 1/t ../.. \u2603"
    )
    for _ in range(count):
        arguments = [rng.choice(words) for _ in range(rng.randrange(6))] + ["--wrong-option"]
        code = main(arguments)
        out, err = capsys.readouterr()
        assert code == 2, arguments
        assert out == ""
        assert err.startswith("moac: ")
        assert err.count("\n") == 1


FUZZERS = {
    fuzz_checkpoints: (80, 2500),
    fuzz_finished_runs: (80, 2500),
    fuzz_csvs: (60, 2000),
    fuzz_datasets: (60, 2000),
    fuzz_configs: (60, 1000),
}
"""How many inputs, in the fast suite and in the slow one."""
OPTIONS = (10, 100)
assert sum(many for _, many in (*FUZZERS.values(), OPTIONS)) >= 10_000


@pytest.mark.parametrize("fuzz", FUZZERS, ids=lambda fuzz: fuzz.__name__)
def test_a_few(fuzz, tmp_path, dataset):
    fuzz(FUZZERS[fuzz][0], tmp_path, dataset)


def test_a_few_options(tmp_path, dataset, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz_options(OPTIONS[0], tmp_path, dataset, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("fuzz", FUZZERS, ids=lambda fuzz: fuzz.__name__)
def test_many(fuzz, tmp_path, dataset):
    fuzz(FUZZERS[fuzz][1], tmp_path, dataset)


@pytest.mark.slow
def test_many_options(tmp_path, dataset, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz_options(OPTIONS[1], tmp_path, dataset, capsys)
    assert list(tmp_path.iterdir()) == []
