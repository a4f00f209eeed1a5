"""Public functions with hostile values among valid ones: each call ends with a result or with one clear line.

The functions and their arguments are those of the real signatures. A failure is told as the line of Python that
repeats it in the namespace of `calls.world`; MOAC_FUZZ_SEED draws other calls.
"""

from __future__ import annotations

import os
import random
import re
import warnings

import pytest

from tests.fuzz import calls
from tests.helpers.limits import THOROUGH, limited

SECONDS = 60
"""That one call may take; most take milliseconds."""
LONGEST = 2000
"""Letters of a message."""
SEED = os.environ.get("MOAC_FUZZ_SEED", "0")
MANY = 20_000 if THOROUGH else 5_000
"""Calls of the slow suite."""
OWN = {"policy": "the policy", "learned": "the policy", "archive": "archive", "log": "log "}
"""What a message says that is about the object whose method was called."""


def complaint(line, known, names):
    """What is wrong with how a call ended; empty where nothing is."""
    try:
        with warnings.catch_warnings(), limited(SECONDS):
            warnings.simplefilter("ignore")
            eval(line, dict(names))
    except (ValueError, TypeError) as error:
        return wrong_message(str(error), line, known)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def wrong_message(text, line, known):
    """What is wrong with a message; empty where it is one line that names an argument, or begins with its text."""
    if "\n" in text or not text.strip():
        return f"not one line: {text[:400]!r}"
    if len(text) > LONGEST:
        return f"{len(text)} letters: {text[:200]}"
    quoted = re.findall(r"[`'](\w[\w.\[\]]*)[`']", text)
    named = {*known, *map(str.upper, known)}.intersection(word.split(".")[0].split("[")[0] for word in quoted)
    texts = tuple(re.findall(r"'([^'\\]+)'", line))
    owner = OWN.get(line.partition(".")[0])
    about_value = bool({*quoted} & {*texts}) or text.startswith(texts) or text.split()[0] in re.split(r"[(),= ]+", line)
    if named or about_value or (owner and owner in text):
        return ""
    return f"names no argument: {text[:300]}"


def fuzz_calls(count, folder, seed):
    """Draw calls; the complaints, each with the line that repeats it."""
    rng, names = random.Random(seed), calls.world(folder)
    targets = calls.targets(names)
    complaints = []
    for _ in range(count):
        path = rng.choice(list(targets))
        line, arguments = calls.one_call(path, targets[path], rng)
        wrong = complaint(line, arguments, names)
        if wrong:
            complaints.append(f"{line}\n    {wrong}")
    return complaints


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with folders around it, where a call may write."""
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


def test_a_few_calls(place):
    complaints = fuzz_calls(300, place, SEED)
    assert not complaints, "\n".join(complaints)


@pytest.mark.slow
def test_many_calls(place):
    complaints = fuzz_calls(MANY, place, f"many {SEED}")
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("`size` must be 3, got 2.", ""),
        ("`size.width` must be 3, got 2.", ""),
        ("f() missing 1 required positional argument: 'size'", ""),
        ("runs/a is not a run directory.", ""),
        ("`other` must be 3, got 2.", "names no argument"),
        ("list index out of range", "names no argument"),
        ("`size` must be\n3, got 2.", "not one line"),
        (" ", "not one line"),
        ("`size` must be 3, got " + "x" * 3000, "3022 letters"),
    ],
)
def test_a_message_is_one_line_that_names_an_argument(message, told):
    """A fuzzer that complains of nothing finds nothing."""
    found = wrong_message(message, "f('runs/a', size=2)", {"size"})
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_another_error_than_those_is_a_complaint():
    assert complaint("[][1]", set(), {}) == "IndexError: list index out of range"
    assert complaint("1 + 1", set(), {}) == ""
