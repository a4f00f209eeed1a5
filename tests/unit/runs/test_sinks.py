import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from moac import training
from moac.cli.main import main
from moac.runs import sinks
from moac.training.run import History
from moac.types import Evaluation, Metrics

K, M = 2, 2
DESCRIPTION = {"problem": {"objectives": ["gold", "time"]}, "seed": 3}


def snapshot(length):
    """Logged iterations 1 … length; returns are twice the iteration, the gap is not known."""
    at = np.arange(1, length + 1)
    cube = np.broadcast_to(2.0 * at[None, :, None], (K, length, M))
    square = np.broadcast_to(1.0 * at, (K, length))
    unknown = square * np.nan
    history = History(at, cube, cube, cube, square, square, unknown, unknown, unknown, np.zeros(length))
    return training.Snapshot.of(length, None, history)


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
        "never gets no more metrics of this run: ZeroDivisionError: division by zero",
        "bad gets no more metrics of this run: ConnectionError: the line is cut",
    ]
    assert good.seen == [1, 2, 3, 4]
    assert bad.seen == [1]


def test_lines_of_a_run_that_goes_on_are_written_anew(tmp_path):
    place = sinks.Place(tmp_path, DESCRIPTION, 10, 2)
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 2}\n{"iteration": 3}\n{"itera')
    feed = sinks.feed(place, (), snapshot(2).history)
    feed.show(snapshot(3))
    assert [row["iteration"] for row in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    feed.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == sinks.lines(sinks.rows(snapshot(3).history, 10))


def test_seconds_have_a_file_of_their_own(tmp_path):
    for done in (0, 2):  # a new run in the folder, and one that goes on
        (tmp_path / "timing.jsonl").write_text('{"iteration": 1, "seconds": 50.0}\n')
        feed = sinks.feed(sinks.Place(tmp_path, DESCRIPTION, 10, done), (), snapshot(2).history)
        feed.show(snapshot(3))
        feed.close()
        *before, last = lines(tmp_path / "timing.jsonl")
        assert before == ([{"iteration": 1, "seconds": 50.0}] if done else [])
        assert last["iteration"] == 3
        assert 0 <= last["seconds"] < 40
        assert not any("seconds" in row for row in lines(tmp_path / "metrics.jsonl"))


@pytest.mark.parametrize("order", ["C", "F"])
def test_lines_do_not_depend_on_how_numbers_lie_in_memory(order):
    """A history that is read from a checkpoint lies otherwise than one that grew."""
    rng, K = np.random.default_rng(0), 67
    grown = History.empty()
    for iteration in range(1, 4):
        returns = np.asarray(rng.normal(size=(K, M)), order=order)
        gram = np.asarray(np.einsum("kij,klj->kil", G := rng.normal(size=(K, M, 5)), G), np.float32, order=order)
        exact = Evaluation(returns, *(rng.normal(size=3 * K)[::3] for _ in range(3)), kind="exact")
        weights = np.asarray(rng.dirichlet(np.ones(M), K), np.float32, order=order)
        grown = grown.extended(iteration, Metrics(gram, weights), exact)
    assert all(array.flags.c_contiguous for array in grown.arrays().values())
    for other in ("C", "F"):
        again = History.of_arrays({n: np.asarray(a, order=other) for n, a in grown.arrays().items()}, "exact")
        assert sinks.lines(sinks.rows(again, 1)) == sinks.lines(sinks.rows(grown, 1))


def test_numbers_by_name():
    (row,) = sinks.rows(snapshot(1).history, 448)
    assert row["returns"] == [2.0, 2.0]
    assert row["gap"] is None
    assert sinks.flat(row, ["gold", "time"]) == {
        "returns/gold": 2.0, "returns/time": 2.0, "weights/gold": 2.0, "weights/time": 2.0,
        "min_norm_weights/gold": 2.0, "min_norm_weights/time": 2.0, "gradient_norm_squared": 1.0,
        "smallest_alignment": 1.0, "env_steps": 448.0, "evaluation_steps": 0.0,
    }  # fmt: skip


def test_a_sink_that_is_unknown_or_not_installed_is_refused_before_anything_is_done(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sinks.importlib.util, "find_spec", lambda name: None)
    train = ["train", "fishwood-v0", "--out", str(tmp_path / "run"), "--sink"]
    for name, message in {
        "tensorboard": "`sink` tensorboard needs tensorboardX: pip install 'moac[tensorboard]'.",
        "wandb": "`sink` wandb needs wandb: pip install 'moac[wandb]'.",
        "mlflow": "`sinks` must be some of tensorboard, wandb, got 'mlflow'.",
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


@pytest.mark.slow
def test_neither_package_is_loaded_by_a_run_that_did_not_ask(tmp_path):
    program = (
        "import sys; from pathlib import Path; from moac.runs import sinks; "
        "sinks.feed(sinks.Place(Path(sys.argv[1]), {}), ()).close(); "
        "print({'wandb', 'tensorboardX'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_tensorboard_holds_the_numbers(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto import event_pb2

    feed = sinks.feed(sinks.Place(tmp_path, DESCRIPTION, 448), ("tensorboard",))
    feed.show(snapshot(3))
    feed.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    found, content = {}, path.read_bytes()
    while content:
        length = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    assert [found["returns/gold", step] for step in (448, 896, 1344)] == [2.0, 4.0, 6.0]
    assert not any("gap" in tag for tag, _ in found)


def test_weights_and_biases_is_told_all_and_goes_on_with_the_same_run(tmp_path, monkeypatch):
    """With a module in its place, which shows all it is given."""
    began, logged, axes = [], [], []

    def init(**options):
        began.append(options)
        log = SimpleNamespace(log=lambda row, step: logged.append((step, row)), finish=lambda: logged.append("end"))
        log.define_metric = lambda name, step_metric: axes.append((name, step_metric))
        return log

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    for length, done in ((1, 0), (2, 1)):
        history = snapshot(done).history if done else None
        lengthened = DESCRIPTION | {"config": {"num_iterations": 3 + done}}
        feed = sinks.feed(sinks.Place(tmp_path, lengthened, 448, done), ("wandb",), history)
        feed.show(snapshot(length))
        feed.close()
    assert [item if item == "end" else item[0] for item in logged] == [1, "end", 2, "end"]
    assert logged[0][1]["returns/gold"] == 2.0
    assert (logged[0][1]["env_steps"], axes[0]) == (448, ("*", "env_steps"))
    assert began[0]["id"] == began[1]["id"]
    assert began[0]["resume"] == "allow"
    assert began[0]["dir"] == str(tmp_path)


BLOCK = 1 << 15


def records(path):
    """What a file of an offline run holds: blocks of 32 KB, in them chunks of checksum, length, kind and bytes."""
    from wandb.proto import wandb_internal_pb2

    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, last = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6] in (1, 4)
        whole, at = whole + content[at + 7 : at + 7 + length], at + 7 + length
        if last:
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def told(folder):
    """Rows of numbers that Weights & Biases keeps of the one run in a folder."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    rows = [record.history.item for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row} for row in rows]


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    """The real package, which keeps to itself and to a folder of the test."""
    module = pytest.importorskip("wandb")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "WANDB_DIR", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield module
    with contextlib.suppress(ConnectionError):  # its service was killed
        module.teardown()


TINY = ["--iterations", "3", "--num-evaluations", "3", "--num-critic-steps", "1", "--critic-batch-size", "2"]


def test_weights_and_biases_offline_holds_the_numbers(wandb, tmp_path):
    feed = sinks.feed(sinks.Place(tmp_path, DESCRIPTION), ("wandb",))
    feed.show(snapshot(3))
    feed.close()
    wandb.teardown()  # its service has written all when it ends
    kept = told(tmp_path)
    assert [row["_step"] for row in kept] == [1, 2, 3]
    for row, line in zip(kept, lines(tmp_path / "metrics.jsonl"), strict=True):
        numbers = {name: value for name, value in row.items() if not name.startswith("_")}
        assert numbers == sinks.flat(line, ["gold", "time"])


@pytest.mark.slow
def test_weights_and_biases_of_a_command(wandb, tmp_path, capsys):
    order = ["train", "fishwood-v0", "--out", str(tmp_path / "run"), *TINY, "--sink", "wandb", "--json"]
    assert main(order) == 0
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["run_dir"] == str(tmp_path / "run")
    assert "gets no more metrics" not in said.err
    wandb.teardown()
    assert [row["_step"] for row in told(tmp_path / "run")] == [1, 2, 3]


def test_a_run_goes_on_without_weights_and_biases_where_nobody_is_logged_in(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    said = []
    feed = sinks.Feed(warn=said.append)
    feed.add("wandb", lambda: sinks.wandb(sinks.Place(tmp_path, DESCRIPTION)))
    feed.show(snapshot(3))
    feed.close()
    assert len(said) == 1
    assert said[0].startswith("wandb gets no more metrics of this run: UsageError: No API key configured.")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the service by Linux's /proc")
def test_a_run_goes_on_without_weights_and_biases_where_its_service_ends(wandb, tmp_path):
    said = []
    feed = sinks.Feed(warn=said.append)
    feed.add("wandb", lambda: sinks.wandb(sinks.Place(tmp_path, DESCRIPTION)))
    feed.show(snapshot(1))
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    (service,) = [pid for pid in children if "wandb" in Path(f"/proc/{pid}/comm").read_text()]
    os.kill(int(service), signal.SIGKILL)
    for length in range(2, 50):
        feed.show(snapshot(length))
    feed.close()
    assert len(said) == 1
    assert said[0].startswith("wandb gets no more metrics of this run: ")
