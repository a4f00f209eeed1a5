"""Programs for tests of a few iterations: compiling for speed would cost more than it saves."""

import contextlib

import jax

from moac.training import compiled, hosted


@contextlib.contextmanager
def quickly():
    """Compile without optimising; what was compiled so is forgotten afterwards, since its rounding differs."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
        for module in (compiled, hosted):
            module._program.cache_clear()
        jax.clear_caches()
