# SPDX-License-Identifier: Apache-2.0
"""Tensors of a Keras model as tensors of a graph.

A batch [B, ..., d] is a list of fields, tensors of d columns, one for each index of the dimensions between. A sequence
[B, length, ..., d] that has an axis of its own is the same without its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import warprank as wr


class Unsupported(Exception):
    """expected, got"""


@dataclass
class Value:
    """Numbers: `fields` are prod(shape[:-1]) tensors of shape[-1] columns; shape () is one column."""

    axis: str  # "user/item"
    shape: tuple[int, ...]  # of a row of the axis
    fields: list[wr.Tensor]
    length: int | None = None  # of a sequence, as the model knows it; None of one that is none
    is_sequence: bool = False
    bag: tuple[wr.Ids, wr.Table] | None = None  # of a sequence that is looked up and nothing else
    is_masked: bool = False  # padding is left out by what pools it

    @property
    def width(self) -> int:
        return self.shape[-1] if self.shape else 1

    def array(self) -> np.ndarray:
        """The fields in the shape of a row without its columns."""
        array = np.empty(len(self.fields), object)
        array[:] = self.fields
        return array.reshape(self.shape[:-1])


@dataclass
class IdsValue:
    """An input of ids."""

    name: str
    axis: str
    shape: tuple[int, ...]
    is_sequence: bool = False


@dataclass
class Ones:
    """Whether the steps of a sequence are padding, which is left out of it."""

    ids: str
    axis: str


def numbers(x: Any) -> Value:
    if isinstance(x, IdsValue):
        raise Unsupported("numbers: ids can only be looked up", f"the ids '{x.name}'")
    if not isinstance(x, Value):
        raise Unsupported("a batch of numbers", type(x).__name__)
    return x


def constant(x: Any) -> np.ndarray:
    """A number, an array or a variable."""
    try:
        return np.asarray(x.numpy() if hasattr(x, "numpy") else x, np.float32)
    except (TypeError, ValueError):
        raise Unsupported("a batch, a variable or a number", type(x).__name__) from None


def positive(dim: int, value: Value) -> int:
    """A dimension of a row, by its number in the batch; -1 is the sequence's length."""
    dims = len(value.shape) + 1 + value.is_sequence
    dim = dim + dims if dim < 0 else dim
    if dim == 0:
        raise Unsupported("each row by itself", "an op over the batch")
    return dim - 1 - value.is_sequence


class Graph:
    """The builder, and what values have in common."""

    def __init__(self) -> None:
        self.builder = wr.Builder()
        self.axes: dict[str, wr.Axis] = {}
        self._expanded: dict[tuple[int, str], tuple[wr.Tensor, wr.Tensor]] = {}

    def axis(self, path: str) -> wr.Axis:
        if path not in self.axes:
            parent, _, name = path.rpartition("/")
            self.axes[path] = self.builder.axis(name, self.axis(parent)) if parent else self.builder.axis(name)
        return self.axes[path]

    def deepest(self, values: Sequence[Value]) -> str:
        axis = max((v.axis for v in values), key=lambda path: path.count("/"))
        for value in values:
            if value.axis != axis and not axis.startswith(value.axis + "/"):
                raise Unsupported("tensors of which one's axis lies above the other's",
                                  f"'{value.axis}' and '{axis}'")
        return axis

    def expand(self, tensor: wr.Tensor, axis: str, to: str) -> wr.Tensor:
        if axis == to:
            return tensor
        if (id(tensor), to) not in self._expanded:
            self._expanded[id(tensor), to] = tensor, self.builder.expand(tensor, self.axis(to))
        return self._expanded[id(tensor), to][1]

    def aligned(self, values: Sequence[Value]) -> tuple[list[Value], str, Value]:
        """All on the deepest axis; beside a sequence, batches [B, 1, ...] or of one row for each of its steps. The last
        is one that a result takes its place from."""
        axis = self.deepest(values)
        like = next((v for v in values if v.is_sequence), values[0])
        made = []
        for value in values:
            shape, fields = value.shape, value.fields
            if like.is_sequence and not value.is_sequence and shape:
                if len(shape) == len(like.shape) + 1 and (shape[0] == 1 or _repeats(value)):
                    shape, fields = shape[1:], fields[:len(fields) // shape[0]]
                elif len(shape) >= len(like.shape) + 1:
                    raise Unsupported("one row for all steps of a sequence", f"shape {(None, *shape)}")
            made.append(Value(axis, shape, [self.expand(f, value.axis, axis) for f in fields]))
        return made, axis, like

    def joined(self, value: Value) -> wr.Tensor:
        """All columns, one field behind the other."""
        return value.fields[0] if len(value.fields) == 1 else self.builder.concat(value.fields)

    def split(self, tensor: wr.Tensor, axis: str, shape: tuple[int, ...], like: Value | None = None) -> Value:
        """The opposite of joined."""
        width = shape[-1] if shape else 1
        count = prod(shape[:-1])
        fields = [tensor] if count == 1 else [self.builder.slice(tensor, i * width, (i + 1) * width)
                                              for i in range(count)]
        return like_of(like, axis, shape, fields)


def like_of(like: Value | None, axis: str, shape: tuple[int, ...], fields: list[wr.Tensor]) -> Value:
    if like is None or not like.is_sequence:
        return Value(axis, shape, fields, is_masked=like is not None and like.is_masked)
    return Value(axis, shape, fields, like.length, True, is_masked=like.is_masked)


def _repeats(value: Value) -> bool:
    """Whether the rows are one, again and again."""
    rows = value.array().reshape(value.shape[0], -1)
    return all(rows[i, j] is rows[0, j] for i in range(len(rows)) for j in range(rows.shape[1]))
