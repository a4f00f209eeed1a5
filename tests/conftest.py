import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("ci")


@pytest.fixture
def x64():
    """Double precision for JAX arrays inside the test."""
    with jax.enable_x64(True):
        yield
