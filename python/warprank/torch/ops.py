# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of a PyTorch program in a graph: elementwise functions, activations, masks, reductions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import warprank as wr

from . import cross, din, events, fields
from .cells import Unsupported, Value
from .expressions import constant, distinct, elementwise
from .handlers import HANDLERS, OF_CONSTANTS, constant_rows, handles, numbers, row_dimension

if TYPE_CHECKING:
    from .program import Program

KEPT_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # all is computed in FP32


def constant_vector(p: Program, x: torch.Tensor, like: Value) -> np.ndarray:
    """A constant for each column of a row."""
    return np.ascontiguousarray(np.broadcast_to(constant_rows(p, x, like), like.cells.shape).ravel(), np.float32)


def affine(p: Program, x: Value, scale: np.ndarray, shift: np.ndarray) -> Value:
    """x * scale + shift by column: a batch norm whose statistics change nothing."""
    axis = p.sources.axis_of(x.cells)

    def make() -> wr.Tensor:
        layer = p.layer(None)
        p.weights.update({f"{layer}.weight": scale, f"{layer}.bias": shift,
                          f"{layer}.running_mean": np.zeros_like(scale), f"{layer}.running_var": np.ones_like(scale)})
        return p.builder.batch_norm(layer, p.sources.gather(x.cells, axis), eps=0.0)
    cells = p.sources.add(axis, x.cells.size, "affine", make, (x.cells.ravel(),), (scale, shift))
    return x.like(cells.reshape(x.cells.shape))


def apply(p: Program, function: str, *operands: Any) -> Value:
    """Of batches, which are broadcast, and numbers."""
    values = [numbers(x) for x in operands if isinstance(x, Value)]
    like = max(values, key=lambda v: v.cells.ndim)
    for v in values:
        if (v.batch, v.inner) != (like.batch, like.inner) or v.cells.shape[v.batch] != like.cells.shape[like.batch]:
            raise Unsupported("batches whose rows lie along one dimension",
                              " and ".join(f"dimension {v.batch} of {v.cells.ndim}" for v in values))
    shape = np.broadcast_shapes(*(v.cells.shape for v in values))
    width = math.prod(shape)
    axis = p.sources.axis_of(*(v.cells for v in values))

    def operand(x: Any) -> Any:
        if not isinstance(x, Value):
            return float(x)
        return x.cells.ravel() if x.cells.size == 1 else np.broadcast_to(x.cells, shape).ravel()  # one serves all
    given = [operand(x) for x in operands]
    first, which = distinct(given, width)
    given = [x[first] if isinstance(x, np.ndarray) and len(x) > 1 else x for x in given]
    cells = recognised(p, function, given, len(first))
    if cells is None:
        cells = elementwise(p, function, given, len(first), axis)
        if function in ("add", "mul"):
            dice(p, cells)
    return like.like(cells[which].reshape(shape))


def recognised(p: Program, function: str, given: list[Any], width: int) -> np.ndarray | None:
    """What an elementwise function completes, of which the library has all in one op."""
    if function == "sub":
        return fields.factorisation_machine(p, given[0], given[1], width)
    if function == "add":
        crossed = cross.cross(p, given[0], given[1], width)
        return crossed if crossed is not None else fields.mixture_of_sum(p, given[0], given[1], width)
    if function == "div":
        mean = events.mean_of_events(p, given[0], given[1], width)
        if mean is not None:
            return mean
    if function in ("mul", "div"):
        for x, factor in ((given[0], given[1]), (given[1], given[0])):
            if isinstance(x, np.ndarray) and len(x) == width and isinstance(factor, float) and \
                    (function == "mul" or x is given[0]):
                return fields.scaled_machine(p, x, factor if function == "mul" else 1 / factor)
    return None


def dice(p: Program, cells: np.ndarray) -> None:
    """Makes them as Dice, where they are. To others they stay what they are, since they may be a part of it."""
    source, _ = p.sources.of(int(cells[0]))
    if source.width != len(cells) or din.dice_of(p, cells[:1]) is None:
        return
    found = din.dice_of(p, cells)
    if found is None or not found[1]["dice.alpha"].any():
        return
    kind, learned, inputs = found
    p.sources.make_otherwise(int(cells[0]), lambda: activated(p, inputs, source.axis, kind, learned,
                                                              p.module_path() or None))


def activated(p: Program, cells: np.ndarray, axis: str, kind: wr.Activation, learned: dict[str, np.ndarray],
              path: str | None) -> wr.Tensor:
    """Behind a layer its weights are named as the layer's, so that it becomes a part of that."""
    x = p.sources.gather(cells, axis)
    name = (p.layer_behind(cells) or p.layer(path)) if learned else ""
    p.weights.update({f"{name}.{what}": array for what, array in learned.items()})
    return p.builder.activate(x, kind, name)


def scalar_of(x: Any) -> float | None:
    """The number that a constant is; None: it is another for each column, or a batch."""
    if isinstance(x, (int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() > 0 and bool((x == x.flatten()[0]).all()):
        return float(x.flatten()[0])
    return None


def required_scalar(x: Any) -> float:
    number = scalar_of(x)
    if number is None:
        raise Unsupported("a batch or one number", "a constant for each column")
    return number


def broadcast_with(p: Program, x: Value, other: torch.Tensor) -> Value:
    """In the shape that it has with a constant."""
    array = constant_rows(p, other, x)
    return x.like(np.array(np.broadcast_to(x.cells, np.broadcast_shapes(x.cells.shape, array.shape))))


def binary(p: Program, function: str, a: Any, b: Any) -> Value:
    if any(isinstance(x, Value) and x.is_ids for x in (a, b)):
        return compared_ids(p, function, a, b)
    constants = [x for x in (a, b) if isinstance(x, torch.Tensor)]
    if all(scalar_of(x) is not None for x in constants):
        a, b = (broadcast_with(p, x, y) if isinstance(x, Value) and isinstance(y, torch.Tensor) else x
                for x, y in ((a, b), (b, a)))
        return apply(p, function, *(x if isinstance(x, Value) else scalar_of(x) for x in (a, b)))
    value_first = isinstance(a, Value)
    value = broadcast_with(p, numbers(a if value_first else b), constants[0])
    vector = constant_vector(p, constants[0], value)
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    if function == "mul":
        return affine(p, value, vector, zero)
    if function == "add":
        return affine(p, value, one, vector)
    if function == "sub":
        return affine(p, value, one, -vector) if value_first else affine(p, value, -one, vector)
    if function == "div" and value_first:
        return affine(p, value, 1 / vector, zero)
    raise Unsupported("a number, or + - * / of a constant for each column", f"'{function}' of one")


def compared_ids(p: Program, function: str, a: Any, b: Any) -> Value:
    """A mask: ids of events compared with padding, or their places with the length of the sequence."""
    turned = {"less": "greater", "greater": "less", "less_equal": "greater_equal", "greater_equal": "less_equal"}
    if not isinstance(a, Value):
        a, b, function = b, a, turned.get(function, function)
    source, _ = p.sources.of(int(a.cells.flat[0]))
    given = source.data if source.kind in ("ids", "count") else None
    if given is None or not given.is_events:
        raise Unsupported("ids that can only be looked up, and compared with padding where they are events "
                          "(axes: 'user/history[]')", f"'{function}' of ids")
    if given.is_lengths:
        places = b.detach().numpy() if isinstance(b, torch.Tensor) else np.zeros(0)
        length = p.sequences[given.axis].length if given.axis in p.sequences else 0
        if function != "greater" or places.size != length or (places.ravel() != np.arange(length)).any() or \
                places.shape[-1] != length:
            raise Unsupported("lengths that are compared with the places of events: arange < length", "others")
        p.mask(given.axis, given.name, None)
        cells = constant(p, given.axis, 1.0, 0.0).reshape([1] * a.cells.ndim)
        return a.like(p.sources.with_events(cells, -1, length))
    padding = scalar_of(b)
    if padding is not None and function in ("greater", "greater_equal"):  # padding is the least id
        padding, function = padding - (function == "greater_equal"), "not_equal"
        if padding not in (0, -1):
            padding = None
    if padding is None or padding != int(padding) or function not in ("equal", "not_equal"):
        raise Unsupported("ids that are compared with padding", f"'{function}'")
    p.mask(given.axis, given.name, int(padding))
    kept = constant(p, given.axis, float(function == "not_equal"), float(function == "equal"))
    return a.like(np.broadcast_to(kept, a.cells.shape))


def times(p: Program, x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else (x * alpha if not isinstance(x, Value) else apply(p, "mul", x, alpha))


@handles("add", "add_", constants=True)
def add(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    if not isinstance(b, Value) and scalar_of(b) == 0 and isinstance(a, Value):
        return a  # of sum()
    return binary(p, "add", a, times(p, b, alpha))


@handles("sub", "sub_", constants=True)
def sub(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    return binary(p, "sub", a, times(p, b, alpha))


@handles("rsub", constants=True)
def rsub(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    return binary(p, "sub", b, times(p, a, alpha))


def register_binary(name: str, function: str) -> None:
    HANDLERS[name] = lambda p, a, b: binary(p, function, a, b)
    OF_CONSTANTS.add(name)


for _name, _function in {"mul": "mul", "mul_": "mul", "div": "div", "div_": "div", "minimum": "min", "maximum": "max",
                         "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
                         "ne": "not_equal", "logical_and": "mul", "bitwise_and": "mul", "logical_or": "max",
                         "bitwise_or": "max"}.items():
    register_binary(_name, _function)


@handles("logical_not", "bitwise_not")
def logical_not(p: Program, x: Any) -> Value:
    return apply(p, "equal", numbers(x), 0.0)


@handles("where")
def where(p: Program, condition: Any, a: Any, b: Any) -> Value:
    return apply(p, "select", *(x if isinstance(x, Value) else required_scalar(x) for x in (a, b, condition)))


@handles("masked_fill", "masked_fill_")
def masked_fill(p: Program, x: Any, condition: Any, value: Any) -> Value:
    return where(p, condition, value, x)


@handles("zeros_like", "ones_like", "full_like")
def full_like(p: Program, x: Value, value: Any = None, **_: Any) -> torch.Tensor:
    node = p.current()
    number = {"zeros_like": 0.0, "ones_like": 1.0}.get(node.target._schema.name.partition("::")[2], value)
    return torch.full(tuple(node.meta["val"].shape), float(number))


@handles("to", "_to_copy", "type_as", "float", "bool", "int", "long", events=True)
def converted(p: Program, x: Value, *_: Any, **__: Any) -> Value:
    sources = {p.sources.of(int(cell))[0].kind for cell in x.cells.flat}
    to = p.current().meta["val"].dtype
    if x.is_ids and sources != {"count"} and to in KEPT_TYPES:
        raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")
    if not x.is_ids and to not in KEPT_TYPES and not sources <= {"constant", "count"}:
        raise Unsupported("floating-point numbers", f"a conversion to {to}")
    return Value(x.cells, x.is_ids and to not in KEPT_TYPES, x.batch, x.inner)


@handles("pow")
def power(p: Program, x: Any, exponent: Any) -> Value:
    number = scalar_of(exponent) if isinstance(x, Value) else None
    if number == 2:
        return apply(p, "square", x)
    if number == 0.5:
        return apply(p, "sqrt", x)
    if number == 3:
        return apply(p, "mul", apply(p, "square", x), x)
    if number == -1:
        return apply(p, "div", 1.0, x)
    raise Unsupported("an exponent of 2, 3, 0.5 or -1", str(number if number is not None else "another"))


def register_unary(name: str, function: str) -> None:
    HANDLERS[name] = lambda p, x, **_: apply(p, function, numbers(x))


for _name, _function in {"relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu",
                         "silu_": "silu", "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "abs", "neg": "neg",
                         "square": "square"}.items():
    register_unary(_name, _function)


@handles("reciprocal")
def reciprocal(p: Program, x: Any) -> Value:
    return apply(p, "div", 1.0, numbers(x))


@handles("rsqrt")
def rsqrt(p: Program, x: Any) -> Value:
    return apply(p, "div", 1.0, apply(p, "sqrt", numbers(x)))


@handles("gelu")
def gelu(p: Program, x: Any, approximate: str = "none") -> Value:
    return apply(p, "gelu_tanh" if approximate == "tanh" else "gelu", numbers(x))


def activation(p: Program, x: Any, kind: wr.Activation, learned: dict[str, np.ndarray], path: str | None) -> Value:
    axis = p.sources.axis_of(numbers(x).cells)

    def make() -> wr.Tensor:
        return activated(p, x.cells.ravel(), axis, kind, learned, path)
    cells = p.sources.add(axis, x.cells.size, "activation", make, (x.cells.ravel(),), (kind, learned))
    return x.like(cells.reshape(x.cells.shape))


@handles("leaky_relu", "leaky_relu_")
def leaky_relu(p: Program, x: Any, negative_slope: float = 0.01) -> Value:
    return activation(p, x, wr.Activation("leaky_relu", alpha=negative_slope), {}, None)


@handles("elu", "elu_")
def elu(p: Program, x: Any, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Value:
    if (scale, input_scale) != (1, 1):
        raise Unsupported("elu without scales", f"scales {scale} and {input_scale}")
    return activation(p, x, wr.Activation("elu", alpha=alpha), {}, None)


@handles("prelu", "_prelu_kernel")
def prelu(p: Program, x: Any, weight: torch.Tensor) -> Value:
    by_channel = weight.reshape(-1, *[1] * (numbers(x).cells.ndim - 2)) if weight.numel() > 1 else weight.reshape(-1)
    alpha = constant_vector(p, by_channel, x)
    return activation(p, x, wr.Activation("prelu"), {"prelu.alpha": alpha}, p.path_of(weight, ".weight"))


@handles("clamp", "clamp_", "hardtanh", "hardtanh_", "clamp_min", "clamp_max")
def clamp(p: Program, x: Any, min: Any = None, max: Any = None) -> Any:
    if p.current().target._schema.name.endswith("clamp_max"):
        min, max = None, min
    for function, limit in (("max", min), ("min", max)):
        if limit is not None:
            x = apply(p, function, numbers(x), required_scalar(limit))
    return x


# --- reductions


def reduce(p: Program, x: Any, dims: Any, keepdim: bool, pooling: str, function: str) -> Value:
    """Over columns, and over the events of a sequence."""
    found, cells = p.sources.split_events(numbers(x).cells)
    dims = [dims] if isinstance(dims, int) else list(dims or [])
    if not dims:
        raise Unsupported("each row by itself", "an op over the batch")
    over = sorted({row_dimension(x, d) for d in dims})
    place = None if found is None else found + cells.ndim
    columns = [d for d in over if d != place]
    one = x.like(cells)
    if columns:
        one = reduced_columns(p, one, columns, pooling, function)
    cells = one.cells
    if place is not None and place not in over:
        assert found is not None
        cells = p.sources.with_events(cells, found, x.cells.shape[place])
    elif place is not None:
        cells = events.pool(p, cells.ravel(), pooling, x.cells.shape[place]).reshape(cells.shape)
    batch = x.batch + (0 if keepdim else len([d for d in over if d > x.batch + x.cells.ndim]))
    kept = cells if keepdim else cells.reshape([n for d, n in enumerate(cells.shape) if d not in over])
    return Value(kept, False, batch, x.inner)


def reduced_columns(p: Program, x: Value, over: list[int], pooling: str, function: str) -> Value:
    cells = x.cells
    kept = [d for d in range(cells.ndim) if d not in over]
    shape = tuple(1 if d in over else n for d, n in enumerate(cells.shape))
    count = math.prod(cells.shape[d] for d in over)
    rows = np.transpose(cells, [*kept, *over]).reshape(-1, count)  # [kept, reduced]
    found = None
    if pooling == "sum":
        found = fields.mixture_of_terms(p, rows) if count > 1 else None
        if found is None and len(rows) == 1:
            found = fields.summed_machine(p, rows[0])
    if found is not None:
        return x.like(found.reshape(shape))
    axis = p.sources.axis_of(cells)
    kind = "sum" if pooling == "sum" else "pooled columns"
    if len(rows) <= count:
        def reduced(row: np.ndarray) -> wr.Tensor:
            return p.builder.reduce(p.sources.gather(row, axis), pooling)  # type: ignore[arg-type]
        each = [p.sources.add(axis, 1, kind, lambda r=r: reduced(r), data=r[None])  # type: ignore[misc]
                for r in rows]
        return x.like(np.concatenate(each).reshape(shape))

    def make() -> wr.Tensor:
        total = p.sources.gather(rows[:, 0], axis)
        for column in rows.T[1:]:
            total = p.builder.apply(function, [total, p.sources.gather(column, axis)])  # type: ignore[arg-type]
        return p.builder.apply("mul", [total, 1 / count]) if pooling == "mean" else total
    return x.like(p.sources.add(axis, len(rows), kind, make, data=rows).reshape(shape))


@handles("sum", events=True)
def sum_(p: Program, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return reduce(p, x, dims, keepdim, "sum", "add")


@handles("mean", events=True)
def mean(p: Program, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return reduce(p, x, dims, keepdim, "mean", "add")


@handles("amax", events=True)
def amax(p: Program, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
    return reduce(p, x, dims, keepdim, "max", "max")

