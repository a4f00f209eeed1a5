"""A run that was stopped, in whatever way, ends as one that was not."""

import json
import shutil
import signal
import subprocess
import time

import pytest

from moac.cli.main import main
from tests.end_to_end.conftest import MOAC, TRAIN, assert_same_run


def start(out, environment):
    return subprocess.Popen(
        [*MOAC, *TRAIN, "--out", str(out)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(process, reached):
    """Until the run has got so far; it must not end before."""
    deadline = time.monotonic() + 240
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def checkpoints(run):
    return sorted((run / "checkpoint").glob("[0-9]*.safetensors"))


def stop(run, environment, signal_number, reached):
    process = start(run, environment)
    wait_for(process, reached)
    process.send_signal(signal_number)
    return process.communicate(timeout=120), process.returncode


def kill_and_resume(run, moac, environment, finished, reached):
    _, code = stop(run, environment, signal.SIGKILL, reached)
    assert code == -signal.SIGKILL
    assert not (run / "policy.safetensors").exists()
    done = moac("resume", run, "--json")
    assert done.returncode == 0, done.stderr
    assert_same_run(run, finished.path)
    return done


@pytest.mark.slow
def test_killed_in_the_middle(moac, environment, finished, tmp_path):
    run = tmp_path / "run"
    done = kill_and_resume(run, moac, environment, finished, lambda: len(checkpoints(run)) >= 2)
    summary = json.loads(done.stdout)
    same = ("env", "trials", "iterations", "env_steps", "returns", "returns_interval", "weights", "stationarity_gap")
    assert {name: summary[name] for name in same} == {name: finished.summary[name] for name in same}
    assert " continues after iteration " in done.stderr
    assert " continues after iteration 0 " not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "checkpoint/*001.safetensors", "checkpoint/*[0-9]9*.safetensors"])
def test_killed_early_and_late(name, moac, environment, finished, tmp_path):
    run = tmp_path / "run"
    kill_and_resume(run, moac, environment, finished, lambda: any(run.glob(name)))


@pytest.mark.slow
def test_killed_again_and_again(moac, environment, finished, tmp_path):
    run = tmp_path / "run"
    process, kills = start(run, environment), 0
    while process.poll() is None and kills < 5:
        before = checkpoints(run)[-1:]
        wait_for(process, lambda before=before: checkpoints(run)[-1:] != before)
        time.sleep(0.003 * kills)
        process.kill()
        process.communicate(timeout=60)
        kills += 1
        process = subprocess.Popen([*MOAC, "resume", str(run), "--json", "--checkpoint-every", "0"], env=environment)
    assert process.wait(timeout=240) == 0
    assert kills == 5
    assert_same_run(run, finished.path)


def test_interrupted_by_ctrl_c(environment, tmp_path):
    run = tmp_path / "run"
    (out, err), code = stop(run, environment, signal.SIGINT, lambda: len(checkpoints(run)) >= 1)
    assert code == 130
    assert out == ""
    assert err.splitlines()[-2].startswith("stopping ")
    assert err.splitlines()[-1] == f"moac: stopped; continue with: moac resume {run}"
    assert "Traceback" not in err
    assert checkpoints(run)
    assert not (run / "policy.safetensors").exists()


@pytest.mark.slow
def test_interrupted_run_is_resumed(moac, environment, finished, tmp_path):
    run = tmp_path / "run"
    stop(run, environment, signal.SIGINT, lambda: len(checkpoints(run)) >= 2)
    assert moac("resume", run).returncode == 0
    assert_same_run(run, finished.path)


@pytest.mark.slow
def test_interrupted_before_the_first_iteration(moac, environment, finished, tmp_path):
    run = tmp_path / "run"
    (_, err), code = stop(run, environment, signal.SIGINT, (run / "config.json").exists)
    assert code == 130
    assert "Traceback" not in err
    assert moac("resume", run).returncode == 0
    assert_same_run(run, finished.path)


def test_finished_run_is_shown_again(finished, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.path.rglob("*")}
    assert main(["resume", str(finished.path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"{finished.path} has finished: nothing to resume. ")
    fresh = {"seconds": 0.0, "env_steps_per_second": 0.0}
    assert json.loads(out) == finished.summary | fresh
    assert {path: path.stat().st_mtime_ns for path in finished.path.rglob("*")} == before


def test_finished_run_as_text(finished, capsys):
    assert main(["resume", str(finished.path)]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("resource-gathering-v0\n")
    assert "9 independent policies for 400 iterations" in out
    assert out.splitlines()[-2:] == [f"report: {finished.path / 'report.html'}", f"next: moac evaluate {finished.path}"]


def edit(run, change):
    path = run / "config.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def refused(run, capsys):
    names = sorted(run.rglob("*"))
    assert main(["resume", str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert sorted(run.rglob("*")) == names
    return err.removeprefix("moac: ").strip().replace(str(run), "RUN")


def test_last_files_are_written_anew(unfinished, finished, capsys):
    stale = unfinished / "checkpoint" / ".0000000400.safetensors.1.tmp"
    stale.write_bytes(b"half")
    assert main(["resume", str(unfinished), "--json"]) == 0
    assert_same_run(unfinished, finished.path)
    assert (unfinished / "figures" / "training.png").exists()


@pytest.mark.slow
def test_damaged_checkpoint_falls_back_to_the_one_before(unfinished, finished, moac):
    last = checkpoints(unfinished)[-1]
    last.write_bytes(last.read_bytes()[:-100])
    assert moac("resume", unfinished).returncode == 0
    assert_same_run(unfinished, finished.path)


@pytest.mark.parametrize("keep", [0, 5, 1000])
def test_all_checkpoints_truncated(keep, unfinished, capsys):
    for path in checkpoints(unfinished):
        path.write_bytes(path.read_bytes()[:keep])
    message = refused(unfinished, capsys)
    assert message.startswith("RUN/checkpoint/0000000400.safetensors is damaged: ")
    assert message.endswith("Delete RUN/checkpoint/*.safetensors to start the run over.")


def test_not_a_run(tmp_path, capsys):
    assert refused(tmp_path, capsys) == "RUN is not a run directory: it has no config.json."
    assert refused(tmp_path / "nothing", capsys) == "RUN is not a run directory: it has no config.json."
    (tmp_path / "begun" / "rules").mkdir(parents=True)
    hint = "It is an exploration that was stopped: repeat the command to continue it."
    assert refused(tmp_path / "begun", capsys) == f"RUN is not a run directory: it has no config.json. {hint}"
    (tmp_path / "candidates" / "menu").mkdir(parents=True)
    assert "a set of candidates that was stopped" in refused(tmp_path / "candidates", capsys)
    (tmp_path / "candidates" / "choice.json").write_text("{}")
    assert "none was chosen" in refused(tmp_path / "candidates", capsys)
    (tmp_path / "candidates" / "choice.json").write_text('{"chosen": "pull 0.3"}')  # the disk was full then
    line = refused(tmp_path / "candidates", capsys)
    assert "pull 0.3 was chosen but not copied: repeat the command to continue it." in line
    for name in "abcdef":
        (tmp_path / "several" / name).mkdir(parents=True)
        (tmp_path / "several" / name / "config.json").write_text("{}")
    assert refused(tmp_path / "several", capsys).endswith("no config.json. It holds runs: a, b, c, d, e, ….")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "RUN/config.json is damaged: Expecting value"),
        ('{"format": 1', "RUN/config.json is damaged: Expecting ',' delimiter"),
        ("[1, 2]", "RUN/config.json is damaged: it has no format number."),
        ('{"format": 1}', "RUN/config.json is damaged: `problem` is missing or not of type dict."),
        ('{"format": 99}', "RUN/config.json has format 99, newer than 1: update moac to read it."),
    ],
)
def test_damaged_config(text, message, unfinished, capsys):
    (unfinished / "config.json").write_text(text)
    assert refused(unfinished, capsys).startswith(message)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("critic_batch_size", 16, "was edited after the run began: `config.critic_batch_size` is 16, was 8. Put it "),
        ("num_iterations", 300, "was edited after the run began: `config.num_iterations` is 300, was 400. Put it "),
        ("actor_batch_size", 0, "is wrong: `actor_batch_size` must be a whole number of at least 1, got 0."),
        ("actor_step_size", "big", "is wrong: `actor_step_size` must be positive and finite, got 'big'."),
        ("momentum", 3, "is wrong: `momentum` must be a text, one of 1/t, "),
        ("setting", {"name": "total"}, "is wrong: `setting` must be average or discounted with its discount"),
        ("colour", "red", "is wrong: `colour` is not a field of the configuration; known are setting, "),
    ],
)
def test_edited_config(field, value, message, unfinished, capsys):
    edit(unfinished, lambda data: data["config"].update({field: value}))
    assert refused(unfinished, capsys).startswith(f"RUN/config.json {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 4}, "was edited after the run began: `trials` is 4, was 9."),
        ({"seed": 8}, "was edited after the run began: `seed` is 8, was 7."),
        ({"trials": "three"}, "is damaged: `trials` is missing or not of type int."),
        ({"trials": 0}, "is damaged: `trials` must be a whole number of at least 1, got 0."),
        ({"problem": {}}, "is damaged: `problem.name` is missing"),
    ],
)
def test_edited_run(change, message, unfinished, capsys):
    edit(unfinished, lambda data: data.update(change))
    assert refused(unfinished, capsys).startswith(f"RUN/config.json {message}")


def test_edited_config_of_a_finished_run(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished.path, run)
    edit(run, lambda data: data["config"].update(actor_step_size=1.0))
    assert "`config.actor_step_size` is 1.0, was " in refused(run, capsys)


def test_another_problem(unfinished, capsys):
    edit(unfinished, lambda data: data["problem"].update(env="fishwood-v0"))
    assert refused(unfinished, capsys) == (
        "RUN was trained on another problem than fishwood-v0: the fingerprints differ."
    )
