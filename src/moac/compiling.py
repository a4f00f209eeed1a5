"""How XLA compiles our programs: options, where this build of it knows them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any

import jax
import numpy as np

_OPTIONS: dict[str, Any] = {
    "xla_cpu_multi_thread_eigen": False,  # blocks are the parallelism; threads inside one cost more than they save
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION",  # its calls are slow if small
}
AT_ONCE: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
"""For programs that run too shortly for what optimising them costs."""

_PROGRAMS = 16  # that `kept_for_few` keeps of each function


def kept_for_few(num_static: int = 0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator like `jax.jit` with the first `num_static` arguments static; only the programs last used are kept.

    `jax.jit` keeps a static argument and all that it refers to, such as a policy and its tables, and a program for all
    shapes that it was ever called with, such as those of each log, for as long as the process lives.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @lru_cache(maxsize=_PROGRAMS)
        def program(static: tuple[Any, ...], shapes: Any) -> Callable[..., Any]:
            del shapes  # one program for each
            return jax.jit(partial(function, *static))

        @wraps(function)
        def call(*arguments: Any) -> Any:
            static, traced = arguments[:num_static], arguments[num_static:]
            return program(static, shapes_of(traced))(*traced)

        return call

    return decorated


def shapes_of(arguments: Any) -> tuple[Any, ...]:
    """The structure of a pytree, and the shapes and types of its leaves: what a program is compiled for."""
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)


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
