import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from moac import training
from moac.cli import main
from moac.experiments import sinks
from moac.history import History

K, M = 2, 2
DESCRIPTION = {"problem": {"objectives": ["gold", "time"]}, "seed": 3}


def snapshot(length):
    """Logged iterations 1 … length; returns are twice the iteration, the gap is not known."""
    at = np.arange(1, length + 1)
    cube = np.broadcast_to(2.0 * at[None, :, None], (K, length, M))
    square = np.broadcast_to(1.0 * at, (K, length))
    history = History(at, cube, cube, cube, square, square, square * np.nan, square * np.nan, square * np.nan)
    return training.Snapshot(length, None, history)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Recorder:
    def __init__(self, fails_at=None):
        self.seen, self.closed, self.fails_at = [], False, fails_at

    def write(self, row):
        if row["iteration"] == self.fails_at:
            raise ConnectionError("the line\nis cut")
        self.seen.append(row["iteration"])

    def close(self):
        self.closed = True


def test_every_logged_iteration_comes_once():
    feed, sink = sinks.Feed(), Recorder()
    feed.add("mine", lambda: sink)
    for length in (1, 1, 2, 5):
        feed.show(snapshot(length))
    feed.close()
    assert sink.seen == [1, 2, 3, 4, 5]
    assert sink.closed


def test_a_sink_that_fails_is_named_once_and_the_others_go_on():
    told, bad, good = [], Recorder(fails_at=2), Recorder()
    feed = sinks.Feed(warn=told.append)
    feed.add("bad", lambda: bad)
    feed.add("good", lambda: good)
    feed.add("never", lambda: 1 / 0)
    for length in range(1, 5):
        feed.show(snapshot(length))
    feed.close()
    assert told == [
        "never gets no more numbers of this run: ZeroDivisionError: division by zero",
        "bad gets no more numbers of this run: ConnectionError: the line is cut",
    ]
    assert good.seen == [1, 2, 3, 4]
    assert bad.seen == [1]


def test_lines_of_a_run_that_goes_on_are_written_anew(tmp_path):
    place = sinks.Place(tmp_path, DESCRIPTION, 2)
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 2}\n{"iteration": 3}\n{"itera')
    feed = sinks.feed(place, (), snapshot(2).history)
    feed.show(snapshot(3))
    assert [row["iteration"] for row in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    feed.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == sinks.lines(snapshot(3).history)


def test_numbers_by_name():
    (row,) = sinks.rows(snapshot(1).history)
    assert row["returns"] == [2.0, 2.0]
    assert row["gap"] is None
    assert sinks.flat(row, ["gold", "time"]) == {
        "returns/gold": 2.0, "returns/time": 2.0, "weights/gold": 2.0, "weights/time": 2.0,
        "min_norm_weights/gold": 2.0, "min_norm_weights/time": 2.0, "gradient_norm_squared": 1.0,
        "smallest_alignment": 1.0,
    }  # fmt: skip


def test_a_sink_that_is_unknown_or_not_installed_is_refused_before_anything_is_done(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sinks.importlib.util, "find_spec", lambda name: None)
    train = ["train", "fishwood-v0", "--out", str(tmp_path / "run"), "--sink"]
    for name, message in {
        "tensorboard": "`sink` tensorboard needs tensorboardX: pip install 'moac[tensorboard]'.",
        "wandb": "`sink` wandb needs wandb: pip install 'moac[wandb]'.",
        "mlflow": "`sink` must be one of tensorboard, wandb, got 'mlflow'.",
    }.items():
        assert main([*train, name]) == 2
        assert capsys.readouterr().err == f"moac: {message}\n"
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_imported_that_was_not_asked_for(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(sinks.importlib, "import_module", asked.append)
    told = sinks.feed(sinks.Place(tmp_path, DESCRIPTION), ())
    told.close()
    assert asked == []
    text = Path(sinks.__file__).read_text()
    assert "import wandb" not in text
    assert "import tensorboardX" not in text


def test_tensorboard_holds_the_numbers(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto import event_pb2

    feed = sinks.feed(sinks.Place(tmp_path, DESCRIPTION), ("tensorboard",))
    feed.show(snapshot(3))
    feed.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    found, content = {}, path.read_bytes()
    while content:
        length = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    assert {step: found["returns/gold", step] for step in (1, 2, 3)} == {1: 2.0, 2: 4.0, 3: 6.0}
    assert not any("gap" in tag for tag, _ in found)


def test_weights_and_biases_is_told_all_and_goes_on_with_the_same_run(tmp_path, monkeypatch):
    """With a module in its place: the package is large. The real one is tried by hand, see docs/survival.md."""
    began, logged = [], []

    def init(**options):
        began.append(options)
        return SimpleNamespace(log=lambda row, step: logged.append((step, row)), finish=lambda: logged.append("end"))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    for length, done in ((1, 0), (2, 1)):
        history = snapshot(done).history if done else None
        feed = sinks.feed(sinks.Place(tmp_path, DESCRIPTION, done), ("wandb",), history)
        feed.show(snapshot(length))
        feed.close()
    assert [item if item == "end" else item[0] for item in logged] == [1, "end", 2, "end"]
    assert logged[0][1]["returns/gold"] == 2.0
    assert began[0] == began[1]
    assert began[0]["resume"] == "allow"
    assert began[0]["dir"] == str(tmp_path)
