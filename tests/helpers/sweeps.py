"""A small sweep, run here by the serial executor: what the others must equal byte for byte."""

from moac.report.pages import sweep as page
from moac.runs import executors
from moac.search import sweep as running
from moac.search import sweep_spec as spec

FILES = ("results.csv", "results.json", "report.html")


def run(path, out, executor=None):
    """All of `moac sweep` but its command line; the failures by label."""
    failed = {}

    def ended(job, failure):
        if failure is not None:
            failed[job.cell.label] = failure

    swept = running.sweep(spec.load(path), out, executor or executors.Serial(), ended)
    page.save(swept, out)
    return failed


def contents(out):
    """What must not depend on where it was run."""
    return {name: (out / name).read_bytes() for name in FILES}


def finished(out):
    """When each finished task was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (out / "tasks").glob("*/policy.safetensors")}
