"""`moac export`: a trained policy as a file that other programs run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

import moac
from moac.cli.console import print_paths
from moac.cli.options import Answer, Command, RunPath, option


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a trained policy as an ONNX file, which runs without moac."""

    run_path: tyro.conf.Positional[RunPath]
    format: Literal["onnx"] = "onnx"
    """File format."""
    trial: int = 0
    """Trial of the run, or policy of an exploration's archive."""
    preference: Annotated[tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: an input of the file")] = None
    """Preference of a conditioned network: one number per objective, summing to 1."""
    out: Annotated[Path | None, option("FILE", "default: RUN/policy.onnx")] = None
    """Output file; an existing one is replaced."""

    def answer(self) -> Answer:
        """Write the file and say where it is."""
        from moac import files

        out = self.out or files.below(self.run_path, "policy.onnx")
        moac.export(self.run_path, out, format=self.format, trial=self.trial, preference=self.preference)
        return Answer({"file": str(out), "bytes": out.stat().st_size}, lambda: print_paths(file=out))
