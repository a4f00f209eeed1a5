"""Values that no function expects, each as the Python that makes it: a failure is then repeated by one line."""

from __future__ import annotations

HOSTILE: tuple[str, ...] = (
    "None", "True", "False", "np.True_", "0", "1", "-1", "3", "2**63", "-(2**63)", "10**400", "-(10**400)",
    "10**5000", "0.5", "1.5", "-0.5", "1e-320", "1e308", "float('nan')", "float('inf')", "-float('inf')", "1j",
    "Fraction(1, 3)", "Decimal('0.5')", "np.float32(0.5)", "np.float64('nan')", "np.int64(-1)", "np.uint8(3)",
    "np.datetime64('2024-01-01')", "np.array(1.5)", "np.array(2)", "''", "' '", "'x'", "'nan'", "'0.5,0.5'",
    "'x' * 5000", "'\\0'", "'\\ud800'", "'a\\nb'", "'[/red]'", "'x=1'", "'x=-1%'", "'../..'", "'/missing/place'",
    "'/dev/null'", "'~'", "'a' * 300 + '.toml'", "b'x'", "Path('missing')", "Path('y' * 300)", "[]", "()", "{}",
    "set()", "[1]", "[True]", "[-1]", "[0, 0]", "[None]", "[2**63]", "[10**400]", "[float('nan')] * 2", "[0.5, 0.5]",
    "[0.2, 0.9]", "[-0.5, 1.5]", "['a', 'b']", "['a', 1]", "[[1, 2], [3]]", "[[]]", "[[[1]]]", "{'a': 1}", "{1: 'a'}",
    "{1, 2}", "range(3)", "iter([1, 2])", "(each for each in 'ab')", "deep(500)", "endless()", "np.zeros(0)",
    "np.zeros((0, 2))", "np.ones(2)", "np.eye(3)", "np.full((2, 2), np.nan)", "np.full(2, 1e200)",
    "np.arange(24.0).reshape(2, 3, 4)", "np.zeros((1, 1, 1, 1))", "np.eye(2) * 1j", "np.array(['a', 'b'])",
    "np.array([None, 1], object)", "np.array([10**400], object)", "np.array([True, False])", "np.ma.masked",
    "jnp.ones(2)", "jax.random.key(0)", "jnp.zeros((2, 2), jnp.bfloat16)", "object()", "Rude()", "int",
    "Exception('x')", "len", "lambda *given, **named: None", "np", "...", "NotImplemented",
)  # fmt: skip
"""As expressions, with `NAMES`."""


class Rude:
    """It cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no")


def deep(levels):
    """Lists in lists."""
    made = []
    for _ in range(levels):
        made = [made]
    return made


def endless():
    """A list that holds itself."""
    made = [1]
    made.append(made)
    return made
