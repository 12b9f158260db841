# SPDX-License-Identifier: Apache-2.0
"""Tensors of a PyTorch program as columns of a graph's tensors.

A batch [B, ...] of the program is an array of cells, one for each element of a row: which column of which tensor of the
graph holds it. Whatever only moves elements (view, transpose, cat, index, ..) moves cells and computes nothing; the op
itself is run on cells that are marked with their row, so that one which mixes rows is found out. What computes first
gathers its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import warprank as wr

COLUMN_BITS = 24
ROW_BITS = 48  # rows are above sources and columns


class Unsupported(Exception):
    """expected, got"""


@dataclass
class Source:
    """A tensor of the graph, or a function that makes one when columns of it are wanted."""

    axis: str  # "user/item"
    width: int
    tensor: wr.Tensor | None = None
    # of columns: the tensor that has them, where
    make: Callable[[np.ndarray], tuple[wr.Tensor, np.ndarray]] | None = None


@dataclass
class Value:
    """A batch of the program: [B, *cells.shape]."""

    cells: np.ndarray
    is_ids: bool = False


@dataclass
class FlatIds:
    """Ids of all rows one behind the other, as nn.EmbeddingBag makes them of [B, L]."""

    value: Value


class Sources:
    """All tensors that cells are of."""

    def __init__(self, builder: wr.Builder, axes: dict[str, wr.Axis]):
        self.builder = builder
        self.axes = axes
        self._list: list[Source] = []
        self._gathered: dict[tuple[str, bytes], wr.Tensor] = {}

    def add(self, source: Source, shape: tuple[int, ...] | None = None) -> Value:
        """All columns of a new source, in the shape of a row."""
        first = len(self._list) << COLUMN_BITS
        self._list.append(source)
        return Value((first + np.arange(source.width, dtype=np.int64)
                     ).reshape((source.width,) if shape is None else shape))

    def source_of(self, cell: int) -> tuple[Source, int]:
        return self._list[cell >> COLUMN_BITS], int(cell & ((1 << COLUMN_BITS) - 1))

    def axis_of(self, *values: Value) -> str:
        """The deepest axis of their cells."""
        found = {self._list[s].axis for v in values for s in np.unique(v.cells >> COLUMN_BITS)}
        deepest = max(found, key=lambda axis: axis.count("/"))
        for axis in found:
            if deepest != axis and not deepest.startswith(axis + "/"):
                raise Unsupported("tensors of which one's axis lies above the other's", f"'{axis}' and '{deepest}'")
        return deepest

    def gather(self, cells: np.ndarray, axis: str) -> wr.Tensor:
        """The tensor [rows of axis, cells] that has these columns in this order."""
        flat = cells.ravel()
        key = (axis, flat.tobytes())
        if key not in self._gathered:
            self._gathered[key] = self._gather(flat, axis)
        return self._gathered[key]

    def _gather(self, flat: np.ndarray, axis: str) -> wr.Tensor:
        breaks = np.flatnonzero(np.diff(flat >> COLUMN_BITS)) + 1
        parts = [part for same in np.split(flat, breaks) for part in self._parts(same, axis)]
        return parts[0] if len(parts) == 1 else self.builder.concat(parts)

    def _parts(self, flat: np.ndarray, axis: str) -> list[wr.Tensor]:
        """Of cells of one source."""
        source, _ = self.source_of(int(flat[0]))
        columns = flat & ((1 << COLUMN_BITS) - 1)
        if source.make is not None:
            tensor, columns = source.make(columns)
            width = -1  # not known: every run is a slice
        else:
            assert source.tensor is not None
            tensor, width = source.tensor, source.width
        if source.axis != axis:
            key = (axis, b"expanded %d" % (int(flat[0]) >> COLUMN_BITS))
            if source.make is not None or key not in self._gathered:
                self._gathered[key] = self.builder.expand(tensor, self.axes[axis])
            tensor = self._gathered[key]
        parts = []
        for run in np.split(columns, np.flatnonzero(np.diff(columns) != 1) + 1):
            begin, end = int(run[0]), int(run[-1]) + 1
            whole = begin == 0 and end == width
            parts.append(tensor if whole else self.builder.slice(tensor, begin, end))
        return parts


def move(op: Callable[..., Any], args: Any, kwargs: Any, batch: int) -> Any:
    """Runs an op that moves elements on the cells of its arguments. Tensors of it become Values."""
    marks = torch.arange(batch, dtype=torch.int64) << ROW_BITS
    is_ids: list[bool] = []

    def marked(x: Any) -> Any:
        if isinstance(x, Value):
            is_ids.append(x.is_ids)
            cells = torch.from_numpy(x.cells).contiguous()  # so that it can be viewed in any shape
            return cells.unsqueeze(0) + marks.reshape(-1, *[1] * cells.dim())
        if isinstance(x, (list, tuple)):
            return type(x)(marked(each) for each in x)
        return x

    def value(moved: torch.Tensor) -> Value | FlatIds:
        rows = moved >> ROW_BITS
        if moved.dim() > 0 and moved.shape[0] == batch and bool(
                (rows == torch.arange(batch).reshape(-1, *[1] * (moved.dim() - 1))).all()):
            cells = (moved & ((1 << ROW_BITS) - 1)).numpy()
            if (cells == cells[:1]).all():
                return Value(np.array(cells[0]), all(is_ids))
        if moved.dim() == 1 and all(is_ids) and moved.numel() % batch == 0:
            unflat = value(moved.reshape(batch, -1))
            if isinstance(unflat, Value):
                return FlatIds(unflat)
        raise Unsupported("each row made of itself, and all in one way", "others")

    result = op(*marked(args), **kwargs)
    return type(result)(value(r) for r in result) if isinstance(result, (list, tuple)) else value(result)
