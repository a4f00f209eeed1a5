"""Processes to be killed, forked from one that has imported everything and started nothing: they start at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys

_NURSERY = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
import jax, matplotlib.figure, duckdb
from moac import envs
from moac.cli import main as cli
from moac.cli import data, offline, process, sweep, train
from moac import progress
from moac.report.pages import run as run_page
import moac_studies
from moac_studies import framework, kuairand_comparison, training
from moac.runs import runner
from moac.logs import building

building._BYTES_PER_BUCKET = 1 << 18  # several buckets of little data
whole = framework.load

def always():  # a checkpoint with every chunk, where no option says so
    train = runner.train
    runner.train = lambda directory, run, snapshot=None, every=0, *a, **k: train(directory, run, snapshot, 0, *a, **k)

def part(name, quick):  # of the comparison: three methods, two settings of each
    study = whole(name, quick)
    methods = {name: study.parameters["methods"][name] for name in ("PDPG", "MOAC", "MOAC, fixed weights")}
    kept = {name: {**table, "search": table["search"][:2]} for name, table in methods.items()}
    return replace(study, parameters={**study.parameters, "methods": kept})

def offline(arguments):
    framework.load = part
    always()
    return cli.main(arguments)

def reproduced(arguments):
    text, out = arguments
    always()
    process.use_all_cores()
    study = framework.parse("fishwood-discounted", Path(text).read_text(), quick=True)
    framework.run(study, Path(out), progress.labelled_progress(), lambda line: None)
    return 0

for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if not child:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2), os.close(0)
        try:
            ((how, arguments),) = order["call"].items()
            code = {"moac": cli.main, "offline": offline, "reproduce": reproduced}[how](arguments)
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 70
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """Runs one order at a time; `kill` ends it as nothing else does."""

    def __init__(self, environment, log):
        self.log = log
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _NURSERY],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._child = None

    def start(self, order):
        self._process.stdin.write(json.dumps({"call": order, "log": str(self.log)}) + "\n")
        self._process.stdin.flush()
        self._child = self._number()

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(self._child, number)

    def wait(self):
        """The exit code; −9 of one that was killed."""
        code, self._child = self._number(), None
        return code

    def _number(self):
        line = self._process.stdout.readline()
        assert line, f"the process that forks has ended with {self._process.wait(60)}: {self.log.read_text()}"
        return int(line)

    def close(self):
        """End everything: a test that failed, or ran out of time while an order began, has left its child running."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()
