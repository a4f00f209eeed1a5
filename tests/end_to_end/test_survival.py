"""A full disk, a folder that cannot be written, another process, a signal: one clear line, and nothing is lost."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from moac import files
from moac.cli.main import main
from moac.runs.directory import RunDirectory
from tests.end_to_end.conftest import MOAC, TRAIN, assert_same_run


def content(run):
    return {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def refused(capsys, *arguments):
    assert main(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err.splitlines()[-1].removeprefix("moac: ")


def fill(disk, left):
    """A file that leaves so many bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filler").write_bytes(bytes(free - left))


def test_another_command_on_the_same_run(unfinished, capsys):
    """Of another process: tests/unit/test_locks.py."""
    with RunDirectory(unfinished).held():
        before = content(unfinished)
        line = refused(capsys, "resume", unfinished)
        assert line == f"{unfinished} is in use by process {os.getpid()}: wait until it ends."
        assert content(unfinished) == before


@pytest.mark.slow
def test_a_disk_that_fills_up(small_disk, finished, unfinished, moac, capsys):
    """The run stops at its first checkpoint that does not fit; with room again it ends as if it never had."""
    run = small_disk / "run"
    shutil.copytree(unfinished, run)
    max((run / "checkpoint").iterdir()).unlink()
    fill(small_disk, 4096)
    before = content(run)
    line = refused(capsys, "resume", run, "--checkpoint-every", "0")
    assert line.startswith(f"{run}/")
    assert line.endswith(f": No space left on device. What was trained is kept: moac resume {run}")
    assert {path: told for path, told in content(run).items() if path.name != "metrics.jsonl"} == before
    (small_disk / "filler").unlink()
    assert moac("resume", run, "--checkpoint-every", "1e9").returncode == 0  # compiled as the other was
    assert_same_run(run, finished.path)


def test_a_full_disk_from_the_start(small_disk, capsys):
    fill(small_disk, 4096)
    line = refused(capsys, *TRAIN, "--out", small_disk / "run")
    assert "No space left on device" in line
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_folder_that_cannot_be_written(small_disk, unfinished, finished, capsys):
    run = small_disk / "run"
    shutil.copytree(unfinished, run)
    shutil.copytree(finished.path, small_disk / "finished")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    before = content(small_disk)
    assert refused(capsys, "resume", run) == f"{run} cannot be written: Read-only file system."
    assert "Read-only file system" in refused(capsys, *TRAIN, "--out", small_disk / "new")
    assert "cannot" in refused(capsys, "reproduce", "fishwood-discounted", "--quick", "--out", small_disk / "new")
    assert main(["resume", str(small_disk / "finished"), "--json"]) == 0  # what has ended needs no place to write
    assert content(small_disk) == before


def test_an_edited_checkpoint(unfinished, finished, capsys):
    """One changed number: the checkpoint before is used; where all were changed, nothing is overwritten."""
    for path in sorted((unfinished / "checkpoint").iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    before = content(unfinished)
    line = refused(capsys, "resume", unfinished)
    assert "is damaged: it was changed after it was written." in line
    assert content(unfinished) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reached", "said"),
    [
        (TRAIN, "checkpoint/[0-9]*.safetensors", "stopped; continue with: moac resume {out}"),
        (["reproduce", "fishwood-discounted", "--quick"], "tasks-quick/*/checkpoint/[0-9]*.safetensors",
         "stopped; the same command continues {out}"),
    ],
    ids=["train", "reproduce"],
)  # fmt: skip
def test_sigterm(arguments, reached, said, environment, tmp_path):
    out = tmp_path / "out"
    command = [*MOAC, *arguments, "--out", str(out)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not any(out.glob(reached)):
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    told, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert told == ""
    assert err.splitlines()[-1] == f"moac: {said.format(out=out)}"
    assert "Traceback" not in err
    for path in Path(out).glob(reached):
        files.read_arrays(path)
    assert not list(out.rglob("*.tmp"))
    assert not list(out.rglob(".lock"))


def checkpoints(run):
    return sorted((run / "checkpoint").glob("[0-9]*.safetensors"))


@pytest.mark.slow
def test_one_trial_of_many_iterations_is_checkpointed_and_stopped_between_two_evaluations(environment, tmp_path):
    """One core takes some 2 million steps a second: a chunk of 8 million would be no second but several."""
    out = tmp_path / "out"
    arguments = ["train", "fishwood-v0", "--iterations", "2000000", "--num-evaluations", "2", "--checkpoint-every", "0"]
    command = [*MOAC, *arguments, "--out", str(out)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 600
        while len(checkpoints(out)) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1] == f"moac: stopped; continue with: moac resume {out}"
    before, last = (files.read_arrays(path)[1]["iteration"] for path in checkpoints(out))
    assert 1 <= before < last < 2_000_000
    assert (last - before) * (5 * 64 + 128) < 8e6
