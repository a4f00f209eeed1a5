"""Test users, read once for the settings that validation users have chosen, and noted before they are."""

from __future__ import annotations

from collections.abc import Mapping

from moac import files
from moac.logs.dataset import LoggedDataset
from moac.offline import access_log
from moac_studies.comparison import judgements
from moac_studies.comparison.judgements import Judgement
from moac_studies.comparison.measure import Trained
from moac_studies.studies import Workspace


def once(dataset: LoggedDataset, chosen: Mapping[str, Trained], work: Workspace) -> dict[str, Judgement]:
    """What test users say; of the same policies and data an earlier answer is taken, and they are not asked again."""
    methods = {name: each.judged_as for name, each in chosen.items()}
    asked = {"data": dataset.fingerprint, "policies": access_log.fingerprints(methods)}
    path = work.folder / "test.json"
    kept = files.read_json(path) if path.exists() else {}
    if kept.get("asked") == asked:
        return {name: Judgement.of_dict(own) for name, own in kept["judged"].items()}
    options = {"study": "comparison", "settings": {name: dict(each.setting) for name, each in chosen.items()}}
    work.say(str(access_log.record(work.folder, dataset, "test", options, methods)))
    judged = judgements.of_split(dataset, methods, "test")
    files.write_json(path, {"asked": asked, "judged": {name: own.as_dict() for name, own in judged.items()}})
    return judged
