"""SIGKILL at random moments, several times for every driver: nothing is torn, lost or different.

The driver of a sweep on Ray is killed in `test_cluster.py`.
"""

import itertools
import json
import random
import shutil
import time
from importlib import resources

import numpy as np
import pytest

from moac import files
from tests.end_to_end.conftest import KILLS, assert_same_run, files_of
from tests.helpers.kuairand import build, changed, generated
from tests.helpers.nursery import Nursery

pytestmark = pytest.mark.slow
SMALL = ["--num-critic-steps", "2", "--critic-batch-size", "8", "--actor-batch-size", "16", "--seed", "3"]
OFTEN = ["--checkpoint-every", "0"]
MODEL = ["train", "resource-gathering-v0", "--trials", "9", "--iterations", "200", "--num-evaluations", "20"]
REAL = ["train", "resource-gathering-v0", "--blackbox", "--trials", "9", "--num-envs", "4", "--iterations", "200"]
EVERY = ["--evaluation-share", "1000"]
"""Evaluations of new episodes all fit, so that runs which were killed have as many as those which were not."""
EPISODES = ["--num-evaluations", "20", "--evaluation-episodes", "2", *EVERY]
MENU = ["--trials", "9", "--pulls", "1", "0.1", "--hidden", "8", "--iterations", "60", "--num-evaluations", "6"]
COMPARISON = ["--trials", "1", "--iterations", "5", "--quick"]
PPO = ["--learner", "ppo", "--trials", "9", "--num-evaluations", "20", "--seed", "3", *OFTEN]
NETWORK = ["explore", "four-room-v0", "--steps", "8192", "--preferences", "3", "--episodes", "2", "--seed", "3", *EVERY]
SWEEP = """
env = "fishwood-v0"
trials = 9
seed = 5
[config]
num_iterations = 40
num_evaluations = 8
num_critic_steps = 2
critic_batch_size = 8
actor_batch_size = 16
[grid]
actor_step_size = [1.0, 10.0]
momentum = ["1/t", "1"]
"""
IN_A_ROW = 6


@pytest.fixture(scope="module")
def nursery(environment, tmp_path_factory):
    made = Nursery(environment, tmp_path_factory.mktemp("nursery") / "log")
    yield made
    made.close()


def finished(nursery, order):
    """Run it to its end; the seconds it took."""
    began = time.monotonic()
    nursery.start(order)
    assert nursery.wait() == 0, nursery.log.read_text()
    return time.monotonic() - began


def killed(nursery, order, seconds):
    """Run it for a while; whether it was killed before its end."""
    nursery.start(order)
    time.sleep(seconds)
    nursery.kill()
    code = nursery.wait()
    assert code in (0, -9), nursery.log.read_text()
    return code == -9


def check_run(run):
    """Every file of a run directory is whole; the iteration of its newest checkpoint."""
    if not (run / "config.json").exists():
        return 0
    for name in ("config.json", "provenance.json"):
        files.read_json(run / name)
    done = []
    for path in sorted((run / "checkpoint").glob("[0-9]*.safetensors")):
        arrays, about = files.read_arrays(path)
        done.append((about["iteration"], arrays["history.iteration"].tolist()))
    assert len(done) <= 3
    at, logged = done[-1] if done else (0, [])
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True) if (run / "metrics.jsonl").exists() else []
    told = [json.loads(line)["iteration"] for line in lines if line.endswith("\n")]
    assert len([iteration for iteration in told if iteration not in logged]) <= 1  # at most one interval is repeated
    return at


def check_arrays(place):
    """Every file of arrays under a folder is whole."""
    for path in place.rglob("*.safetensors"):
        files.read_arrays(path)


def same_arrays(place, whole):
    """Policies, models and all else that is kept as arrays, but for checkpoints, is the same under both folders."""
    held = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors")
         if path.parent.name != "checkpoint"}
        for folder in (place, whole)
    ]  # fmt: skip
    assert held[0] == held[1]
    assert not list(place.rglob("*.tmp"))


def same_findings(place, whole):
    """Two reports say the same."""
    found, expected = (files.read_json(folder / "experiment.json") for folder in (place, whole))
    assert {name: found[name] for name in ("claims", "tables")} == {n: expected[n] for n in ("claims", "tables")}


class Run:
    """`moac train`, then `moac resume`."""

    shown_again = True

    def __init__(self, *arguments):
        self.arguments, self.at = arguments, {}

    def order(self, place):
        begun = (place / "config.json").exists()
        return {"moac": ["resume", str(place), *OFTEN] if begun else [*self.arguments, "--out", str(place)]}

    def ended(self, place):
        return (place / "policy.safetensors").exists()

    def check(self, place):
        now = check_run(place)
        assert now >= self.at.get(place, 0)  # no checkpoint is lost
        self.at[place] = now

    def compare(self, place, whole):
        assert_same_run(place, whole)


class RunInEpisodes(Run):
    """A run on an environment goes on in new episodes: it ends with the same files and shapes, not the same numbers."""

    def compare(self, place, whole):
        held, expected = files_of(place), files_of(whole)
        assert held.keys() == expected.keys()
        assert held["config.json"] == expected["config.json"]
        for name in ("history.safetensors", "policy.safetensors"):
            arrays, wanted = files.read_arrays(place / name)[0], files.read_arrays(whole / name)[0]
            assert {n: a.shape for n, a in arrays.items()} == {n: a.shape for n, a in wanted.items()}
            assert not [n for n, a in wanted.items() if (np.isfinite(arrays[n]) != np.isfinite(a)).any()]
        rows = [
            [json.loads(line)["iteration"] for line in run["metrics.jsonl"].splitlines()] for run in (held, expected)
        ]
        assert rows[0] == rows[1]


class Reproduction(Run):
    """An experiment of two methods; the same call goes on."""

    def order(self, place):
        return {"reproduce": [*self.arguments, str(place)]}

    def ended(self, place):
        return (place / "experiment.json").exists()

    def check(self, place):
        for task in (place / "tasks-quick").glob("*"):
            super().check(task)

    def compare(self, place, whole):
        tasks = sorted(path.relative_to(whole) for path in (whole / "tasks-quick").iterdir())
        assert sorted(path.relative_to(place) for path in (place / "tasks-quick").iterdir()) == tasks
        for task in tasks:
            super().compare(place / task, whole / task)
        same_findings(place, whole)


class Menu(Run):
    """`moac offline train`; the same command goes on, until a policy is chosen and has its report."""

    shown_again = False

    def order(self, place):
        return {"offline": ["offline", "train", *self.arguments, "--out", str(place)]}

    def ended(self, place):
        return (place / "report.html").exists()

    def check(self, place):
        for task in (place / "menu").glob("*"):
            super().check(task)
        check_arrays(place)

    def compare(self, place, whole):
        (choice, expected), (found, held) = (
            (files.read_json(folder / "choice.json"), files_of(folder)) for folder in (whole, place)
        )
        for one in (choice, found):
            del one["validation"]["date"]
        assert found == choice
        assert held.keys() == expected.keys()
        assert [name for name in held if held[name] != expected[name]] in ([], ["choice.json"])
        same_arrays(place, whole)


class Comparison(Reproduction):
    """`moac offline compare`; the same command goes on."""

    shown_again = False

    def order(self, place):
        return {"offline": ["offline", "compare", *self.arguments, "--out", str(place)]}

    def ended(self, place):
        return (place / "report.html").exists()

    def check(self, place):
        check_arrays(place)
        done = {path.name for path in place.rglob("*.safetensors")}
        assert done >= self.at.get(place, set())  # what was trained stays
        self.at[place] = done

    def compare(self, place, whole):
        same_arrays(place, whole)
        same_findings(place, whole)


class Build(Run):
    """A dataset; the same command goes on, until there is one."""

    shown_again = False

    def order(self, place):
        return {"moac": ["data", "kuairand", "build", *self.arguments, "--actions", "20", "--out", str(place)]}

    def ended(self, place):
        return place.exists()

    def check(self, place):
        """There is not a dataset unless it is whole; what has finished stays finished."""
        if place.exists():
            return
        finished = {path.name for path in place.parent.glob(f".{place.name}.building-*/rows/bucket-*.parquet")}
        assert finished >= self.at.get(place, set())
        self.at[place] = finished

    def compare(self, place, whole):
        names = [{p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (place, whole)]
        assert names[0] == names[1]
        for name in names[0]:
            assert (place / name).read_bytes() == (whole / name).read_bytes(), name
        assert not list(place.parent.glob(f".{place.name}.building-*"))


class Exploration(RunInEpisodes):
    """`moac explore`; the same command goes on, in new episodes."""

    shown_again = False

    def order(self, place):
        return {"offline": [*self.arguments, "--out", str(place)]}  # which writes a checkpoint with every chunk

    def ended(self, place):
        return (place / "report.html").exists()

    def check(self, place):
        for run in (place / "rules").glob("*"):
            super().check(run)
        check_arrays(place)

    def compare(self, place, whole):
        names = [{str(path.relative_to(folder)) for path in folder.rglob("*.*")} for folder in (place, whole)]
        assert {name for name in names[0] ^ names[1] if "checkpoint" not in name and ".lock" not in name} == set()
        (run,) = (whole / "rules").iterdir()
        super().compare(place / "rules" / run.name, run)


class Sweep(Run):
    """`moac sweep`; the same command goes on."""

    shown_again = False

    def order(self, place):
        return {"moac": ["sweep", *self.arguments, "--out", str(place)]}

    def ended(self, place):
        return (place / "report.html").exists()

    def check(self, place):
        """Checkpoints are written as time passes: what a task has not finished, it may do again from its start."""
        check_arrays(place)


class InFolder(Run):
    """A command, then its options, on a copy of a finished run."""

    def __init__(self, run, *arguments):
        super().__init__(*arguments)
        self.run = run

    def order(self, place):
        if not place.exists():
            shutil.copytree(self.run, place)
        command, *options = self.arguments
        return {"moac": [command, str(place), *options]}


class Certificate(InFolder):
    """`moac certify` of a run; the same command again."""

    shown_again = False

    def ended(self, place):
        return (place / "certificate.json").exists() and b"certificate" in (place / "report.html").read_bytes()

    def check(self, place):
        super().check(place)
        if (place / "certificate.json").exists():
            files.read_json(place / "certificate.json")


def kill_and_finish(nursery, driver, folder, kills=KILLS):
    """Again and again at random moments; each folder is then finished and compared with one that nobody disturbed."""
    moments, whole, left = random.Random(kills), folder / "whole", kills
    finished(nursery, driver.order(whole))
    seconds = finished(nursery, driver.order(folder / "timed"))  # with compiled programs kept
    for number in itertools.count():
        place = folder / f"run-{number}"
        for _ in range(IN_A_ROW):
            if left and not driver.ended(place):
                in_time = killed(nursery, driver.order(place), moments.uniform(0.02, 0.98) * seconds)
                left, seconds = (
                    left - in_time,
                    seconds if in_time else 0.8 * seconds,
                )  # the machine may be less busy now
                driver.check(place)
        if driver.shown_again or not driver.ended(place):
            finished(nursery, driver.order(place))
        driver.compare(place, whole)
        if not left:
            return
        assert number < kills


def test_a_compiled_run(nursery, tmp_path):
    kill_and_finish(nursery, Run(*MODEL, *SMALL, *OFTEN), tmp_path)


def test_a_run_on_the_real_environment(nursery, tmp_path):
    kill_and_finish(nursery, RunInEpisodes(*REAL, *EPISODES, *SMALL, *OFTEN), tmp_path)


def test_a_compiled_run_of_ppo(nursery, tmp_path):
    kill_and_finish(nursery, Run("train", "fishwood-v0", "--iterations", "40", *PPO), tmp_path)


def test_a_run_of_ppo_on_the_real_environment(nursery, tmp_path):
    real = ["train", "fishwood-v0", "--blackbox", "--num-envs", "4", "--steps", "36864", "--evaluation-episodes", "2"]
    kill_and_finish(nursery, RunInEpisodes(*real, *PPO, *EVERY), tmp_path)


def test_a_run_of_one_network_for_every_preference(nursery, tmp_path):
    kill_and_finish(nursery, Exploration(*NETWORK), tmp_path)


def test_a_sweep_in_processes(nursery, tmp_path):
    (tmp_path / "spec.toml").write_text(SWEEP)
    kill_and_finish(nursery, Sweep(str(tmp_path / "spec.toml"), "--workers", "2"), tmp_path)


def test_a_certificate(nursery, tmp_path):
    run = Run(*MODEL, *SMALL)
    finished(nursery, run.order(tmp_path / "certified"))
    kill_and_finish(nursery, Certificate(tmp_path / "certified", "certify", "--episodes", "4000"), tmp_path)


def test_a_reproduction(nursery, tmp_path):
    text = resources.files("moac_studies").joinpath("specs/fishwood-discounted.toml").read_text()
    before, quick = text.split("[quick.figure]")
    smaller = quick.replace("trials = 64", "trials = 9").replace("num_iterations = 300", "num_iterations = 100")
    (tmp_path / "spec.toml").write_text(f"{before}[quick.figure]{smaller}")
    kill_and_finish(nursery, Reproduction(str(tmp_path / "spec.toml")), tmp_path)


def test_a_build_of_a_dataset(nursery, tmp_path):
    source = generated(tmp_path, rows=20_000, num_users=800)
    kill_and_finish(nursery, Build(str(source)), tmp_path)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A dataset from which a policy is chosen: three signals fire, often enough, for many validation users."""

    def often(name, rows):
        rare = dict.fromkeys(("is_follow", "is_comment", "is_forward", "is_hate"), "0")
        return [row | rare | {"is_like": row["is_click"]} for row in rows] if name.startswith("log_") else rows

    folder = tmp_path_factory.mktemp("log")
    source = generated(folder / "rows", rows=8000, num_users=500, num_videos=20, random_rows=100)
    frequent = changed(source, folder / "frequent", often)
    build(frequent, folder / "data", actions=8, shares=(0.5, 0.4, 0.1), threads=1)
    return folder / "data"


def test_a_menu_of_policies_from_a_log(nursery, log, tmp_path):
    kill_and_finish(nursery, Menu(str(log), *MENU, *SMALL), tmp_path)


def test_a_comparison_on_a_log(nursery, log, tmp_path):
    kill_and_finish(nursery, Comparison(str(log), *COMPARISON), tmp_path)
