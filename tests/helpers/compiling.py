"""Programs for tests of a few iterations: compiling for speed would cost more than it saves."""

import os

import jax

VARIABLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def quickly(on):
    """Compile without optimising, or for speed again: what was compiled is then forgotten, as its rounding differs."""
    if jax.config.read("jax_disable_most_optimizations") == on:
        return
    jax.config.update("jax_disable_most_optimizations", on)
    os.environ[VARIABLE] = str(on)  # of processes that a test starts
    if not on:
        jax.clear_caches()
