"""Arguments are checked by their declared types: one line names the argument, what is right and what was given."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Bool, Float, Int

import moac
from moac import Config, arguments, momdp, simplex, theory, weighting
from moac.arguments import Numbers, checked
from moac.choices import COUNT, POSITIVE, shown
from moac.types import Critic, Policy

MODEL = momdp.library.fishwood()


@checked
def function(
    run: str | Path | Somewhere,
    count: int = 1,
    *more: str,
    share: float | None = None,
    trust: bool = False,
    draw: Literal["random", "grid"] | None = None,
    names: Sequence[str] = (),
    shares: tuple[float, float, float] = (1.0, 0.0, 0.0),
    hidden: tuple[int, ...] = (),
    check: Callable[[], None] | None = None,
    about: Mapping[str, Any] | None = None,
    policy: str | Policy | None = None,
    table: Numbers = 0,
    chance: Float[np.ndarray, "S A"] | None = None,
    index: Int[np.ndarray, " S"] | None = None,
    done: Bool[np.ndarray, "... S"] | None = None,
    config: Config | None = None,
    **others: Any,
) -> str:
    """Says so."""
    return f"{run} {count}"


class Somewhere:
    """By the name of the class in the signature."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"run": 3}, "`run` must be a path or a Somewhere, got 3."),
        ({"run": None}, "`run` must be a path or a Somewhere, got None."),
        ({"run": "x" * 300}, "`run` must be a path of one line that a file system can hold, got 'xxx"),
        ({"run": "\0"}, r"`run` must be a path of one line that a file system can hold, got '\\x00'."),
        ({"count": 1.5}, "`count` must be a whole number, got 1.5."),
        ({"count": True}, "`count` must be a whole number, got True."),
        ({"count": np.float64(2)}, "`count` must be a whole number, got 2.0."),
        ({"share": "0.5"}, "`share` must be a number, got '0.5'."),
        ({"share": True}, "`share` must be a number, got True."),
        ({"share": 1j}, "`share` must be a number, got 1j."),
        ({"share": 10**400}, "`share` must be a number that a float can hold, got 1000"),
        ({"share": 10**5000}, "`share` must be a number that a float can hold, got a value of type int."),
        ({"trust": 1}, "`trust` must be True or False, got 1."),
        ({"draw": "cube"}, "`draw` must be one of random, grid, got 'cube'."),
        ({"draw": 7}, "`draw` must be one of random, grid, got 7."),
        ({"names": (1,)}, r"`names` must be a sequence of texts, got \[1\]."),
        ({"names": 3}, "`names` must be a sequence of texts, got 3."),
        ({"names": iter(["a"])}, "`names` must be a sequence of texts, got <list_iterator"),
        ({"shares": (0.5, 0.5)}, r"`shares` must be 3 numbers, got \[0.5, 0.5\]."),
        ({"shares": (0.5, 0.5, "0")}, r"`shares` must be 3 numbers, got \[0.5, 0.5, '0'\]."),
        ({"hidden": [64, 0.5]}, r"`hidden` must be a sequence of whole numbers, got \[64, 0.5\]."),
        ({"check": 3}, "`check` must be a function, got 3."),
        ({"about": [1]}, r"`about` must be a mapping, got \[1\]."),
        ({"policy": 3}, "`policy` must be a text or an object with `init`, `sample` and `log_prob`, got 3."),
        ({"policy": Policy}, "`policy` must be a text or an object with `init`, `sample` and `log_prob`, got <class"),
        ({"table": [[1], [1, 2]]}, r"`table` must be an array of real numbers, got \[\[1\], \[1, 2\]\]."),
        ({"table": ["1"]}, r"`table` must be an array of real numbers, got \['1'\]."),
        ({"table": [None]}, r"`table` must be an array of real numbers, got \[None\]."),
        ({"table": [10**400]}, "`table` must be an array of real numbers, got "),
        ({"table": 1j * np.eye(2)}, "`table` must be an array of real numbers, got array"),
        ({"chance": np.eye(2)[0]}, "`chance` must be an array of numbers with 2 axes, got array"),
        ({"chance": [[1.0]]}, "`chance` must be an array of numbers with 2 axes, got "),
        ({"index": np.ones(2)}, "`index` must be an array of whole numbers with 1 axis, got array"),
        ({"done": np.ones(2)}, "`done` must be an array of booleans, got array"),
        ({"config": {"seed": 1}}, "`config` must be a Config, whose fields .*, got {'seed': 1}."),
    ],
)
def test_what_is_of_another_type_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=rf"^{message}") as raised:
        function(**{"run": "here"} | given)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "given",
    [
        {"run": Path("here")},
        {"run": Somewhere()},
        {"count": np.int64(3)},
        {"count": np.array(3)},
        {"share": 1},
        {"share": np.float32(0.5)},
        {"share": float("nan")},
        {"share": None},
        {"trust": np.True_},
        {"names": "a"},
        {"names": np.array(["a", "b"])},
        {"shares": [1, 0, 0]},
        {"hidden": range(3)},
        {"check": print},
        {"about": {}},
        {"policy": "table"},
        {"table": [[1, 2], [3, 4]]},
        {"table": np.array([1, 0.5], object)},
        {"table": jnp.zeros(3, jnp.bfloat16)},
        {"chance": jnp.eye(2)},
        {"index": np.arange(3)},
        {"done": np.ones((2, 3, 4), bool)},
        {"config": Config()},
        {"others": 3},
    ],
)
def test_what_is_of_the_declared_type_passes(given):
    assert function(**{"run": "here"} | given)


def test_arguments_by_place_are_checked_like_those_by_name():
    assert function("here", 2, "more") == "here 2"
    with pytest.raises(ValueError, match=r"^`count` must be a whole number, got 'x'"):
        function("here", "x")
    with pytest.raises(ValueError, match=r"^`more` must be a text, got 3"):
        function("here", 2, "a", 3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'run'"):
        function()


def test_scalars_of_numpy_are_taken_as_those_of_python():
    """A short integer of NumPy would overflow in the first product."""
    assert function("here", np.uint8(200)) == "here 200"

    @checked
    def given(count: int, share: float = 0.5, table: Numbers = 0, other: Any = 0) -> Any:
        return type(count), type(share), type(table), type(other)

    assert given(np.uint8(3), share=np.float32(0.5), table=np.ones(2)) == (int, float, np.ndarray, int)
    assert given(np.array(3), 1, other=np.int8(3)) == (int, int, int, np.int8)


def test_numbers_of_a_traced_program_are_numbers():
    @checked
    def scaled(x: Float[np.ndarray, " n"], by: float, times: int) -> Any:
        return x * by * times

    assert jax.vmap(lambda x: jax.jit(scaled)(x, 2.0, 3))(jnp.ones((2, 3))).tolist() == [[6.0] * 3] * 2


def test_a_signature_and_a_docstring_stay():
    assert list(inspect.signature(function).parameters)[:3] == ["run", "count", "more"]
    assert (function.__name__, function.__doc__) == ("function", "Says so.")
    assert str(inspect.signature(moac.load)).startswith("(directory: 'str | Path', trial: 'int' = 0")


def test_a_class_checks_what_it_is_made_of():
    @checked
    @dataclass(frozen=True)
    class Made:
        count: int
        critic: Critic | None = None

    assert Made(3) == Made(count=3)
    with pytest.raises(ValueError, match=r"^`count` must be a whole number, got '3'"):
        Made("3")


def test_every_name_in_a_checked_signature_is_known_or_a_class():
    """A protocol or an alias that only type checkers import would be taken for a class of that name."""
    for place in pkgutil.walk_packages(moac.__path__, "moac."):
        if place.name == "moac.__main__":
            continue
        module = importlib.import_module(place.name)
        for each in vars(module).values():
            owned = vars(each).values() if isinstance(each, type) and each.__module__ == place.name else ()
            for function in (each, *owned):
                function = getattr(function, "__func__", function)
                if getattr(getattr(function, "__code__", None), "co_filename", "") == arguments.__file__:
                    _assert_known(inspect.unwrap(function))


def _assert_known(function):
    for hint in arguments.hints_of(function).values():
        for part in (hint, *getattr(hint, "__args__", ())):
            if isinstance(part, arguments._ByName):
                assert part.__name__ in ("Ground", "Rows", "About", "LoggedDataset"), (
                    f"{function.__qualname__}: {part.__name__}"
                )


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Config(actor_step_size=10**400), "actor_step_size"),
        (lambda: momdp.FiniteMOMDP.from_dense([[[10**400]]], [[[1.0]]]), "P"),
        (lambda: momdp.hypervolume([[10**400, 1]], [0, 0]), "points"),
        (lambda: momdp.hypervolume([[1, 1]], [0, 10**400]), "reference"),
        (lambda: momdp.evaluate(MODEL, [[10**400, 0], [0, 0]], moac.Average()), "logits"),
        (lambda: momdp.evaluate(MODEL, np.zeros((2, 2)), 0.9), "setting"),
        (lambda: weighting.by_name("x"), "name"),
        (lambda: weighting.pcgrad(seed=-1), "seed"),
        (lambda: weighting.with_momentum("min-norm", "1/t"), "rule"),
        (lambda: moac.logs.build({}, user=0), "user"),
        (lambda: theory.ground(MODEL, np.zeros((2, 2)), setting=1.5), "setting"),
        (lambda: moac.explore("fishwood-v0", rules=(1,)), "rules"),
        (lambda: moac.explore("fishwood-v0", draw=7), "draw"),
        (lambda: moac.train("x" * 5000), "problem"),
        (lambda: moac.load("x" * 5000), "directory"),
        (lambda: moac.train("fishwood-v0", seed=2**64), "seed"),
        (lambda: simplex.min_norm("x"), "G"),
    ],
)
def test_a_public_function_names_the_argument_that_is_wrong(call, name):
    with pytest.raises(ValueError, match=rf"^`{name}` must be .*, got .*") as raised:
        call()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 900


def test_values_in_messages_stay_on_one_short_line():
    assert shown(np.eye(3)) == "array([[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]])"
    assert shown((np.float64(0.5), "x")) == "[0.5, 'x']"
    assert len(shown("x" * 5000)) < 350
    assert shown(10**5000) == "a value of type int"

    endless: list[Any] = [1]
    endless.append(endless)
    assert len(shown(endless)) < 350


def test_a_range_refuses_what_its_numbers_cannot_hold():
    with pytest.raises(ValueError, match=r"^`size` must be a number that a float can hold, got 1000"):
        POSITIVE.checked("size", 10**400)
    assert COUNT.checked("size", 10**400) == 10**400
