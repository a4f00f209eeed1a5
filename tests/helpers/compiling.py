"""Programs for tests of a few iterations: compiling for speed would cost more than it saves."""

import jax

from moac.training import compiled, hosted


def quickly(on):
    """Compile without optimising, or for speed again: what was compiled is then forgotten, as its rounding differs."""
    if jax.config.read("jax_disable_most_optimizations") == on:
        return
    jax.config.update("jax_disable_most_optimizations", on)
    if not on:
        for module in (compiled, hosted):
            module._program.cache_clear()
        jax.clear_caches()
