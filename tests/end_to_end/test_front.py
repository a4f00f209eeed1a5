import json

import numpy as np
import pytest

from moac.cli.main import main


def test_text(capsys):
    assert main(["front", "resource-gathering-v0", "--discount", "0.9"]) == 0
    out, err = capsys.readouterr()
    rows = [line for line in out.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in rows[7].split("│")[1:-1]] == ["8", "0.00000", "0.31381", "0.00000", "yes"]
    assert len(rows) == 9
    assert "93 states. Uniform policy: stationarity gap" in out
    assert err == ""


def test_json_and_figure(capsys, tmp_path):
    out = tmp_path / "new" / "folder"
    assert main(["front", "deep-sea-treasure-v0", "--discount", "0.99", "--out", str(out), "--json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out.splitlines()[-1])
    assert shown.err == f"figure: {out / 'front.png'}\n"
    assert answer["objectives"] == ["treasure", "time"]
    assert answer["discount"] == [0.99]
    assert np.shape(answer["points"]) == (10, 2)
    assert len(answer["hull"]) == 10
    assert answer["figure"] == str(out / "front.png")
    assert sorted(path.name for path in out.iterdir()) == ["front.png", "front.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resource-gathering-v0", "--discount", "1"], "`discount` must be in (0, 1), got 1.0."),
        (["resource-gathering-v0", "--discount", ".9", ".8"], "one per objective (3), got 2."),
        (["resource-gathering"], "Did you mean resource-gathering-v0?"),
        (["fishwood-v0", "--memory"], "grows without bound"),
        (["resource-gathering-v0", "--out", __file__], "`out` must be a folder"),
        (["resource-gathering-v0", "--out", f"{__file__}/x"], "`out` must be a folder"),
    ],
)
def test_mistakes(arguments, message, capsys):
    assert main(["front", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("moac: ")
    assert err.count("\n") == 1
    assert message in err
