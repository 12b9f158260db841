# SPDX-License-Identifier: Apache-2.0
"""Arithmetic over batches: elementwise functions, with constants, activations, masks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from . import (activations, auto_int, cin, composed_layers, cross, din, events, fields, linears, norms, not_finite,
               zero_rows)
from .cells import COLUMN_SHIFT, Source, Unsupported, Value, columns_of, numbers
from .expressions import constant, distinct, elementwise
from .ids import row_numbers
from .lengths import TURNED, places_compared

if TYPE_CHECKING:
    from .program import Program

COLUMN = 1 << COLUMN_SHIFT  # from a cell to the next

def constant_vector(p: Program, x: Any, like: Value) -> np.ndarray:
    """A constant for each column of a row."""
    return np.ascontiguousarray(np.broadcast_to(constant_rows(p, x, like), like.cells.shape).ravel(), np.float32)


def with_bias(p: Program, x: Value, bias: Any) -> Value | None:
    """The same linear layer with a bias; None: it is none, or has one."""
    parts = _whole(p, x, ("linear", "attention"))
    if parts is None:
        return with_bias_of_maps(p, x, bias)
    if any(s.data.bias is not None for s in parts):
        return None
    shifts = np.split(constant_vector(p, bias, x), np.cumsum([s.width for s in parts])[:-1])
    made = [linears.linear_row(p, replace(s.data, bias=shift)) for s, shift in zip(parts, shifts)]
    return x.like(np.concatenate(made).reshape(x.cells.shape))


def with_bias_of_maps(p: Program, x: Value, bias: Any) -> Value | None:
    if p.sources.of(int(x.cells.flat[0]))[0].kind != "field_linear" or \
            np.broadcast_shapes(constant_rows(p, bias, x).shape, x.cells.shape) != x.cells.shape:
        return None
    cells = cin.with_bias(p, x.cells.ravel(), constant_vector(p, bias, x))
    return None if cells is None else x.like(cells.reshape(x.cells.shape))


def _whole(p: Program, x: Value, kinds: tuple[str, ...]) -> list[Source] | None:
    """The sources of which x has all columns, in their order, one behind the other; None: it is not so."""
    cells, parts, begin = x.cells.ravel(), [], 0
    while begin < len(cells):
        source, column = p.sources.of(int(cells[begin]))
        end = begin + source.width
        if column != 0 or source.kind not in kinds or (np.diff(cells[begin:end]) != COLUMN).any() or end > len(cells):
            return None
        parts.append(source)
        begin = end
    return parts


def affine(p: Program, x: Value, scale: np.ndarray, shift: np.ndarray) -> Value:
    """x * scale + shift by column: a batch norm whose statistics change nothing. With a shift of -0 zeros keep the signs
    that a product gives them, which atan2 tells apart: bias - running_mean * scale is -0 then."""
    parts = _whole(p, x, ("affine", "layer_norm"))
    if parts is not None:
        return _composed(p, x, parts, scale, shift)
    axis = p.sources.axis_of(x.cells)

    def make() -> wr.Tensor:
        layer = p.layer(None)
        p.weights.update({f"{layer}.weight": scale, f"{layer}.bias": shift,
                          f"{layer}.running_mean": np.copysign(np.zeros_like(scale), scale),
                          f"{layer}.running_var": np.ones_like(scale)})
        return p.builder.batch_norm(layer, p.sources.gather(x.cells, axis), eps=0.0)
    cells = p.sources.add(axis, x.cells.size, "affine", make, (x.cells.ravel(),), (scale, shift))
    return x.like(cells.reshape(x.cells.shape))


def _composed(p: Program, x: Value, parts: list[Source], scale: np.ndarray, shift: np.ndarray) -> Value:
    """Behind other affines and norms: as one with those."""
    made, begin = [], 0
    for source in parts:
        a, b = scale[begin:begin + source.width], shift[begin:begin + source.width]
        begin += source.width
        if source.kind == "layer_norm":
            made.append(norms.scaled(p, source.data, a, b))
        else:
            inner = Value(source.operands[0][None])
            before = source.data[1]
            made.append(affine(p, inner, source.data[0] * a, np.where(before == 0, b, before * a + b)).cells.ravel())
    return x.like(np.concatenate(made).reshape(x.cells.shape))


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
    if function in ("add", "sub"):
        slopes = activations.prelu(p, given[0], given[1], 1.0 if function == "add" else -1.0, width)
        if slopes is not None:
            inputs, alpha = slopes
            return activation_cells(p, inputs, wr.Activation("prelu"), {"prelu.alpha": alpha}, p.module_path() or None)
    if function in din.PLAIN:
        return inside_layer(p, function, given[0])
    if function == "sub":
        centred = composed_layers.without_mean(p, given[0], given[1])
        return centred if centred is not None else fields.factorisation_machine(p, given[0], given[1], width)
    if function == "add":
        attended = auto_int.with_residual(p, given[0], given[1], width)
        if attended is not None:
            return attended
        crossed = cross.cross(p, given[0], given[1], width)
        if crossed is not None:
            return crossed
        mixed = fields.mixture_of_sum(p, given[0], given[1], width)
        return mixed if mixed is not None else norms.recognised(p, function, given[0], given[1], width)
    zeros = zero_rows.compared(p, function, given[0], given[-1])
    if zeros is not None:
        return zeros
    of_none = not_finite.compared(p, function, given[0], given[-1], width)
    if of_none is not None:
        return of_none
    if function == "div":
        mean = events.mean_of_events(p, given[0], given[1], width)
        if mean is not None:
            return mean
    if function in ("mul", "div"):
        normed = norms.recognised(p, function, given[0], given[1], width)
        if normed is not None:
            return normed
    if function == "mul":
        for a, b in (given, given[::-1]):
            gated = activations.silu(p, a, b, width)
            if gated is not None:
                return elementwise(p, "silu", [gated], width, p.sources.axis_of(gated))
            gelu = activations.gelu(p, a, b, width)
            if gelu is not None:
                return elementwise(p, gelu[0], [gelu[1]], width, p.sources.axis_of(gelu[1]))
    if function in ("mul", "div"):
        gelu = activations.halved_gelu(p, function, given[0], given[1], width)
        if gelu is not None:
            return elementwise(p, gelu[0], [gelu[1]], width, p.sources.axis_of(gelu[1]))
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


def inside_layer(p: Program, function: str, inputs: np.ndarray) -> np.ndarray | None:
    """An activation of all columns of a layer over fields, in any order, as a part of that."""
    layer, _ = p.sources.of(int(inputs[0]))
    order = np.argsort(inputs)
    if layer.kind not in ("field_attention", "field_linear") or din.of_one(p, inputs[order]) is not layer:
        return None
    cells = elementwise(p, function, [inputs[order]], len(inputs), layer.axis)
    source, _ = p.sources.of(int(cells[0]))
    if source.data is None:  # else it was written twice
        layer.data.activate(p, int(cells[0]), wr.Activation(function))  # type: ignore[arg-type]
    return cells[columns_of(inputs)]


def activated(p: Program, cells: np.ndarray, axis: str, kind: wr.Activation, learned: dict[str, np.ndarray],
              path: str | None) -> wr.Tensor:
    """Behind a layer its weights are named as the layer's, so that it becomes a part of that."""
    x = p.sources.gather(cells, axis)
    name = (p.layer_behind(cells) or p.layer(path)) if learned else ""
    p.weights.update({f"{name}.{what}": array for what, array in learned.items()})
    return p.builder.activate(x, kind, name)


def is_constant(x: Any) -> bool:
    """An array of the framework."""
    return hasattr(x, "shape")


def constant_rows(p: Program, x: Any, like: Value) -> np.ndarray:
    """A constant that is the same for every row, without the batch. Rows that another program has computed, as an exporter
    does with what no input reaches, differ by their rounding."""
    array = p.array(x)
    if array.ndim >= -like.batch and array.shape[like.batch] == p.batch > 1:
        one = array.take([0], like.batch)
        if not (array == one).all() and not (array.dtype.kind == "f" and np.isfinite(array).all() and
                                             np.abs(array - one).max() <= 1e-6 * np.abs(one).max()):
            raise Unsupported("a constant that is the same for every row", f"one of shape {list(array.shape)}")
        array = one
    return array


def scalar_of(x: Any) -> float | None:
    """The number that a constant is; None: it is another for each column, or a batch."""
    if isinstance(x, (int, float)):
        return float(x)
    if is_constant(x) and math.prod(x.shape) > 0 and bool((x == x.flatten()[0]).all()):
        return float(x.flatten()[0].item())
    return None


def required_scalar(x: Any) -> float:
    number = scalar_of(x)
    if number is None:
        raise Unsupported("a batch or one number: of other constants for each column x * 0 + constant",
                          "a constant for each column")
    return number


def broadcast_with(p: Program, x: Value, other: Any) -> Value:
    """In the shape that it has with a constant."""
    array = constant_rows(p, other, x)
    return x.like(np.array(np.broadcast_to(x.cells, np.broadcast_shapes(x.cells.shape, array.shape))))


def binary(p: Program, function: str, a: Any, b: Any) -> Value:
    if any(isinstance(x, Value) and x.is_ids for x in (a, b)):
        ids, other = (a, b) if isinstance(a, Value) else (b, a)
        if function in ("add", "mul") and not isinstance(other, Value):
            return row_numbers(p, function, ids, other)
        return compared_ids(p, function, a, b)
    constants = [x for x in (a, b) if is_constant(x)]
    if function in TURNED and constants:
        if not isinstance(a, Value):
            a, b, function = b, a, TURNED[function]
        mask = places_compared(p, function, a, constant_rows(p, b, a))
        if mask is not None:
            return mask
    if function == "add" and constants:
        behind = with_bias(p, a if isinstance(a, Value) else b, constants[0])
        if behind is not None:
            return behind
    if all(scalar_of(x) is not None for x in constants):
        a, b = (broadcast_with(p, x, y) if isinstance(x, Value) and is_constant(y) else x
                for x, y in ((a, b), (b, a)))
        return apply(p, function, *(x if isinstance(x, Value) else scalar_of(x) for x in (a, b)))
    value_first = isinstance(a, Value)
    value = broadcast_with(p, numbers(a if value_first else b), constants[0])
    vector = constant_vector(p, constants[0], value)
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    if function == "mul":
        return affine(p, value, vector, -zero)
    if function == "add":
        return affine(p, value, one, vector)
    if function == "sub":
        return affine(p, value, one, -vector) if value_first else affine(p, value, -one, vector)
    if function == "div" and value_first:
        return affine(p, value, 1 / vector, -zero)
    raise Unsupported("a number, or + - * / of a constant for each column", f"'{function}' of one")


def by_column(p: Program, condition: Any, a: Any, b: Any) -> Value:
    """Of each column that of a or of b, as a constant condition says."""
    values = [numbers(x) for x in (a, b) if isinstance(x, Value)]
    if len({(x.batch, x.inner) for x in values}) > 1:
        raise Unsupported("batches whose rows lie along one dimension", "others")
    like = values[0]
    sides = [x.cells if isinstance(x, Value) else _number(p, like, required_scalar(x)) for x in (a, b)]
    return like.like(np.where(constant_rows(p, condition, like) != 0, *sides))


def _number(p: Program, like: Value, number: float) -> np.ndarray:
    """A cell that is this number in each row."""
    axis = p.sources.axis_of(like.cells)
    return constant(p, axis, number, number).reshape([1] * like.cells.ndim)


def padded(p: Program, x: Any, ends: list[tuple[int, int]], number: float) -> Value:
    """With columns of a number before and behind its own, or with fewer of them: by dimension how many."""
    cells = numbers(x).cells
    kept = cells[tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(cells.shape, ends))]
    if any(ends[x.batch]) or kept.size == 0:
        raise Unsupported("columns, of each row by itself", "an op over the batch")
    filling = int(_number(p, x, number).flat[0])
    return x.like(np.pad(kept, [(max(0, a), max(0, b)) for a, b in ends], constant_values=filling))


def compared_ids(p: Program, function: str, a: Any, b: Any) -> Value:
    """A mask: ids of events compared with padding."""
    if not isinstance(a, Value):
        a, b, function = b, a, TURNED.get(function, function)
    source, _ = p.sources.of(int(a.cells.flat[0]))
    given = source.data if source.kind == "ids" else None
    if given is None or not given.is_events:
        raise Unsupported("ids that can only be looked up, and compared with padding where they are events "
                          "(axes: 'user/history[]')", f"'{function}' of ids")
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


def activation(p: Program, x: Any, kind: wr.Activation, learned: dict[str, np.ndarray], path: str | None) -> Value:
    cells = activation_cells(p, numbers(x).cells.ravel(), kind, learned, path)
    return x.like(cells.reshape(x.cells.shape))


def activation_cells(p: Program, cells: np.ndarray, kind: wr.Activation, learned: dict[str, np.ndarray],
                     path: str | None) -> np.ndarray:
    axis = p.sources.axis_of(cells)
    return p.sources.add(axis, len(cells), "activation", lambda: activated(p, cells, axis, kind, learned, path),
                         (cells,), (kind, learned))


def part_of_gelu(p: Program, kind: str, x: Any) -> Value:
    """erf or erfc, which are nothing by themselves."""
    return refused_if_read(p, x, kind, "an op of the model language", "none that does this")


def refused_if_read(p: Program, x: Any, kind: str, expected: str, got: str) -> Value:
    """Of x what the library cannot compute, which is no problem as long as nothing is made of it."""
    cells = numbers(x).cells

    def make() -> Any:
        raise Unsupported(expected, got)
    made = p.sources.add(p.sources.axis_of(cells), cells.size, kind, make, (cells.ravel(),))
    return x.like(made.reshape(cells.shape))


def power(p: Program, x: Any, exponent: Any) -> Value:
    number = scalar_of(exponent) if not isinstance(exponent, Value) else None
    base = scalar_of(x) if not isinstance(x, Value) else None
    if base is not None and base > 0:  # of a number
        return apply(p, "exp", apply(p, "mul", numbers(exponent), math.log(base)))
    if number is None or not isinstance(x, Value):
        raise Unsupported("a batch to the power of a number, or a number above 0 to that of a batch", "others")
    if number == 0.5:
        return apply(p, "sqrt", x)
    if number == 0:
        raise Unsupported("an exponent other than 0", "0: 1 whatever the batch is")
    if number < 0:
        return apply(p, "div", 1.0, power(p, x, -number))
    if number != int(number):
        return apply(p, "exp", apply(p, "mul", apply(p, "log", numbers(x)), number))
    if number == 1:
        return x
    squared = power(p, apply(p, "square", x), number // 2)
    return apply(p, "mul", squared, x) if number % 2 else squared
