import signal
import threading

import hypothesis
import jax
import pytest

from tests.helpers import compiling

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # A background job of a shell ignores Ctrl-C, and so would the commands that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("ci")


_SLOW_SECONDS = 1500
"""Time limit of a slow test; of the others: pyproject.toml."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


@pytest.fixture(scope="module")
def quick_to_compile():
    """Few iterations: compiling for speed would cost more than it saves."""
    with compiling.quickly():
        yield


@pytest.fixture
def x64():
    """Double precision for JAX arrays inside the test."""
    with jax.enable_x64(True):
        yield
