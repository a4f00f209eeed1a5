"""Whole commands on folders and files from hell, by a seeded generator: each ends in time, well or with one line.

`test_fuzz.py` changes bytes and looks at single functions; here a change is made that is well-formed (a number, a type,
a shape, a link in place of a file) and the command is run as a user would. Fast, a few; slow, some hundreds.
"""

import copy
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from moac import files
from moac.cli.main import main
from moac.search import sweep_spec as spec
from tests.helpers.limits import THOROUGH, limited
from tests.helpers.limits import count as tried
from tests.properties.test_fuzz import mutated, survives

SECONDS = 60
"""That one call may take; a command that is refused takes a fraction of one."""
LONGEST = 5000
MODULE = "this"
"""One that nothing else imports."""
DEEP = json.loads("[" * 60 + "]" * 60)
VALUES = [
    None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**400, 1e308, -1e-308, 0.5, "", "x", "x" * 20_000, "[/red]", "a:b",
    "\u2603\x00", "1/t", "../..", [], [1], [[1]], [None], ["[/red]"], DEEP, {}, {"a": 1}, {"name": "average"},
]  # fmt: skip
TYPES = {"BOOL": 1, "F4": 2, "F6_E2M3": 4 / 3, "F8_E5M2": 1, "F8_E4M3": 1, "F16": 0.5, "BF16": 0.5, "F64": 0.125}
TYPES |= {"C64": 0.125, "I8": 1, "U64": 0.125, "X": 1, "": 1}
"""Of arrays, with how many numbers a byte holds."""
NAMES = ["config.json", "provenance.json", "history.safetensors", "policy.safetensors", "figures/training.svg"]
ARRAYS = [name for name in NAMES if name.endswith(".safetensors")]
SWEEP = """
env = "fishwood-v0"
trials = 3
seed = 5
[config]
setting = { name = "discounted", discount = 0.8 }
num_iterations = 4
weights = [0.5, 0.5]
[methods]
"MOAC" = { momentum = "1/t" }
[grid]
actor_step_size = [1.0, 10]
[random]
count = 3
critic_step_size = { low = 0.01, high = 0.1, log = true }
[stepping]
num_envs = 4
"""


def places(data, path=()):
    """Every place in nested data."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path] * bool(path) + [place for key, value in inner for place in places(value, (*path, key))]


def changed(data, rng):
    """Nested data with another value, or none, at one place."""
    data, place = copy.deepcopy(data), rng.choice(places(data))
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    if rng.random() < 0.15:
        del inner[place[-1]]
    else:
        inner[place[-1]] = rng.choice(VALUES)
    return data


def one_description(run, rng):
    """config.json alone, or together with what the policies say that it was."""
    data = changed(json.loads((run / "config.json").read_text()), rng)
    describe(run, data, everywhere=rng.random() < 0.7)


def one_module(run, rng):
    """An environment whose id would import a module."""
    data = json.loads((run / "config.json").read_text())
    data["problem"] |= {"env": f"{MODULE}:Foo-v0", "encoder": [], "options": {}}
    describe(run, data, everywhere=True)


def describe(run, data, everywhere):
    """Write config.json, and what the policies say that it was."""
    (run / "config.json").write_text(json.dumps(data))
    if everywhere:
        policy = run / "policy.safetensors"
        header, content = taken_apart(policy.read_bytes())
        about = json.loads(header["__metadata__"]["moac"])
        header["__metadata__"]["moac"] = json.dumps(about | {"run": data})
        policy.write_bytes(put_together(header, content))


def one_origin(run, rng):
    path = run / "provenance.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), rng)))


def taken_apart(content):
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8:][:size]), content[8 + size :]


def put_together(header, content):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def one_header(run, rng):
    """Of a safetensors file: a type, a shape, a place, or the metadata."""
    path = run / rng.choice(ARRAYS)
    header, content = taken_apart(path.read_bytes())
    name = rng.choice(list(header))
    if name == "__metadata__":
        about = changed(json.loads(header[name]["moac"]), rng)
        header[name] = {"moac": json.dumps(about)} if rng.random() < 0.8 else rng.choice(VALUES)
    elif rng.random() < 0.5:
        begin, end = header[name]["data_offsets"]
        kind, per_byte = rng.choice(list(TYPES.items()))
        header[name] |= {"dtype": kind, "shape": [int((end - begin) * per_byte)]}
    else:
        header[name] = changed(header[name], rng)
    path.write_bytes(put_together(header, content))


def one_array(run, rng):
    """Another rank, type or size, with a hash that is right."""
    path = run / rng.choice(ARRAYS)
    arrays, about = files.read_arrays(path)
    name = rng.choice(list(arrays))
    array = arrays[name]
    others = [array[..., None], array[None], array[:0], array.reshape(-1), array.astype(bool), array.astype(np.int64)]
    others += [np.zeros(()), array[:1], np.concatenate([array, array]), array * np.nan, np.full(array.shape, 2**62)]
    if rng.random() < 0.1:
        del arrays[name]
    else:
        arrays[name] = rng.choice(others)
    files.write_arrays(path, arrays, about)


def one_file(run, rng):
    """Something else than a file."""
    path = run / rng.choice([*NAMES, ".lock", "report.html", "checkpoint", "figures"])
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    put = rng.choice(["fifo", "device", "folder", "link", "broken", "nothing", "empty"])
    if put in ("device", "link", "broken"):
        path.symlink_to(
            {"device": "/dev/null", "link": run.parents[1] / "target", "broken": run.parents[1] / "no"}[put]
        )
    elif put == "folder":
        path.mkdir(parents=True)
    elif put != "nothing" and path.parent.is_dir():
        os.mkfifo(path) if put == "fifo" else path.write_bytes(b"")


def some_bytes(run, rng):
    path = run / rng.choice(NAMES)
    path.write_bytes(mutated(path.read_bytes(), rng))


CHANGES = [one_description, one_description, one_module, one_origin, one_header, one_array, one_file, some_bytes]
COMMANDS = [
    ("report", "{}"), ("resume", "{}"), ("evaluate", "{}", "--episodes", "1"), ("theory", "fishwood-v0", "--run", "{}"),
    ("watch", "{}", "--episodes", "1"), ("offline", "recommend", "{}", "--user", "1"), ("resume", "{}", "--json"),
]  # fmt: skip


def ended(arguments, capsys, codes=(0, 2)):
    """The exit code of a command; where it is 2, one line has said why."""
    with limited(SECONDS):
        code = main([str(argument) for argument in arguments])
    err = capsys.readouterr().err
    assert code in codes
    if code == 2:
        last = err.splitlines()[-1]
        assert last.startswith("moac: ")
        assert len(last) < LONGEST
    assert "Traceback" not in err
    return code


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, as the command leaves it."""
    path = tmp_path_factory.mktemp("fuzz") / "run"
    sizes = ("--iterations", "3", "--num-critic-steps", "1", "--critic-batch-size", "2", "--actor-batch-size", "2")
    assert main(["train", "fishwood-v0", *sizes, "--trials", "2", "--out", str(path)]) == 0
    return path


def fuzz_runs(count, run, tmp_path, capsys, seed=11):
    (tmp_path / "target").write_text("kept")
    codes = []
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        folder = shutil.copytree(run, tmp_path / "[bold] run [" / "red]")  # markup, were it read as such
        change, command = rng.choice(CHANGES), rng.choice(COMMANDS)
        change(folder, rng)
        try:
            codes.append(ended([part.format(folder) for part in command], capsys))
        except BaseException as error:
            error.add_note(f"{change.__name__} and {command[0]}, input {k} of seed {seed}")
            raise
        shutil.rmtree(folder.parent)
        assert MODULE not in sys.modules
        assert (tmp_path / "target").read_text() == "kept"
        assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert codes.count(2) > count // 4


def fuzz_sweeps(count, tmp_path, seed=12):
    """A spec with other tokens in it; parsed only, since what is accepted would be trained."""
    path, accepted = tmp_path / "sweep.toml", 0
    tokens = ["1" + "0" * 400, "9" * 5000, "[" * 99 + "]" * 99, "[" * 9999, "1e308", "-1", "inf", "nan", '"[/red]"']
    tokens += [
        "{}",
        "[]",
        "[[]]",
        "true",
        '"x"',
        "1000000000000000",
        "{ low = 1, high = 1e308 }",
        "2026-01-01",
        '"' * 3,
    ]
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        lines = SWEEP.splitlines()
        for _ in range(rng.choice((1, 1, 2))):
            place = rng.randrange(len(lines))
            lines[place] = f"{lines[place].partition('=')[0]} = {rng.choice(tokens)}"
        text = "\n".join(lines).encode()
        path.write_bytes(text if rng.random() < 0.7 else mutated(text, rng))
        with limited(SECONDS):
            accepted += survives(spec.load, path)
    assert 0 < accepted < count


WORDS = [
    "train", "resume", "explore", "front", "evaluate", "watch", "theory", "sweep", "report", "offline", "fishwood-v0",
    "--iterations", "--discount", "--weights", "--seed", "--json", "--out", "--trust", "--hidden", "--momentum",
    "x" * 20_000, "[/red]", "9" * 400, "1e999", "-" * 60, "--" + "y" * 20_000, "\u2603", "\udcff", "", "=", "[bold]",
    "payload:Foo-v0", "/dev/null", "/dev/zero", "/proc/self/mem", "fifo", "nowhere/at/all", "sweep.toml",
]  # fmt: skip


def fuzz_words(count, tmp_path, capsys, seed=13):
    """Commands that name no run: none of them can do anything."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sweep.toml").write_text("x = " + "[" * 9999)
    before = sorted(path.name for path in tmp_path.iterdir())
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        arguments = [rng.choice(WORDS) for _ in range(rng.randrange(1, 5))]
        if arguments[0] in ("front", "train", "explore", "theory") and "fishwood-v0" in arguments:
            arguments.append("--wrong-option")  # else it would be done
        ended(arguments, capsys, codes=(2,))
        assert sorted(path.name for path in tmp_path.iterdir()) == before


ENVIRONMENTS = (
    "fishwood-v0", "resource-gathering-v0", "fishwood-v0 --blackbox", "four-room-v0 --blackbox", "deep-sea-treasure-v0",
    "mo-mountaincarcontinuous-v0", "deep-sea-treasure-concave-v0 --blackbox",
)  # fmt: skip
OPTIONS = {
    "setting": "discounted average", "discount": "0.5 0.9 0.999 1.0 0", "learner": "paper ppo", "epochs": "1 3 0",
    "minibatch-size": "4 7 1e3", "units": "return raw advantage", "entropy": "0 0.1 -1 nan", "gae": "0 0.5 1 2",
    "weighting": "min-norm preferred fixed uniform first-batch capped:0.7 cagrad:0.4 pcgrad imtl-g nash-mtl upgrad "
                 "fairgrad:2 moco modo sdmgrad chebyshev:1 capped:2 minnorm",
    "momentum": "1/t 1/sqrt(t) 1 0 const:0.3 const:2 t", "policy": "table linear mlp gaussian", "critic": "linear mlp",
    "hidden": "3 0 -1", "optimiser": "constant adam", "critic-optimiser": "constant adam", "trials": "1 2 3 0",
    "features": "one-hot one-hot-reference random:3 tile tile:2 fourier:2 rbf:3 raw rbf:0 random:", "mu": "batch paper",
    "ratio-clip": "0.2 0 inf", "whitening": "rollout none", "schedule": "linear constant", "critic-start": "warm cold",
    "visitation": "stationary discounted", "action-scale": "shared state", "action-spread": "0.5 2 9",
    "gradient-clip": "0.5 None 0", "observation-scale": "bounds running standard", "normalise": "none l2",
    "preference-draw": "dirichlet:1 corners dirichlet:0", "seed": "0 7 -1", "num-envs": "1 2 3 0",
    "num-critic-steps": "1 2 0", "critic-batch-size": "1 3 8", "actor-batch-size": "1 2 4 9", "steps": "1 40 -3",
    "actor-step-size": "0 0.1 1e30", "critic-step-size": "0.05 1 inf", "average-step-size": "0.1 2",
    "num-evaluations": "1 2 9", "evaluation-episodes": "1 2",
}  # fmt: skip
SWITCHES = ("conditioned", "certify")


def some_options(rng, most=9):
    """The words of a training that may be done or not: an environment, and some options."""
    words = rng.choice(ENVIRONMENTS).split()
    for name in rng.sample([*OPTIONS], rng.randrange(most + 1)):
        words += [f"--{name}", rng.choice(OPTIONS[name].split())]
    if rng.random() < 0.2:
        words += ["--weights", *rng.choice(["0.5 0.5", "0.2 0.3 0.5", "1 1", "0.5"]).split()]
    return words + [f"--{name}" for name in SWITCHES if rng.random() < 0.1]


def fuzz_lines(count, tmp_path, capsys, seed=14):
    """Parsed, and resolved against the environment, which may take it or not; nothing is written."""
    accepted = 0
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        words = ["train", *some_options(rng), "--show-config"]
        try:
            accepted += ended(words, capsys) == 0
        except BaseException as error:
            error.add_note(f"moac {' '.join(words)}, input {k} of seed {seed}")
            raise
        assert list(tmp_path.iterdir()) == []
    assert 0.02 * count < accepted < 0.9 * count


def fuzz_trainings(count, tmp_path, capsys, seed=15):
    """Two iterations of what is accepted: it ends with a run that can be read, or with one line and nothing else."""
    done = 0
    small = ["--iterations", "2", "--num-evaluations", "1", "--evaluation-episodes", "1", "--num-critic-steps", "2"]
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        words = ["train", *some_options(rng, most=4)]
        words += [word for name, value in zip(small[::2], small[1::2], strict=True) if name not in words
                  for word in (name, value)]  # fmt: skip
        try:
            code = ended([*words, "--out", "run"], capsys)
            assert (code == 0) == (Path("run") / "policy.safetensors").exists()
            assert code == 0 or not Path("run").exists()
        except BaseException as error:
            error.add_note(f"moac {' '.join(words)}, input {k} of seed {seed}")
            raise
        shutil.rmtree("run", ignore_errors=True)
        assert list(tmp_path.iterdir()) == []
        done += code == 0
    assert done > count // 8
    return done


def fuzz_processes(count, tmp_path, seed=16):
    """The program itself, with a home and a temporary folder of its own: it leaves neither traceback nor file."""
    places = {name: tmp_path / name for name in ("here", "home", "temporary")}
    for place in places.values():
        place.mkdir()
    own = {"HOME": places["home"], "TMPDIR": places["temporary"], "MOAC_CACHE": tmp_path / "cache"}
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        words = [rng.choice(WORDS) for _ in range(rng.randrange(1, 5))] + ["--wrong-option"]
        if rng.random() < 0.5:
            words = ["train", *some_options(rng), "--show-config"]
        done = subprocess.run(
            [sys.executable, "-m", "moac", *(word.replace("\0", "") for word in words)],
            cwd=places["here"], env=os.environ | {name: str(place) for name, place in own.items()}, timeout=SECONDS,
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        told = f"moac {' '.join(words)[:300]!r}, input {k} of seed {seed}: {done.stderr[-2000:]}"
        assert done.returncode in (0, 2), told
        assert "Traceback" not in done.stderr, told
        assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith("moac: "), told
        assert [path.name for place in places.values() for path in place.iterdir()] == [], told


def test_a_few_lines(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz_lines(60, tmp_path, capsys)


def test_a_few_trainings(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz_trainings(12, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_lines(tmp_path, capsys, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    fuzz_lines(tried(2000), tmp_path, capsys, f"many {seed}")


@pytest.mark.slow
def test_real_processes(tmp_path):
    fuzz_processes(tried(300), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10 if THOROUGH else 4))
def test_many_trainings(tmp_path, capsys, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    fuzz_trainings(tried(100), tmp_path, capsys, f"many {seed}")


def test_a_few_runs(run, tmp_path, capsys):
    fuzz_runs(15, run, tmp_path, capsys)


def test_a_few_sweeps(tmp_path):
    fuzz_sweeps(100, tmp_path)


def test_a_few_words(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz_words(30, tmp_path, capsys)


@pytest.mark.slow
def test_many_runs(run, tmp_path, capsys):
    fuzz_runs(tried(2000), run, tmp_path, capsys)


@pytest.mark.slow
def test_many_sweeps(tmp_path):
    fuzz_sweeps(3000, tmp_path)


@pytest.mark.slow
def test_many_words(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz_words(600, tmp_path, capsys)


def test_the_time_limit_ends_what_waits(tmp_path):
    """Else a call that hangs would not be noticed by its own test."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BaseException, match=r"not done after 0\.1 seconds"), limited(0.1):
        Path(tmp_path / "fifo").read_bytes()
