"""A real Ray cluster of three nodes: what serial writes, whatever is killed meanwhile."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from moac.logs import building
from moac.offline import ncis
from moac.runs import executors
from tests.end_to_end.conftest import KILLS, MOAC
from tests.helpers import sweeps, tasks
from tests.helpers.kuairand import build, generated
from tests.helpers.shards import parts_of_a_log

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]
SPEC = """
env = "fishwood-v0"
trials = 2
[config]
weighting = "uniform"
num_iterations = 3000
num_critic_steps = 1
critic_batch_size = 4
actor_batch_size = 4
num_evaluations = 8
[grid]
seed = [0, 1, 2, 3, 4, 5, 6, 7]
"""
MISBEHAVING = """
trials = 1
[config]
weighting = "uniform"
num_iterations = 4
num_critic_steps = 1
critic_batch_size = 4
actor_batch_size = 4
num_evaluations = 1
[stepping]
num_envs = 2
evaluation_episodes = 2
[grid]
env = [NAMES]
""".replace("NAMES", ", ".join(f'"tests.helpers.misbehaving:{n}-v0"' for n in ("Hangs", "Eats", "Raises", "Well")))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for all tests here, with a home of its own: Ray writes into it."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "home").mkdir()
    (folder / "spec.toml").write_text(SPEC)
    (folder / "misbehaving.toml").write_text(MISBEHAVING)
    return folder


@pytest.fixture(scope="module")
def variables(place):
    """Of Ray and of every process that talks to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place / "home"))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("MOAC_CACHE", str(place / "cache"))  # filled by the serial run
        patch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]))
        yield dict(os.environ)


@pytest.fixture(scope="module")
def cluster(variables):
    """Three nodes of one core each."""
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="moac-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)  # short, as the paths of Ray's sockets must be
        (Path(folder) / "ray").mkdir()  # where Ray notes its address, and does not make the folder for it
        node = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=node)
        for _ in range(2):
            made.add_node(num_cpus=1, object_store_memory=80_000_000)
        made.wait_for_nodes(timeout=120)
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def start(cluster, variables):
    """Start `moac sweep` of a file; on the cluster unless another executor is named."""
    started = []

    def begin(path, out, *options, executor="ray"):
        where = ["--address", cluster.address] if executor == "ray" else []
        command = [*MOAC, "sweep", path, "--executor", executor, *where, "--out", out, "--json", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([*map(str, command)], env=variables, **pipes))
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def told(process, code=0):
    """What a sweep that has ended says."""
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == code, stderr
    return json.loads(stdout.splitlines()[-1])


def wait_for(out, count):
    """Until so many tasks have finished; the times at which they were written."""
    until = time.monotonic() + 200
    while len(found := sweeps.finished(out)) < count:
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def serial(place, start):
    """What the serial executor writes."""
    assert told(start(place / "spec.toml", place / "serial", executor="serial"))["finished"] == 8
    return sweeps.contents(place / "serial")


def test_a_node_killed_meanwhile_loses_nothing(place, serial, cluster, start):
    out = place / "node"
    running = start(place / "spec.toml", out)
    wait_for(out, 1)
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    ended = told(running)
    assert (ended["tasks"], ended["finished"], ended["failed"]) == (8, 8, 0)
    assert sweeps.contents(out) == serial
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)


def test_after_a_killed_driver_only_what_is_missing_is_run(place, serial, start):
    out = place / "driver"
    running = start(place / "spec.toml", out)
    wait_for(out, 2)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = sweeps.finished(out)
    ended = told(start(place / "spec.toml", out))
    assert ended["failed"] == 0
    assert len(before) <= ended["finished_before"] < 8
    after = sweeps.finished(out)
    assert {key: after[key] for key in before} == before
    assert sweeps.contents(out) == serial


def test_a_driver_killed_again_and_again(place, serial, start):
    """At random moments; what is written at the end is what serial writes, and no task is lost on the way."""
    moments, left, longest = random.Random(0), KILLS, 12.0
    for number in itertools.count():
        out, before = place / f"again-{number}", {}
        for _ in range(min(left, 5)):
            running = start(place / "spec.toml", out)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(moments.uniform(1.0, longest))
            if running.poll() is None:
                running.kill()
                left -= 1
            elif running.returncode == 0:
                longest *= 0.8
                break
            running.communicate()
            found = sweeps.finished(out)
            assert {key: found[key] for key in before} == before
            before = found
        assert told(start(place / "spec.toml", out))["failed"] == 0
        assert sweeps.contents(out) == serial
        if not left:
            return


def test_processes_write_the_same(place, serial, start):
    assert told(start(place / "spec.toml", place / "process", executor="process"))["finished"] == 8
    assert sweeps.contents(place / "process") == serial


def test_what_hangs_eats_or_raises_is_told_and_the_rest_ends(place, start):
    """The same by processes, at the same time: time and memory are limited in the same way."""
    limits = ("--timeout", 45, "--memory", "1500MB")
    outs = {name: place / f"misbehaving-{name}" for name in ("ray", "process")}
    started = [start(place / "misbehaving.toml", out, *limits, executor=name) for name, out in outs.items()]
    for process in started:
        ended = told(process, code=1)
        assert (ended["finished"], ended["failed"]) == (1, 3)
        hangs, eats, raises = (failure["error"] for failure in ended["failures"])
        assert hangs == "it ran longer than 45 s."
        assert eats == "it used more than 1500 MB."
        assert "no road" in raises
    assert sweeps.contents(outs["ray"]) == sweeps.contents(outs["process"])


@pytest.fixture
def executor(cluster, variables):
    """The cluster, for functions that this process sends."""
    with executors.opened("ray", address=cluster.address) as opened:
        yield opened


def test_buckets_and_shards_run_on_the_cluster_too(place, executor, monkeypatch):
    monkeypatch.setattr(building, "_BYTES_PER_BUCKET", 1 << 16)  # several of them
    source = generated(place / "source")
    here = build(source, place / "data-here", actions=30)
    there = build(source, place / "data-there", executor, actions=30)
    assert there["content"] == here["content"]
    _, parts = parts_of_a_log(place)
    shards = executors.results(executor.map(tasks.sums_of_part, parts))
    one_by_one = [tasks.sums_of_part(part) for part in parts]
    assert ncis.analyse(ncis.total(shards)).as_dict() == ncis.analyse(ncis.total(one_by_one)).as_dict()
    found = {o.index: o for o in executor.map(tasks.misbehave, ["raises", "fine", "killed"])}
    assert found[0].failure.message == "ZeroDivisionError: no road"
    assert found[1].value == "fine"
    assert found[2].failure.message.startswith("its process was ended by SIGKILL")


def test_an_address_without_a_cluster_is_one_line(place, variables):
    command = [*MOAC, "sweep", str(place / "spec.toml"), "--executor", "ray", "--address", "127.0.0.1:1"]
    ended = subprocess.run(
        [*command, "--out", str(place / "nowhere")], env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
