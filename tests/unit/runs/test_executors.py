"""Serial and process executors: the same outcomes, whatever a task does. Ray's are in end_to_end/test_cluster.py."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from moac import tasks as vocabulary
from moac.offline import ncis
from moac.runs import executors
from moac.runs.executors import Limits
from tests.helpers import tasks
from tests.helpers.shards import parts_of_a_log

WRONG = {
    "raises": ("raised", "ZeroDivisionError: no road"),
    "awkward": ("raised", "AwkwardError: 1 and 2"),
    "hangs": ("timeout", "it ran longer than 3 s."),
    "eats": ("memory", "it used more than 300 MB."),
    "killed": ("lost", "its process was ended by SIGKILL, as the kernel does when memory runs out."),
    "exits": ("lost", "its process ended with exit code 3."),
    "leaves": ("lost", "its process ended with exit code 4."),
}
FINE = ["fine", "prints", "fine"]


def test_every_failure_is_reported_and_the_rest_ends(capfd):
    items = [*WRONG, *FINE]
    limits = Limits(timeout=3.0, memory=300_000_000, retries=1)
    with executors.opened("process", workers=2, limits=limits) as process:
        outcomes = {outcome.index: outcome for outcome in process.map(tasks.misbehave, items)}
    assert sorted(outcomes) == list(range(len(items)))
    for index, how in enumerate(items):
        failure = outcomes[index].failure
        assert (outcomes[index].value, failure) == (how, None) if how in FINE else outcomes[index].value is None
        assert how in FINE or (failure.kind, failure.message) == WRONG[how]
    assert "misbehave" in outcomes[0].failure.trace
    assert isinstance(outcomes[0].failure.error, ZeroDivisionError)
    assert outcomes[1].failure.error is None
    assert capfd.readouterr().out == ""


def test_serial_tells_the_same_of_what_it_can_survive():
    for name in ("serial", "process"):
        with executors.opened(name) as executor:
            outcomes = {outcome.index: outcome for outcome in executor.map(tasks.misbehave, ["raises", "fine"])}
        assert (outcomes[0].failure.kind, outcomes[0].failure.message) == WRONG["raises"]
        assert (outcomes[1].value, outcomes[1].failure) == ("fine", None)


def test_a_lost_process_is_replaced_and_its_task_tried_again(tmp_path):
    with executors.opened("process", workers=1) as process:
        assert executors.results(process.map(tasks.killed_once, [tmp_path / "mark"])) == ["second"]


def test_results_are_in_order_and_the_first_failure_is_raised_as_it_was(tmp_path):
    with executors.opened("process", workers=2) as process:
        assert executors.results(process.map(tasks.square, list(range(7)))) == [0, 1, 4, 9, 16, 25, 36]
        with pytest.raises(FileNotFoundError) as caught:
            executors.results(process.map(tasks.refuses, [tmp_path / "log"]))
        assert (caught.value.errno, caught.value.filename) == (2, str(tmp_path / "log"))
        with pytest.raises(executors.TaskFailedError, match="1 and 2"):
            executors.results(process.map(tasks.misbehave, ["awkward"]))
        (outcome,) = process.map(lambda item: item, [1])
        assert (outcome.failure.kind, outcome.value) == ("raised", None)
        assert "pickle" in outcome.failure.message
        assert list(process.map(tasks.square, [])) == []


def test_workers_are_others_with_one_thread_each_and_this_process_keeps_its_own():
    before = dict(os.environ)
    with executors.opened("process", workers=2) as process:
        seen = executors.results(process.map(tasks.variables, [0, 1]))
        numbers = executors.results(process.map(tasks.process, list(range(6))))
    assert all(one["OMP_NUM_THREADS"] == one["NPROC"] == "1" for one in seen)
    assert all("multi_thread_eigen=false" in one["XLA_FLAGS"] for one in seen)
    assert os.getpid() not in numbers
    assert len(set(numbers)) <= 2
    assert not any(_alive(number) for number in numbers)
    assert dict(os.environ) == before


def _alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def _gone(number):
    """Whether a process ends within some seconds."""
    until = time.monotonic() + 20
    while _alive(number) and time.monotonic() < until:
        time.sleep(0.02)
    return not _alive(number)


def _written(path):
    until = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    return int(path.read_text())


def test_leaving_early_ends_what_runs(tmp_path):
    with executors.opened("process", workers=2) as process:
        outcomes = process.map(tasks.misbehave_or_wait, [tmp_path / "who", "fine"])
        assert next(outcomes).value == "fine"
        number = _written(tmp_path / "who")
        assert executors.results(process.map(tasks.square, [1, 2, 3])) == [1, 4, 9]
        assert not _alive(number)
        next(process.map(tasks.misbehave_or_wait, [tmp_path / "again", "fine"]))
        number = _written(tmp_path / "again")
    assert not _alive(number)


def test_a_task_that_is_stopped_may_write_its_checkpoint_and_one_that_ignores_it_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "_GRACE", 1.5)
    polite, rude = tmp_path / "polite", tmp_path / "rude"
    with executors.opened("process", workers=3) as process:
        next(process.map(tasks.interrupted, [polite, rude, None]))
        numbers = [_written(polite), _written(rude)]
        began = time.monotonic()
    assert time.monotonic() - began < 30
    assert polite.read_text() == "checkpoint"
    assert not any(_alive(number) for number in numbers)


ABANDONED = """
import gc, sys, threading
from moac.runs import executors
from tests.helpers import tasks

begin = threading.Thread.__init__

def collecting(self, *arguments, **options):
    gc.collect()
    begin(self, *arguments, **options)

def abandon(executor):
    outcomes = executor.map(tasks.square, range(4))
    next(outcomes)
    cycle = [outcomes]
    cycle.append(cycle)

if __name__ == "__main__":
    gc.disable()
    threading.Thread.__init__ = collecting
    with executors.opened("process", workers=2) as executor:
        abandon(executor)
        sys.stderr.write(f"{executors.results(executor.map(tasks.square, range(5)))}")
"""


def test_a_map_that_is_collected_while_a_thread_starts_does_not_hang(tmp_path):
    """The thread that collects it holds the locks of the pool which starts the thread."""
    script = tmp_path / "abandoned.py"
    script.write_text(ABANDONED)
    path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stderr == "[0, 1, 4, 9, 16]"


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = (
        "import sys; from pathlib import Path; from moac.runs import executors; from tests.helpers import tasks\n"
        "with executors.opened('process', workers=1) as process: list(process.map(tasks.forever, [Path(sys.argv[1])]))"
    )
    driver = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "who")])
    number = _written(tmp_path / "who")
    driver.kill()
    driver.wait()
    assert _gone(number)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "threads"}, "`executor` must be one of serial, process, ray, got 'threads'"),
        ({"name": "process", "workers": 0}, "`workers` must be at least 1"),
        ({"name": "serial", "workers": 2}, "`workers` must be left out with the serial executor"),
        ({"name": "process", "address": "auto"}, "`address` must be left out with the process executor"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message), executors.opened(**options):
        pass


def test_limits_are_checked():
    for wrong in ({"timeout": 0.0}, {"timeout": float("inf")}, {"memory": 0}, {"retries": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Limits(**wrong)
    with (
        pytest.raises(ValueError, match="`timeout` must be left out with the serial executor"),
        executors.opened("serial", limits=Limits(timeout=1.0)),
    ):
        pass


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"needs ray: pip install 'moac\[cluster\]'"), executors.opened("ray"):
        pass


def test_without_a_cluster_on_this_machine_one_line_says_so(monkeypatch):
    """With a module in Ray's place; the real one is in end_to_end/test_cluster.py."""

    def init(address, **_):
        raise ConnectionError(f"no instance\nat {address}")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with (
        executors.opened("ray") as executor,
        pytest.raises(ValueError, match=r"cluster answers at auto \(start one .*: no instance"),
    ):
        list(executor.map(tasks.square, [1]))


def test_a_size_is_read_in_bytes_and_a_process_has_one():
    assert vocabulary.size("memory", "1.5 GB") == 1_500_000_000
    assert vocabulary.size("memory", "2MiB") == 2 * 2**20
    with pytest.raises(ValueError, match="`memory` must be a size such as 2GB, got 'much'"):
        vocabulary.size("memory", "much")
    assert vocabulary.resident(os.getpid()) > 10_000_000
    assert vocabulary.resident(2**22 + 1) == 0


def test_shards_of_an_estimate_are_summed_where_the_executor_runs(tmp_path):
    arrays, parts = parts_of_a_log(tmp_path)
    log = ncis.Logged.of(arrays["user"], arrays["reward"], arrays["propensity"])
    whole = ncis.analyse(ncis.accumulate(log, {"mine": arrays["policy"]})).as_dict()
    with executors.opened("process", workers=2) as process:
        for executor in (executors.Serial(), process):
            shards = executors.results(executor.map(tasks.sums_of_part, parts))
            assert ncis.analyse(ncis.total(shards)).as_dict() == whole
    with pytest.raises(ValueError, match="`shards` must hold at least one part"):
        ncis.total([])
