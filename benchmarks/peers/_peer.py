"""What the scripts of morl-baselines' agents share: timing, and the answer as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any


def timed(function: Callable[[], object]) -> dict[str, float]:
    """Wall and CPU seconds of a call."""
    started, started_cpu = time.perf_counter(), time.process_time()
    function()
    return {"wall": time.perf_counter() - started, "cpu": time.process_time() - started_cpu}


def answer(**found: Any) -> None:
    """Print what was found, with versions."""
    print(json.dumps({**found, **{name: version(name) for name in ("morl-baselines", "mo-gymnasium", "torch")}}))
