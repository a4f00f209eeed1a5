import os
import signal
import sys
import threading
from pathlib import Path

import hypothesis
import jax
import pytest

from tests.helpers import compiling

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # A background job of a shell ignores Ctrl-C, and so would the commands that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("ci")


PROGRAMS = Path(sys.prefix) / ".programs"
"""What tests have compiled stays with the environment that compiled it: a second run takes a third of the CPU time."""
os.environ.setdefault("MOAC_CACHE", str(PROGRAMS))  # of commands that tests call in their own process
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")
jax.config.update("jax_compilation_cache_dir", os.environ["MOAC_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

_PROGRAMS = 300
"""That a process keeps from file to file: beside 1500 compiling another takes twice as long, and all hold 2.5 GB."""
_compiled = 0


def _count(event, seconds, **_):
    global _compiled
    _compiled += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(_count)

_SLOW_SECONDS = 1500
"""Time limit of a slow test; of the others: pyproject.toml."""


def _slow(item):
    return item.get_closest_marker("slow") is not None


def pytest_collection_modifyitems(items):
    for item in items:
        if _slow(item) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    compiling.quickly(not _slow(item))  # most programs run too shortly for what optimising costs


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget what the files before have compiled."""
    global _compiled
    if _compiled > _PROGRAMS:
        jax.clear_caches()
        _compiled = 0


@pytest.fixture
def x64():
    """Double precision for JAX arrays inside the test."""
    with jax.enable_x64(True):
        yield
