"""`moac data kuairand`: download, build, describe, generate. None of them needs JAX."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from moac import files
from moac.cli.data_options import Build, Describe, Download, Generate
from moac.cli.stages import Stages
from moac.runs import executors


def run(command: Download | Build | Describe | Generate) -> int:
    """Do it, and say what came out."""
    if isinstance(command, Describe):
        from moac.cli import description

        return description.run(command.data, command.out, command.json)
    if command.out is None:
        raise ValueError("`--out` must be given, with a folder.")
    began = time.monotonic()
    work = _download if isinstance(command, Download) else _build if isinstance(command, Build) else _generate
    summary = work(command, command.out) | {"seconds": time.monotonic() - began}
    if command.json:
        sys.stdout.write(json.dumps(files.finite(summary)) + "\n")
    return 0


def _download(command: Any, out: Path) -> dict[str, Any]:
    from moac.kuairand import download

    with Stages() as stages:
        folder = download.fetch(command.variant, out, progress=lambda done, total: stages.show("download", done, total))
    sys.stderr.write(f"unpacked: {folder}\n")
    return {"variant": command.variant, "folder": str(folder)}


def _generate(command: Any, out: Path) -> dict[str, Any]:
    from moac.kuairand import generate

    order = generate.Order(command.rows, command.variant, command.seed, command.random_rows)
    with Stages() as stages:
        folder = generate.write(order, out, lambda done, total: stages.show("rows", done, total))
    sys.stderr.write(f"written: {folder}\n")
    return {"variant": command.variant, "rows": command.rows, "seed": command.seed, "folder": str(folder)}


def _build(command: Any, out: Path) -> dict[str, Any]:
    from moac.logs.building import Options, build

    names = ("actions", "split_seed", "shares", "random_log", "video_statistics", "memory_limit", "threads")
    files.check_folder("out", out.parent)
    chosen: dict[str, Any] = {name: getattr(command, name) for name in names}
    opened = executors.opened(command.executor, workers=command.workers, address=command.address)
    try:
        with opened as executor, Stages() as stages:
            about = build(command.source, out, Options(**chosen, executor=executor), stages.show)
    except KeyboardInterrupt:
        sys.stderr.write(f"what has finished is kept: the same command continues {out}\n")
        raise
    for name in about["absent"]:
        sys.stderr.write(f"absent: {name}\n")
    for warning in about["warnings"]:
        sys.stderr.write(f"warning: {warning}\n")
    rows, logs = about["parts"]["rows"], about["logs"]
    if not command.json:
        for name, log in logs.items():
            sys.stdout.write(f"{name} log: {log['rows_read']:,} rows, {log['rows']:,} without exact duplicates\n")
        sys.stdout.write(
            f"{rows['rows']:,} rows of {rows['users']:,} users on {command.actions} videos: {out}\n"
            f"see moac data kuairand describe {out}\n"
        )
    counts = {name: {key: log[key] for key in ("rows_read", "duplicates", "rows")} for name, log in logs.items()}
    return {
        "data": str(out), "name": about["name"], "content": about["content"], "logs": counts, "rows": rows["rows"],
        "users": rows["users"], "actions": command.actions, "absent": about["absent"], "warnings": about["warnings"],
    }  # fmt: skip
