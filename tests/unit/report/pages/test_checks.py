"""Tables of what was tried to refute an estimate."""

from types import SimpleNamespace

import numpy as np

from moac.offline.ncis.checks import Controlled
from moac.report.pages.checks import control_rows


def test_a_control_that_does_not_vary_has_no_number():
    change, names = np.array([0.01, np.nan]), ("Click", "Shown")
    interval = np.stack([change - 0.02, change + 0.02], axis=1)
    control = Controlled("earlier rewards", names, change, interval, np.ones(2), 900, None, False, True)
    checks = SimpleNamespace(controls=(control,), half_width=np.array([0.02, 0.0]))
    report = SimpleNamespace(policies={"MOAC": SimpleNamespace(checks=checks)}, signal_names=names)
    rows = control_rows(SimpleNamespace(report=report), "MOAC")
    assert rows[0][3] == "has power" and "1.0" in rows[0][2]
    assert rows[1] == ("earlier rewards", "Shown", "–", "no power: it does not vary")
