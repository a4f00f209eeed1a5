"""`moac sweep` on this machine: the same files whatever runs it, nothing twice, failures told."""

import csv
import json
import math
import os
import shutil
import tomllib

import pytest

import moac
from moac.cli import main as cli
from moac.runs import directory, executors
from tests.helpers import sweeps

SPEC = """
trials = 2
[config]
weighting = "uniform"
num_iterations = 6
num_critic_steps = 1
critic_batch_size = 4
actor_batch_size = 4
num_evaluations = 2
[stepping]
num_envs = 2
evaluation_episodes = 2
[grid]
env = ["tests.helpers.misbehaving:Well-v0", "tests.helpers.misbehaving:Raises-v0"]
seed = [0, 1]
"""
"""One environment that is well and one that raises; seeds share one compiled program."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "tiny.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def serial(path):
    """The sweep's folder, made by the serial executor in this process, and what failed."""
    out = path.parent / "serial"
    return out, sweeps.run(path, out)


@pytest.fixture
def kept_environment(monkeypatch):
    """The command sets variables for the processes that it starts."""
    before = dict(os.environ)
    monkeypatch.setenv("MOAC_CACHE", "off")
    yield
    os.environ.clear()
    os.environ.update(before)


def test_processes_write_what_serial_writes(path, serial):
    out = path.parent / "process"
    with executors.opened("process", workers=1) as process:
        failed = sweeps.run(path, out, process)
    assert {label: failure.message for label, failure in failed.items()} == {
        label: failure.message for label, failure in serial[1].items()
    }
    assert sweeps.contents(out) == sweeps.contents(serial[0])


def test_a_sweep_in_memory_ends_as_in_a_folder_and_is_saved_alike(serial, tmp_path):
    swept = moac.sweep(tomllib.loads(SPEC) | {"name": "tiny"})
    assert repr(swept) == f"Swept(tiny: 4 tasks, 2 failed, {len(swept.best)} best)" and swept.best
    assert [row["status"] for row in swept.table] == ["done", "done", "failed", "failed"]
    assert sweeps.contents(swept.save(tmp_path / "saved")) == sweeps.contents(serial[0])


def test_a_failure_is_told_and_the_rest_ends(serial):
    out, failed = serial
    assert [label.split("misbehaving:")[1] for label in failed] == ["Raises-v0, seed = 0", "Raises-v0, seed = 1"]
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [row["status"] for row in rows] == ["done", "done", "failed", "failed"]
    for row, failure in zip(rows[2:], failed.values(), strict=True):
        assert "no road" in failure.message
        assert row["error"] == failure.message
        note = json.loads((out / "errors" / f"{row['task']}.json").read_text())
        assert (note["kind"], note["message"]) == ("raised", failure.message)
    assert "no road" in (out / "report.html").read_text()


def test_the_table_says_what_the_runs_say(serial):
    rows = [row for row in csv.DictReader((serial[0] / "results.csv").read_text().splitlines()) if not row["error"]]
    told = json.loads((serial[0] / "results.json").read_text())["tasks"]
    for row, also in zip(rows, told[:2], strict=True):
        run = directory.read(serial[0] / "tasks" / row["task"])
        assert run.description["seed"] == int(row["seed"]) == also["seed"]
        for i, name in enumerate(run.objectives):
            mean = run.history.returns[:, -1, i].mean()
            assert math.isclose(float(row[f"return {name}"]), mean, rel_tol=1e-12)
            assert also[f"return {name}"] == float(row[f"return {name}"])
        assert (row["trials"], row["iterations"], row["returns_kind"], row["gap"]) == ("2", "6", "episodes", "")
    points = [[float(row[f"return objective {i}"]) for i in (1, 2)] for row in rows]
    for row, mine, other in zip(rows, points, reversed(points), strict=True):
        assert row["dominated"] == str(mine != other and all(b >= a for a, b in zip(mine, other, strict=True)))


def test_a_rerun_does_only_what_is_missing(path, serial):
    out, failed = serial
    before, files = sweeps.finished(out), sweeps.contents(out)
    stopped = next(iter(before))
    (out / "tasks" / stopped / "policy.safetensors").unlink()  # as if it had been killed before its end
    assert sweeps.run(path, out).keys() == failed.keys()  # what failed is tried again
    after = sweeps.finished(out)
    assert {key for key in after if after[key] != before[key]} == {stopped}
    assert sweeps.contents(out) == files


def test_a_task_killed_while_it_began_is_started_again(path, serial):
    out, (key, *_) = serial[0], sweeps.finished(serial[0])
    files = sweeps.contents(out)
    shutil.rmtree(out / "tasks" / key)
    (out / "tasks" / key / "checkpoint").mkdir(parents=True)  # and no config.json yet
    sweeps.run(path, out)
    assert sweeps.contents(out) == files


class Nothing:
    """Has nothing to do."""

    def map(self, function, items):  # noqa: ARG002 - an executor's
        assert not items
        return iter(())


def test_cells_of_one_configuration_are_one_task_and_another_file_keeps_it(path, serial):
    twice = path.parent / "twice.toml"
    text = SPEC.replace(', "tests.helpers.misbehaving:Raises-v0"', "")
    twice.write_text(text.replace("[grid]", '[methods]\na = {}\nb = { momentum = "1/t" }\n[grid]'))
    before = sweeps.finished(serial[0])
    assert sweeps.run(twice, serial[0], executor=Nothing()) == {}
    assert sweeps.finished(serial[0]) == before
    assert len((serial[0] / "results.csv").read_text().splitlines()) == 5


def test_a_folder_that_machines_do_not_share_is_told(path, tmp_path):
    class Elsewhere:
        def map(self, function, items):  # noqa: ARG002 - an executor's
            return (executors.Outcome(index, None) for index in range(len(items)))

    failed = sweeps.run(path, tmp_path / "out", Elsewhere())
    assert {failure.message for failure in failed.values()} == {
        "it finished on another machine: `out` must be a folder that all machines share."
    }


def test_the_command_says_what_failed_and_ends_with_1(path, serial, capsys, kept_environment):
    arguments = ["sweep", str(path), "--executor", "serial", "--out", str(serial[0])]
    assert cli.main([*arguments, "--json"]) == 1
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["tasks"], told["finished"], told["failed"], told["finished_before"]) == (4, 2, 2, 2)
    assert "2 of 4 tasks had finished before\n" in shown.err
    assert all("no road" in failure["error"] for failure in told["failures"])
    assert cli.main(arguments) == 1
    assert "2 of 4 tasks failed; repeat the command to try them again" in capsys.readouterr().out
    assert cli.main(["report", str(serial[0])]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.toml"], "nowhere.toml: No such file or directory."),
        (["{spec}", "--executor", "threads"], "`--executor` must be one of serial, process, ray, got 'threads'."),
        (["{spec}", "--executor", "serial", "--timeout", "3"], "`timeout` must be left out with the serial executor"),
        (["{spec}", "--memory", "much"], "`memory` must be a size such as 2GB, got 'much'."),
        (["{spec}", "--address", "auto"], "`address` must be left out with the process executor"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, path, capsys, kept_environment):
    assert cli.main(["sweep", *(argument.format(spec=path) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
