"""Arrays that write down what is computed with them, as an ONNX graph.

Policies are written for any array namespace, NumPy's as JAX's. On these arrays they draw their own graph, so that an
exported policy is the code that was trained, and what is exported cannot drift from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from moac.choices import package

_OPSET, _IR = 18, 8  # of ONNX 1.13, from 2022; whatever runs ONNX files reads them
_BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "truediv": "Div", "floordiv": "Div", "mod": "Mod", "pow": "Pow",
    "matmul": "MatMul", "xor": "BitwiseXor", "rshift": "BitShift", "eq": "Equal", "ge": "GreaterOrEqual",
}  # fmt: skip
"""Operators; `//` and `%` are of whole numbers that are not negative."""
_COMPARISONS = ("Equal", "GreaterOrEqual")
_UNARY = {"tanh": "Tanh", "exp": "Exp", "cos": "Cos", "sqrt": "Sqrt", "abs": "Abs", "floor": "Floor", "rint": "Round"}
Array = Any
"""A `Symbol`, where operators are used that it has from `_BINARY`."""
_LAST = np.iinfo(np.int64).max


class Graph:
    """A graph: inputs, constants and nodes, in the order in which they came."""

    def __init__(self) -> None:
        self.onnx: Any = package("onnx", "onnx", "an export to ONNX")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._ends: dict[str, list[Any]] = {"inputs": [], "outputs": []}
        self.functions: Any = Namespace(self)

    def input(self, name: str, dtype: Any, *shape: int | str) -> Array:
        """An input [n, …]; axes of any length have a name."""
        symbol = Symbol(self, name, np.dtype(dtype))
        self._ends["inputs"].append(self._described(symbol, shape))
        return symbol

    def output(self, name: str, symbol: Symbol, *shape: int | str) -> None:
        """Name a result [n, …]."""
        self._nodes.append(self.onnx.helper.make_node("Identity", [symbol.name], [name]))
        self._ends["outputs"].append(self._described(Symbol(self, name, symbol.dtype), shape))

    def constant(self, value: Any) -> Array:
        """Numbers that are part of the file."""
        value, name = np.asarray(value), f"constant{len(self._constants)}"
        self._constants.append(self.onnx.numpy_helper.from_array(value, name))
        return Symbol(self, name, value.dtype, value)

    def node(self, kind: str, inputs: Sequence[Symbol], dtype: Any, **attributes: Any) -> Symbol:
        """What an operator of ONNX makes of its inputs."""
        name = f"node{len(self._nodes)}"
        self._nodes.append(self.onnx.helper.make_node(kind, [each.name for each in inputs], [name], **attributes))
        return Symbol(self, name, np.dtype(dtype))

    def file(self, name: str, about: dict[str, str], **producer: str) -> bytes:
        """The checked model as a file's content."""
        helper = self.onnx.helper
        graph = helper.make_graph(self._nodes, name, *self._ends.values(), initializer=self._used())
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=_IR, **producer)
        helper.set_model_props(model, about)
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()

    def kind(self, dtype: Any) -> int:
        """ONNX's number for a kind of numbers."""
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def _used(self) -> list[Any]:
        """Without constants of which only a part is read."""
        used = {name for node in self._nodes for name in node.input}
        return [each for each in self._constants if each.name in used]

    def _described(self, symbol: Symbol, shape: Sequence[int | str]) -> Any:
        return self.onnx.helper.make_tensor_value_info(symbol.name, self.kind(symbol.dtype), ("n", *shape))


class Symbol:
    """An array of a graph; of constants the value is known."""

    __array_ufunc__ = None  # NumPy's arrays leave operators to the symbol beside them

    def __init__(self, graph: Graph, name: str, dtype: Any, value: Any = None) -> None:
        self.graph, self.name, self.dtype, self.value = graph, name, dtype, value

    def __array_namespace__(self) -> Namespace:
        return self.graph.functions

    def __neg__(self) -> Symbol:
        return self.graph.node("Neg", [self], self.dtype)

    @property
    def T(self) -> Symbol:  # noqa: N802 - as NumPy has it
        """The other way round."""
        return self.graph.node("Transpose", [self], self.dtype)

    def __getitem__(self, index: Any) -> Symbol:
        """Rows by a symbol; parts of the last axis, or a new one beside it; anything of a constant."""
        if isinstance(index, Symbol):
            return self.graph.node("Gather", [self, index], self.dtype)
        if self.value is not None:
            return self.graph.constant(self.value[index])
        match index:
            case (_, None):
                return self._by("Unsqueeze", -1)
            case (_, None, slice()):
                return self._by("Unsqueeze", -2)
            case (_, slice() as part):
                return self._by("Slice", part.start or 0, _LAST if part.stop is None else part.stop, -1)
            case _:  # a whole number, or several
                return self.graph.node("Gather", [self, self.graph.constant(index[1])], self.dtype, axis=-1)

    def astype(self, dtype: Any) -> Symbol:
        """As numbers of another kind."""
        if np.dtype(dtype) == self.dtype:
            return self
        return self.graph.node("Cast", [self], dtype, to=self.graph.kind(dtype))

    def reshape(self, *shape: int) -> Symbol:
        """With other axes."""
        return self.graph.node("Reshape", [self, self.graph.constant(np.array(shape))], self.dtype)

    def sum(self, axis: int, dtype: Any = None, keepdims: bool = False) -> Symbol:
        """Over an axis; of whole numbers in 64 bits, before they become `dtype`."""
        wide = self.astype(np.int64) if self.dtype.kind in "iu" else self
        return wide._by("ReduceSum", axis, keepdims=keepdims).astype(dtype or self.dtype)

    def max(self, axis: int, keepdims: bool = False) -> Symbol:
        """Over an axis."""
        return self._by("ReduceMax", axis, keepdims=keepdims)

    def min(self, axis: int) -> Symbol:
        """Over an axis."""
        return self._by("ReduceMin", axis, keepdims=False)

    def _by(self, kind: str, *numbers: int, **attributes: Any) -> Symbol:
        """By an operator whose other inputs are single numbers."""
        others = [self.graph.constant(np.array([number])) for number in numbers]
        return self.graph.node(kind, [self, *others], self.dtype, **attributes)


class Namespace:
    """The functions of NumPy that policies use, and `softmax` and `argmax`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        for name, kind in _UNARY.items():
            setattr(self, name, lambda x, kind=kind: graph.node(kind, [x], x.dtype))
        self.maximum, self.minimum = partial(_binary, "Max"), partial(_binary, "Min")

    def where(self, condition: Any, a: Any, b: Any) -> Symbol:
        """One or the other, number by number."""
        first, second = _alike(self._graph, a, b)
        chosen = condition if isinstance(condition, Symbol) else self._graph.constant(condition)
        return self._graph.node("Where", [chosen, first, second], first.dtype)

    def concatenate(self, parts: Sequence[Symbol], axis: int) -> Symbol:
        """One after the other along an axis."""
        return self._graph.node("Concat", parts, parts[0].dtype, axis=axis)

    def take_along_axis(self, x: Symbol, places: Symbol, axis: int) -> Symbol:
        """The numbers at these places of an axis."""
        return self._graph.node("GatherElements", [x, places], x.dtype, axis=axis)

    def softmax(self, x: Symbol) -> Symbol:
        """Over the last axis."""
        return self._graph.node("Softmax", [x], x.dtype, axis=-1)

    def argmax(self, x: Symbol) -> Symbol:
        """Over the last axis, the first of equals."""
        return self._graph.node("ArgMax", [x], np.int64, axis=-1, keepdims=0)


def _binary(kind: str, a: Any, b: Any) -> Symbol:
    """An operator of two arrays, of which one is a symbol."""
    graph = a.graph if isinstance(a, Symbol) else b.graph
    inputs = _alike(graph, a, b)
    attributes = {"direction": "RIGHT"} if kind == "BitShift" else {}
    return graph.node(kind, inputs, bool if kind in _COMPARISONS else inputs[0].dtype, **attributes)


def _alike(graph: Graph, *parts: Any) -> list[Symbol]:
    """Symbols of one kind of numbers, by NumPy's rules: a Python number takes that of the others."""
    dtype = np.result_type(*(part.dtype if hasattr(part, "dtype") else part for part in parts))
    symbols = (part if isinstance(part, Symbol) else graph.constant(np.asarray(part, dtype)) for part in parts)
    return [symbol.astype(dtype) for symbol in symbols]


def _operator(kind: str, swapped: bool) -> Callable[[Any, Any], Symbol]:
    return (lambda a, b: _binary(kind, b, a)) if swapped else (lambda a, b: _binary(kind, a, b))


for _name, _kind in _BINARY.items():
    setattr(Symbol, f"__{_name}__", _operator(_kind, False))
    setattr(Symbol, f"__r{_name}__", _operator(_kind, True))
