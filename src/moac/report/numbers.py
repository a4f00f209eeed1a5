"""Numbers as people read them."""

from __future__ import annotations

import math
import re

import numpy as np

Value = str | int | float | None
"""What a page shows: a text as it is, a number, or nothing known."""

UNKNOWN = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN = range(-3, 5)  # powers of ten that are written out
_GROUPED = 10_000  # from here on the digits of a whole number stand in groups of three
_FINEST = 8  # decimals at most
_ROUNDING = 1e-7  # an interval that is narrower than this share of its value has no width
_EXPONENT = re.compile(r"(?<![\w.])([-−]?)(\d\.?\d*)e([+-]\d+)")
_HYPHEN = re.compile(r"(?<![\w.-])-(?=\.?\d)")
"""Before a number and after no word: a minus sign, where a text was made by Python's formatting."""


def text(value: Value) -> str:
    """Any value as text; a half of a surrogate pair, which no file can hold, is replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return number(value)


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits; `–` where it is not known.

    >>> number(0.25), number(-5.584e-7), number(2000000), number(float("nan"))
    ('0.25', '−5.584 × 10⁻⁷', '2 000 000', '–')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if math.isinf(value):
        return _signed("-∞" if value < 0 else "∞")
    if isinstance(value, int | np.integer):
        grouped = f"{int(value):,}" if abs(value) >= _GROUPED else str(int(value))
        return _signed(grouped.replace(",", "\u202f"))
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    if value == 0.0 or int(power) in _PLAIN:
        return _signed(f"{float(f'{mantissa}e{power}'):.12g}")
    return _signed(mantissa) + times_power(int(power))


def plus_minus(mean: float, half: float) -> str:
    """A mean and its uncertainty, to the digits that mean something; the mean alone where that is not known.

    >>> plus_minus(-0.010365, 0.00146), plus_minus(5.74e-7, 8.3e-8)
    ('−0.0104 ± 0.0015', '(5.74 ± 0.83) × 10⁻⁷')
    """
    if not math.isfinite(mean + half):
        return number(mean)
    power = _power(max(abs(mean), half))
    shift = 0 if power in _PLAIN else power
    scaled, width = mean / 10.0**shift, half / 10.0**shift
    decimals = max(0, 1 - _power(width) if width > 0 else 3 - _power(scaled))
    if decimals > _FINEST:
        return f"{number(mean)} ± {number(half, 2)}"
    pair = _signed(f"{scaled:.{decimals}f} ± {width:.{decimals}f}")
    return f"({pair}){times_power(shift)}" if shift else pair


def with_interval(value: float, interval: tuple[float, float], sign: bool = False) -> str:
    """A value and its interval, to the digits that mean something; `sign` shows a plus as well.

    >>> with_interval(0.0016123, (0.000512, 0.002345), sign=True), with_interval(2.3425, (2.2097, 2.4722))
    ('+0.00161 [+0.00051, +0.00234]', '2.34 [2.21, 2.47]')
    >>> with_interval(-15.7056806640, (-15.7056806641, -15.7056806639))  # an interval of rounding alone
    '−15.71 [−15.71, −15.71]'
    """
    low, high = interval
    if not math.isfinite(low + high):
        return number(value)
    width = (high - low) / 2
    apart = width > _ROUNDING * abs(value)
    decimals = min(_FINEST, max(0, 1 - _power(width) if apart else 3 - _power(value)))
    form = f"{'+' if sign else ''}.{decimals}f"
    return _signed(f"{value:{form}} [{low:{form}}, {high:{form}}]")


def signed_percent(share: float, digits: int = 1) -> str:
    """A change in per cent: +1.1 %, −30.0 %."""
    return _signed(f"{100 * share:+.{digits}f}\u00a0%")


def change(share: float, interval: tuple[float, float]) -> str:
    """A change in per cent with its interval, where that is known.

    >>> change(0.0112, (0.009, 0.0139)).replace("\u00a0", " "), change(-0.3, (float("nan"), 0.1))[:5]
    ('+1.1 % [+0.9, +1.4]', '−30.0')
    """
    if not math.isfinite(interval[0] + interval[1]):
        return signed_percent(share)
    return signed_percent(share) + _signed(f" [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]")


def times_power(power: int) -> str:
    """A power of ten as a factor: ` × 10⁻⁷`."""
    return f" × 10{str(power).translate(_SUPERSCRIPTS)}"


def typeset(told: str) -> str:
    """A text in which Python has formatted numbers, with minus signs and powers of ten.

    >>> typeset("gap 7.02e-06 [-6.4e-08, 1.4e+05], of mo-car-v0 -0.2")
    'gap 7.02 × 10⁻⁶ [−6.4 × 10⁻⁸, 1.4 × 10⁵], of mo-car-v0 −0.2'
    """
    powers = _EXPONENT.sub(lambda found: f"{found[1]}{found[2]}{times_power(int(found[3]))}", told)
    return _HYPHEN.sub("−", powers)


def _power(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _signed(digits: str) -> str:
    return digits.replace("-", "−")
