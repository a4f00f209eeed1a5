"""`moac theory` as a user meets it."""

import json

import numpy as np
import pytest

from moac import momdp
from moac.cli import main as cli


def _json(capsys, *arguments):
    assert cli.main(["theory", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_table_for_people(capsys):
    assert cli.main(["theory", "resource-gathering-v0"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Vacuous in practice") and "moac certify" in out and "asks for nothing" not in out
    for word in ("irreducible", "λ_A", "ρ, κ certified", "our plan, derived", "× 10", "uniform policy"):
        assert word in out


def test_an_object_for_programs(capsys):
    data = _json(capsys, "fishwood-v0", "--epsilon", "0.001", "--setting", "average")
    assert data["setting"] == "average"
    assert data["policies"] == 1
    failing = [a["name"] for a in data["assumptions"] if a["status"] == "fails"]
    assert failing == ["no u with Φu = 1", "λ_A > 0"]
    assert data["constants"]["lambda_A_modulo_constants"] == pytest.approx(1)
    assert data["plans"]["plan, derived"]["bound"] <= 0.001 * (1 + 1e-9)
    assert data["plans"]["corollaries"]["bound"] > 0.001


def test_a_reference_state_mends_the_average_setting(capsys):
    data = _json(capsys, "fishwood-v0", "--setting", "average", "--features", "one-hot-reference")
    assert not [a for a in data["assumptions"] if a["status"] == "fails"]


def test_plain_mgda_has_no_plan_and_says_so(capsys):
    data = _json(capsys, "fishwood-v0", "--momentum", "1")
    assert data["plans"]["plan, derived"]["T"] is None
    assert any("No number of iterations" in note for note in data["notes"])


def test_what_was_certified_stands_beside_the_bounds(capsys, tmp_path):
    run = str(tmp_path / "run")
    assert cli.main(["train", "fishwood-v0", "--iterations", "20", "--out", run]) == 0
    assert cli.main(["theory", "fishwood-v0", "--run", run]) == 0
    assert f"moac certify {run} measures" in "".join(capsys.readouterr().out.split("\n"))
    assert cli.main(["certify", run, "--episodes", "100", "--json"]) == 0
    certificate = json.loads(capsys.readouterr().out.splitlines()[-1])
    data = _json(capsys, "fishwood-v0", "--run", run)
    assert data["certificates"] == [{k: certificate[k] for k in ("trial", "low", "high", "confidence", "metric")}]
    assert cli.main(["theory", "fishwood-v0", "--run", run]) == 0
    assert "moac certify: trial 0 has a stationarity gap in [" in capsys.readouterr().out


def test_a_run_gives_its_settings_its_policies_and_its_practice(capsys, tmp_path):
    run = tmp_path / "run"
    options = ("--trials", "3", "--iterations", "20", "--setting", "average", "--momentum", "1/t^2")
    assert cli.main(["train", "fishwood-v0", *options, "--out", str(run)]) == 0
    capsys.readouterr()
    data = _json(capsys, "fishwood-v0", "--run", str(run), "--epsilon", "0.5")
    assert (data["setting"], data["momentum"], data["policies"]) == ("average", "1/t^2", 7)
    assert data["practice"]["iterations"] == 1
    assert (data["practice"]["samples"], data["practice"]["total"]) == (5 * 64 + 128, 20 * (5 * 64 + 128))  # ND + B
    assert data["constants"]["L_J"] >= data["constants_at_start"]["L_J"]
    assert any("asks for nothing" in note for note in data["notes"])
    assert cli.main(["theory", "fishwood-v0", "--run", str(run)]) == 0
    assert "worst along the run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fishwood-v0", "--epsilon", "-1"), "`epsilon` must be positive"),
        (("fishwood-v0", "--epsilon", "nan"), "`epsilon` must be positive"),
        (("fishwood-v0", "--epsilon", "soon"), "`--epsilon` must be a number"),
        (("nowhere-v0",), "`ENV` must have an exact model ("),
        (("fishwood-v0", "--features", "wavelets"), "`features` must be one of"),
        (("fishwood-v0", "--setting", "average", "--discount", "0.9"), "`discount` must be left out"),
        (("fishwood-v0", "--run", "missing", "--momentum", "1"), "`momentum` must be left out with --run"),
        (("fishwood-v0", "--run", "missing"), "missing"),
    ],
)
def test_mistakes_end_with_one_line(capsys, arguments, words):
    assert cli.main(["theory", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_a_chain_without_one_law_still_gets_its_verdicts():
    from moac.config import Config, Discounted
    from moac.theory import guarantees

    stay = np.zeros((2, 1, 2))
    stay[0, 0, 0] = stay[1, 0, 1] = 1.0
    model = momdp.FiniteMOMDP.from_dense(stay, np.ones((2, 1, 1)))
    found = guarantees(model, Config(setting=Discounted(0.9)), 0.1)
    assert found.assumptions[0].assumption.status == "fails"
    assert found.worst is None
    assert not found.plans
    assert any(note.startswith("No constants") for note in found.notes)


def test_a_periodic_chain_gets_constants_and_no_plan():
    from moac.config import Config, Discounted
    from moac.theory import guarantees

    swap = np.zeros((2, 1, 2))
    swap[0, 0, 1] = swap[1, 0, 0] = 1.0
    model = momdp.FiniteMOMDP.from_dense(swap, np.array([[[1.0]], [[0.0]]]))
    found = guarantees(model, Config(setting=Discounted(0.9)), 0.1)
    assert found.worst is not None
    assert found.worst.mixing.rho == 1
    assert not found.plans
    assert any("periodic" in note for note in found.notes)
