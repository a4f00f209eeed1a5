"""A dataset in numbers."""

import numpy as np

from moac.kuairand.schema import SIGNALS
from moac.logs.folder import per_user, signal_table


def test_shares_are_of_all_amounts_as_in_the_papers_table():
    """The printed amounts give the printed shares."""
    amounts = [254_940, 5_190, 203, 1_438, 349, 213, 199_122]
    found = signal_table([signal.name for signal in SIGNALS], amounts, amounts, 480_385)
    shares = [round(100 * signal["share"], 3) for signal in found.values()]
    np.testing.assert_allclose(shares, [55.25, 1.125, 0.044, 0.312, 0.076, 0.046, 43.15], atol=5e-3)


def test_quantiles_of_a_number_per_user():
    found = per_user([1, 2, 3, 4, 100])
    assert (found["min"], found["median"], found["max"], found["mean"]) == (1, 3, 100, 22)
    assert per_user([])["mean"] == 0
