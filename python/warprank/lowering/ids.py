# SPDX-License-Identifier: Apache-2.0
"""Ids that a program computes: those that are columns of numbers, and those with an offset, which share a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import Unsupported, Value, columns_of, source_numbers

if TYPE_CHECKING:
    from .program import Program


@dataclass
class Shifts:
    """Of a source whose columns are ids of inputs plus offsets: rows of one table, one part of it behind the other."""

    cells: np.ndarray
    offsets: np.ndarray


def of_numbers(p: Program, x: Value) -> Value:
    """The columns of an input of numbers as ids, of inputs of their own."""
    numbers = np.unique(source_numbers(x.cells))
    sources = [p.sources.all[n] for n in numbers]
    if any(s.kind != "dense" or s.data is None or s.data.is_events for s in sources):
        raise Unsupported("ids that are columns of an input", "numbers that are computed")
    cells = x.cells
    for number, source in zip(numbers, sources):
        given, own = source.data, source_numbers(x.cells) == number
        given.ids_columns.update(columns_of(x.cells[own]).tolist())
        made = p.sources.add(source.axis, source.width, "ids", _no_numbers, data=given)
        p.input_of_source[int(source_numbers(made)[0])] = given
        cells = np.where(own, made[columns_of(x.cells)], cells)
    return Value(cells, True, x.batch, x.inner)


def _no_numbers() -> Any:
    raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")


def shifted(p: Program, x: Value, offsets: Any) -> Value:
    """Ids plus a constant for each column."""
    array = np.asarray(offsets)
    whole = np.broadcast_to(array, np.broadcast_shapes(array.shape, x.cells.shape))
    if whole.shape != x.cells.shape or array.dtype.kind not in "iu" or (array < 0).any():
        raise Unsupported("ids, or ids plus an offset for each column", f"offsets {array.dtype} {list(array.shape)}")
    flat, sums = x.cells.flatten(), whole.ravel().astype(np.int64)
    for i, (source, column) in enumerate(map(p.sources.of, flat)):
        if isinstance(source.data, Shifts):
            flat[i], sums[i] = source.data.cells[column], sums[i] + source.data.offsets[column]
    cells = p.sources.add(p.sources.axis_of(flat), len(flat), "shifted_ids", _no_numbers, data=Shifts(flat, sums))
    return Value(cells.reshape(x.cells.shape), True, x.batch, x.inner)


def shift_of(p: Program, cell: int, rows: int) -> tuple[int, int, int | None]:
    """The input's cell, and the rows of a table of so many that its ids name: up to those of the next offset."""
    source, column = p.sources.of(cell)
    if not isinstance(source.data, Shifts):
        return cell, 0, None
    begin = int(source.data.offsets[column])
    behind = source.data.offsets[source.data.offsets > begin]
    end = int(behind.min()) if len(behind) else rows
    if not begin < end <= rows:
        raise Unsupported(f"offsets below {rows}, the rows of the table", str(begin))
    return int(source.data.cells[column]), begin, end
