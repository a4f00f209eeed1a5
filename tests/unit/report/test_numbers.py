"""Numbers as people read them."""

import numpy as np
import pytest

from moac.report import numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "–"),
        (None, "–"),
        (float("-inf"), "−∞"),
        (0.0, "0"),
        (-0.25, "−0.25"),
        (1 / 3, "0.3333"),
        (5.584e-7, "5.584 × 10⁻⁷"),
        (123456.0, "1.235 × 10⁵"),
        (9.99996, "10"),
        (12346.0, "12350"),
        (2000, "2000"),
        (2_000_000, "2\u202f000\u202f000"),
        (np.int64(-3), "−3"),
        (np.float32(0.5), "0.5"),
        (True, "yes"),
        ("as it is -1", "as it is -1"),
    ],
)
def test_values_as_people_read_them(value, expected):
    assert numbers.text(value) == expected


@pytest.mark.parametrize(
    ("mean", "half", "expected"),
    [
        (-0.010365, 0.00146, "−0.0104 ± 0.0015"),
        (5.74e-7, 8.3e-8, "(5.74 ± 0.83) × 10⁻⁷"),
        (123.4, 21.0, "123 ± 21"),
        (1.0, 0.0, "1.000 ± 0.000"),
        (0.0, 0.0, "0.000 ± 0.000"),
        (1.0, 1e-12, "1 ± 1.0 × 10⁻¹²"),
        (0.5, float("nan"), "0.5"),
        (float("nan"), float("nan"), "–"),
    ],
)
def test_a_mean_with_its_interval(mean, half, expected):
    assert numbers.plus_minus(mean, half) == expected


@pytest.mark.parametrize(
    ("share", "interval", "expected"),
    [
        (0.0112, (0.009, 0.0139), "+1.1\u00a0% [+0.9, +1.4]"),
        (-0.3, (-0.5, 0.1), "−30.0\u00a0% [−50.0, +10.0]"),
        (0.02, (float("nan"), 0.1), "+2.0\u00a0%"),
    ],
)
def test_a_change_with_its_interval(share, interval, expected):
    assert numbers.change(share, interval) == expected


def test_a_value_has_the_digits_that_its_interval_gives_it():
    assert numbers.with_interval(0.0016123, (0.000512, 0.002345), sign=True) == "+0.00161 [+0.00051, +0.00234]"
    assert numbers.with_interval(-2.3425, (-2.4722, -2.2097)) == "−2.34 [−2.47, −2.21]"
    assert numbers.with_interval(0.25, (float("nan"), float("nan"))) == "0.25"
