"""Command lines drawn from the commands' own dataclasses, in a folder that holds what they need; and how each ended.

python -m tests.fuzz.commands WORD…     repeats one of them in a new folder and says what was wrong
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import tyro

from moac.cli import main as cli
from moac.cli.options import ALIASES
from tests.helpers import log_runs
from tests.helpers.limits import limited

SECONDS = 60
"""That one command may take; most take a fraction of one."""
LONGEST = 5000
"""Characters of a message."""
MAY_END_WITH_1 = ("sweep", "offline train")

TEXTS = (
    "", " ", "x", "-", "--", "-1", "=", "==", "x=1", "x=-1%", "nan", "inf", "-inf", "-0", "1e308", "1e-320", "1e999",
    "0x10", "1_000", "٣", "½", "True", "none", "null", "[]", "{}", "0.5,0.5", "0.2,0.9;1", "x" * 5000, "[/red]",
    "[bold]", "\x01\x1b[31m", "a\nb", "a\tb", "☃", "\u202e", "\udcff", "~", "%s", "{0}", "*", "'", '"', "\\",
    "$HOME", "a b", "1/t", "discounted", "fishwood-v0", "module:Id-v0", "run", "--help=1",
)  # fmt: skip
PATHS = (
    "missing", "missing/below", "file", "empty", "run", "data", "logged", "log.csv", "sweep.toml", "locked/x", "file/x",
    "run/config.json", "null", "full", "pipe", "loop", "run/../data", ".", "", " ", "☃", "\udcff", "y" * 300,
    "new", "new/below", "[/red]", "-", "~", "a\nb",
)  # fmt: skip
NUMBERS = ("-1", "0", "1", "2", "3", "-0", "1.5", "nan", "inf", "-inf", "1e308", "-1e-320", "1e999", "½", "1_0")
HUGE = ("10000000000000", str(2**63), str(-(2**63)), str(10**400), "9" * 5000)
WORDS = ("click", "minutes", "wood", "fish", "time", "1", "2", "fixed", "min-norm", "1/t", "table", "mlp")

START = {
    "train": "fishwood-v0 --iterations 2 --num-evaluations 1 --num-critic-steps 1 --critic-batch-size 2"
             " --actor-batch-size 2 --out new",
    "resume": "run --iterations 5",
    "explore": "fishwood-v0 --preferences 2 --rules fixed --entropy 0 --iterations 2 --num-evaluations 1"
               " --num-critic-steps 1 --critic-batch-size 2 --actor-batch-size 2 --out new",
    "choose": "archive --prefer wood",
    "front": "fishwood-v0 --discount 0.5",
    "evaluate": "run --episodes 1",
    "certify": "run --episodes 80",
    "compare": "run other",
    "watch": "run --episodes 1",
    "export": "run",
    "theory": "fishwood-v0 --epsilon 0.1",
    "reproduce": "unknown --quick",
    "sweep": "sweep.toml --executor serial --out new",
    "report": "run",
    "envs": "",
    "docs": "rules",
    "data build": "log.csv --signals click,minutes --actions 5 --threads 1 --out new",
    "data describe": "data",
    "data kuairand download": "unknown --out new",
    "data kuairand build": "file --out new",
    "data kuairand generate": "--rows 50 --out new",
    "offline train": "data --show-config --out new",
    "offline compare": "missing --quick --out new",
    "offline score": "logged --data data --out new.csv",
    "offline recommend": "logged --data data --user 1",
}  # fmt: skip
"""Words with which a command does its work, in little time and without a network."""
COMPILED = ("train", "explore", "offline train")
"""Commands whose options change the programs that they compile: most lines only ask what they would do."""
KEPT = ("unknown", "missing", "file")
"""Words of `START` that stay, since a right one in their place would take minutes or need a network."""
SELDOM = ("watch", "reproduce", "data kuairand download", "data kuairand build", "offline compare")
SELDOM += ("resume", "certify", "data describe", "sweep")
"""Commands whose words in `START` are refused, or take seconds: they are drawn less often."""
RIGHT = {
    "executor": ("serial",), "workers": ("0",), "threads": ("1",), "sink": ("tensorboard",), "out": ("new", "empty"),
    "data": ("data",), "source": ("run",), "requests": ("missing",), "random": ("off",), "trial": ("0", "1"),
    "preference": ("0.5 0.5",), "reference": ("0 0",), "weights": ("0.5 0.5",), "discount": ("0.5", "0.9 0.5"),
    "actions": ("5",), "split": ("users", "time"), "signals": ("click", "click,minutes"), "shares": ("0.5 0.2 0.3",),
    "momentum": ("1/t", "1"), "features": ("one-hot",), "entropy": ("0", "0.1 0"), "hidden": ("3",), "memory": ("1GB",),
    "protect": ("wood=0", "click=-1%"), "prefer": ("wood", "fish"), "episodes": ("1", "80"), "context": ("1",),
    "preferences": ("2", "0.5,0.5"), "epsilon": ("0.1",), "discounts": ("0.5",), "address": ("auto",),
}  # fmt: skip
"""Valid values of options; all that start no process, need no network and take little time."""


@dataclass(frozen=True)
class Declared:
    """An option of a command: its name, and the type of what follows it."""

    name: str
    kind: Any


def declared(command: type) -> Iterator[Declared]:
    """The options of a command, those of its groups too."""
    hints = get_type_hints(command, include_extras=True)
    for field in fields(command):
        kind, marks = _bare(hints[field.name])
        if is_dataclass(kind):
            yield from declared(kind)
        elif not set(marks).intersection(tyro.conf.Positional[int].__metadata__):
            names = (f"--{field.name.replace('_', '-')}", *ALIASES.get(field.name, ()))
            for name in names:
                yield Declared(name, kind)


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without annotations, and the annotations that can be looked up."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    kind, *marks = get_args(hint)
    return kind, tuple(mark for mark in marks if type(mark).__hash__ is not None)


OPTIONS = {name: tuple(declared(cli._class_of(name))) for name in cli.COMMANDS}


def drawn(rng: Any) -> list[str]:
    """The words of one command: those with which it works, other options of its own, and a few things wrong."""
    name = rng.choice([name for name in cli.COMMANDS for _ in range(1 if name in SELDOM else 4)])
    words = START[name].split()
    count = rng.choice((0, 1, 1, 2, 3))
    for _ in range(count):
        option = rng.choice(OPTIONS[name])
        words += _typed(option.name, _values(option, rng, hostile=rng.random() < 0.25), rng)
    if count and name in COMPILED and rng.random() < 0.9:
        words.append("--show-config")
    if rng.random() < 0.08 and words and words[0] not in KEPT:
        words[0] = rng.choice(PATHS)
    for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 1, 2))):
        words = rng.choice(MISTAKES)(words, rng)
    if rng.random() < 0.3:
        words.insert(rng.randrange(len(words) + 1), "--json")
    return [*name.split(), *words]


def _typed(name: str, values: list[str], rng: Any) -> list[str]:
    """An option as it may be typed: with its values after it, or after an equals sign."""
    name = name.replace("-", "_").replace("__", "--") if rng.random() < 0.1 else name
    if values and rng.random() < 0.3:
        return [f"{name}={values[0]}", *values[1:]]
    return [name, *values]


def _values(option: Declared, rng: Any, hostile: bool) -> list[str]:
    """What follows an option: values of its type, or others."""
    kinds, several = _kinds(option.kind)
    count = rng.choice((1, 1, 2, 3)) if several else 1
    if not hostile and option.name[2:] in RIGHT:
        return rng.choice(RIGHT[option.name[2:]]).split()
    if kinds == [bool]:
        return [rng.choice(TEXTS)] if hostile and rng.random() < 0.3 else []
    if hostile and rng.random() < 0.1:
        return []
    return [_value(option, kinds, rng, hostile) for _ in range(count)]


def _value(option: Declared, kinds: list[Any], rng: Any, hostile: bool) -> str:
    if hostile:
        return rng.choice(PATHS if Path in kinds else NUMBERS + TEXTS + HUGE)
    choices = [kind for kind in kinds if isinstance(kind, str)]
    if choices:
        return rng.choice(choices)
    if Path in kinds:
        return rng.choice(PATHS)
    if float in kinds:
        return rng.choice(("0", "0.1", "0.5", "0.9", "1", "2"))
    if int in kinds:
        return rng.choice(("0", "1", "2", "3", "4"))
    return rng.choice(WORDS)


def _kinds(kind: Any) -> tuple[list[Any], bool]:
    """The simple types that an option takes, with the words of a choice, and whether it takes several."""
    kind, _ = _bare(kind)
    origin = get_origin(kind)
    if origin is Literal:
        return list(get_args(kind)), False
    if origin in (Union, types.UnionType, tuple):
        inner = [_kinds(each) for each in get_args(kind) if each not in (type(None), ...)]
        flat = [each for kinds, _ in inner for each in kinds]
        return flat, origin is tuple or any(several for _, several in inner)
    return [kind], False


def _doubled(words: list[str], rng: Any) -> list[str]:
    place = rng.randrange(len(words) + 1)
    return words[:place] + words[place : place + 2] + words[place:]


def _left_out(words: list[str], rng: Any) -> list[str]:
    place = rng.randrange(len(words) + 1)
    named = {word for word in KEPT if word in words}
    return [word for k, word in enumerate(words) if k != place or word in named]


def _shuffled(words: list[str], rng: Any) -> list[str]:
    place = rng.randrange(len(words) + 1)
    return words[place:] + words[:place]


def _of_another(words: list[str], rng: Any) -> list[str]:
    option = rng.choice(OPTIONS[rng.choice(list(OPTIONS))])
    return [*words, option.name, *_values(option, rng, hostile=True)]


def _inserted(words: list[str], rng: Any) -> list[str]:
    place = rng.randrange(len(words) + 1)
    return [*words[:place], rng.choice(TEXTS), *words[place:]]


MISTAKES = (_doubled, _left_out, _shuffled, _of_another, _inserted)


SPEC = """
env = "fishwood-v0"
trials = 1
[config]
num_iterations = 2
[grid]
actor_step_size = [0.1]
"""


def world(folder: Path) -> Path:
    """What commands may be told: finished runs, an archive, a log and its data, a run on it, files and folders."""
    with contextlib.chdir(folder):
        small = "--iterations 3 --num-critic-steps 1 --critic-batch-size 2 --actor-batch-size 2"
        for name, seed in (("run", 0), ("other", 1)):
            _done(f"train fishwood-v0 {small} --num-evaluations 2 --trials 2 --seed {seed} --out {name}")
        _done(f"explore {START['explore']}".replace("--out new", "--out archive"))
        log_runs.built_run(Path("made"))
        shutil.move("made/data", "data")
        shutil.move("made/run", "logged")
        shutil.rmtree("made")
        rng = np.random.default_rng(0)
        columns = [rng.integers(most, size=200) for most in (20, 8, 1000, 2, 9)]
        rows = "".join(f"{','.join(map(str, row))}\n" for row in zip(*columns, strict=True))
        Path("log.csv").write_text(f"user_id,item_id,time,click,minutes\n{rows}")
        Path("sweep.toml").write_text(
            'env = "fishwood-v0"\ntrials = 1\n[config]\nnum_iterations = 2\n[grid]\nactor_step_size = [0.1]\n'
        )
        Path("file").write_text("text")
        Path("empty").mkdir()
        Path("locked").mkdir(mode=0o500)
        for name, target in {"null": "/dev/null", "full": "/dev/full", "loop": "loop"}.items():
            Path(name).symlink_to(target)
        os.mkfifo("pipe")
    return folder


def _done(line: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if code := cli.main(line.split()):
            raise ValueError(f"moac {line} ended with {code}.")


def copied(world: Path, place: Path) -> None:
    """A world of one's own; pipes and links are made anew."""
    subprocess.run(["cp", "-a", world, place], check=True)


def contents(folder: Path) -> dict[str, int]:
    """The files and folders below a folder, each with when it was changed; locks, which stay, aside."""
    found = (path for path in folder.rglob("*") if not path.name.endswith(".lock"))
    return {str(path.relative_to(folder)): 0 if path.is_dir() else path.lstat().st_mtime_ns for path in found}


class Ending(NamedTuple):
    """How a command ended."""

    code: int | None  # None where it raised
    wrong: str  # what is wrong with it; empty where nothing is


def ended(words: list[str], folder: Path) -> Ending:
    """A command run in a folder."""
    before, out, err = contents(folder), io.StringIO(), io.StringIO()
    try:
        with contextlib.chdir(folder), limited(SECONDS), _captured(out, err):
            code = cli.main(words)
    except SystemExit as end:  # of --help
        return Ending(0, f"SystemExit({end.code})" * bool(end.code))
    except BaseException as error:
        if type(error) is KeyboardInterrupt:
            raise
        return Ending(None, f"{type(error).__name__}: {str(error)[:300]}")
    return Ending(code, _wrong_texts(code, words, out.getvalue(), err.getvalue()) or _wrong_files(code, before, folder))


@contextlib.contextmanager
def _captured(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def _wrong_files(code: int, before: dict[str, int], folder: Path) -> str:
    """What a command should not have left or changed."""
    after = contents(folder)
    if code == 2 and after != before:
        return f"exit code 2, and it changed {sorted(set(after.items()) ^ set(before.items()))[:5]}"
    half = [name for name in after if name.endswith(".tmp")]
    return f"it leaves {half}" if half else ""


def _wrong_texts(code: int, words: list[str], out: str, err: str) -> str:
    """What is wrong with an exit code and what was printed."""
    mine = [line for line in err.splitlines() if line.startswith("moac: ")]
    if "Traceback" in err + out:
        return f"a traceback: {(err + out)[-300:]}"
    if code == 2 and (len(mine) != 1 or not err.endswith(f"{mine[0]}\n") or len(mine[0]) > LONGEST):
        return f"exit code 2, and stderr is {err[-300:]!r}"
    if code not in (0, 2) and not (code == 1 and " ".join(words).startswith(MAY_END_WITH_1)):
        return f"exit code {code}: {err[-300:]}"
    if code != 2 and "--json" in words and not isinstance(_last(out), dict):
        return f"with --json it prints {out[-300:]!r}"
    return ""


def _last(out: str) -> Any:
    """The JSON value of the last line, or None."""
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(out.splitlines()[-1])
    return None


def repeated(words: list[str]) -> str:
    """The line of a shell that runs the command again."""
    return f"python -m tests.fuzz.commands {' '.join(_quoted(word) for word in words)}"


def _quoted(word: str) -> str:
    """A word for a shell; control characters and bytes that are no text as escapes."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", "surrogateescape"))
    return f"$'{escaped}'"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(ended(sys.argv[1:], world(Path(place))))
