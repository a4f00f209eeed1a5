"""From a direction to a step: a constant step size, or Adam (Kingma and Ba, 2015), each with clipping or without."""

from __future__ import annotations

import optax


def by_name(name: str, size: float, clip: float | None = None) -> optax.GradientTransformation:
    """The steps that `Config.optimiser` names, along directions of ascent.

    Args:
        name: `constant` or `adam`.
        size: the step size.
        clip: the norm that a direction is cut to before; None leaves it as it is.
    """
    cut = [] if clip is None else [optax.clip_by_global_norm(clip)]
    moments = [optax.scale_by_adam()] if name == "adam" else []
    return optax.chain(*cut, *moments, optax.scale(size))
