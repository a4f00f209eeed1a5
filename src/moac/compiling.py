"""How XLA compiles our programs: options, where this build of it knows them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

_OPTIONS: dict[str, Any] = {
    "xla_cpu_multi_thread_eigen": False,  # blocks are the parallelism; threads inside one cost more than they save
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION",  # its calls are slow if small
}
AT_ONCE: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
"""For programs that run too shortly for what optimising them costs."""


def compiler_options(**more: Any) -> dict[str, Any] | None:
    """The options of programs that run long, and more; None where this build of XLA does not know them."""
    return known(_OPTIONS | more)


def known(options: dict[str, Any]) -> dict[str, Any] | None:
    """The options, or None where this build of XLA does not know them."""
    return options if _accepts(tuple(options.items())) else None


@lru_cache
def _accepts(options: tuple[tuple[str, Any], ...]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
