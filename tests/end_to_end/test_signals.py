"""Ctrl-C and SIGTERM at random moments of every command that takes a while: one line, nothing torn, and it goes on.

What ends a query of a build in order is in `test_data_command.py`; SIGKILL is in `test_kills.py`.
"""

import random
import signal
import time

import pytest

from moac import files
from tests.end_to_end import test_kills as kills
from tests.helpers.kuairand import generated
from tests.helpers.limits import THOROUGH

pytestmark = pytest.mark.slow
nursery, log = kills.nursery, kills.log
SIGNALS = (signal.SIGINT, signal.SIGTERM) * (10 if THOROUGH else 2)


class Build(kills.Build):
    """A dataset of one's own log; the same command goes on."""

    def order(self, place):
        return {"moac": ["data", "build", *self.arguments, "--out", str(place)]}


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


class InFolder(kills.InFolder):
    """A command that writes into the folder of a run, which it leaves as it was or with all of what it writes."""

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


def test_a_run_on_a_model(nursery, tmp_path):
    stop_and_finish(nursery, kills.Run(*kills.MODEL, *kills.SMALL, *kills.OFTEN), tmp_path)


def test_a_run_on_an_environment(nursery, tmp_path):
    arguments = [*kills.REAL, *kills.EPISODES, *kills.SMALL, *kills.OFTEN]
    stop_and_finish(nursery, kills.RunInEpisodes(*arguments), tmp_path)


def test_a_run_of_ppo(nursery, tmp_path):
    stop_and_finish(nursery, kills.Run("train", "fishwood-v0", "--iterations", "40", *kills.PPO), tmp_path)


def test_an_exploration(nursery, tmp_path):
    stop_and_finish(nursery, kills.Exploration(*kills.NETWORK), tmp_path)


def test_a_sweep(nursery, tmp_path):
    (tmp_path / "spec.toml").write_text(kills.SWEEP)
    stop_and_finish(nursery, kills.Sweep(str(tmp_path / "spec.toml"), "--executor", "serial"), tmp_path)


COLUMNS = ["--user", "user_id", "--item", "video_id", "--time", "time_ms", "--signals", "is_click", "--actions", "20"]


def test_a_build_of_kuairand(nursery, tmp_path):
    source = generated(tmp_path, rows=20_000, num_users=800)
    stop_and_finish(nursery, kills.Build(str(source)), tmp_path)


def test_a_build_of_a_log_of_ones_own(nursery, tmp_path):
    source = generated(tmp_path, rows=20_000, num_users=800)
    logs = sorted(str(path) for path in (source / "data").glob("log_standard*.csv"))
    stop_and_finish(nursery, Build(*logs, *COLUMNS), tmp_path)


def test_a_simulation(nursery, tmp_path):
    stop_and_finish(nursery, Folder("data", "kuairand", "generate", "--rows", "100000"), tmp_path)


def test_candidates_trained_on_a_log(nursery, log, tmp_path):
    stop_and_finish(nursery, kills.Menu(str(log), *kills.MENU, *kills.SMALL), tmp_path)


def test_a_comparison_on_a_log(nursery, log, tmp_path):
    stop_and_finish(nursery, kills.Comparison(str(log), *kills.COMPARISON), tmp_path)


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
    "resume": ("resume", "--iterations", "600", *kills.OFTEN),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_run(command, nursery, run, tmp_path):
    stop_and_finish(nursery, InFolder(run, *COMMANDS[command]), tmp_path)
