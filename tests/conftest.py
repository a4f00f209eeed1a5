import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("ci")


_SLOW_SECONDS = 1500
"""Time limit of a slow test; of the others: pyproject.toml."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


@pytest.fixture
def x64():
    """Double precision for JAX arrays inside the test."""
    with jax.enable_x64(True):
        yield
