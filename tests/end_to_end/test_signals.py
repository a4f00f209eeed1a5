"""Ctrl-C and SIGTERM at random moments of commands on what is finished: one line, nothing torn, and they go on.

What ends a query of a build in order is in `test_data_command.py`; SIGKILL is in `test_kills.py`.
"""

import random
import shutil
import signal
import time

import pytest

from moac import files
from tests.end_to_end import test_kills as kills
from tests.helpers.limits import THOROUGH

pytestmark = pytest.mark.slow
nursery = kills.nursery
SIGNALS = (signal.SIGINT, signal.SIGTERM) * (10 if THOROUGH else 2)


class Folder(kills.Run):
    """A command that writes a folder or a file, wholly or not at all; the same command begins anew."""

    shown_again = False

    def order(self, place):
        return {"moac": [*self.arguments, "--out", str(place)]}

    def ended(self, place):
        return place.exists()

    def check(self, place):
        assert not list(place.parent.rglob("*.tmp"))
        assert [path.name for path in place.parent.glob(f".{place.name}*")] == []

    def compare(self, place, whole):
        assert [path.relative_to(place) for path in sorted(place.rglob("*"))] == [
            path.relative_to(whole) for path in sorted(whole.rglob("*"))
        ]


class InFolder(kills.Run):
    """A command that writes into the folder of a run, which it leaves as it was or with all of what it writes."""

    def __init__(self, run, *arguments):
        super().__init__(*arguments)
        self.run = run

    def order(self, place):
        if not place.exists():
            shutil.copytree(self.run, place)
        command, *options = self.arguments
        return {"moac": [command, str(place), *options]}

    def check(self, place):
        super().check(place)
        assert not list(place.rglob("*.tmp"))
        for path in place.glob("*.json"):
            files.read_json(path)

    def compare(self, place, whole):
        names = [{str(path.relative_to(each)) for path in each.rglob("*")} for each in (place, whole)]
        assert names[0] == names[1]


def stopped(nursery, order, seconds, number):
    """Run it for a while; it ends in time with the code of the signal, or had ended before, and prints no traceback."""
    before = nursery.log.stat().st_size if nursery.log.exists() else 0
    nursery.start(order)
    time.sleep(seconds)
    nursery.kill(number)
    code = nursery.wait()
    said = nursery.log.read_bytes()[before:].decode()
    assert code in (0, 128 + number), said
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def stop_and_finish(nursery, driver, folder):
    """Once by every signal at a random moment; each folder is then finished and compared with an undisturbed one."""
    moments, whole = random.Random(len(SIGNALS)), folder / "whole" / "out"
    for place in (whole, folder / "timed" / "out"):
        place.parent.mkdir()
        seconds = kills.finished(nursery, driver.order(place))
    for k, number in enumerate(SIGNALS):
        place = folder / f"run-{k}" / "out"
        place.parent.mkdir()
        stopped(nursery, driver.order(place), moments.uniform(0.02, 0.98) * seconds, number)
        driver.check(place)
        if driver.shown_again or not driver.ended(place):
            kills.finished(nursery, driver.order(place))
        driver.compare(place, whole)


def test_a_simulation(nursery, tmp_path):
    stop_and_finish(nursery, Folder("data", "kuairand", "generate", "--rows", "100000"), tmp_path)


@pytest.fixture(scope="module")
def run(nursery, tmp_path_factory):
    """A finished run."""
    made = kills.Run(*kills.MODEL, *kills.SMALL)
    place = tmp_path_factory.mktemp("finished") / "run"
    kills.finished(nursery, made.order(place))
    return place


COMMANDS = {
    "certify": ("certify", "--episodes", "4000"),
    "evaluate": ("evaluate", "--episodes", "200", "--trial", "0"),
    "report": ("report",),
    "watch": ("watch", "--episodes", "1"),
    "export": ("export",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_run(command, nursery, run, tmp_path):
    stop_and_finish(nursery, InFolder(run, *COMMANDS[command]), tmp_path)
