"""`moac report`: the page of a run or an experiment, made again from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import tyro

from moac.cli.options import Command, RunPath


@final
@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write the report of a run or an experiment again, from its folder alone."""

    path: tyro.conf.Positional[RunPath]

    def run(self) -> int:
        """Write the page and say where it is."""
        from moac.cli.console import print_json, print_paths
        from moac.report import pages

        report = pages.write(self.path)
        if self.json:
            print_json({"report": str(report)})
        else:
            print_paths(report=report)
        return 0
