# SPDX-License-Identifier: Apache-2.0
"""Ids that are looked up, and those that a program computes: columns of numbers, and those with an offset, which share
a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import Unsupported, Value, columns_of, source_numbers
from .inputs import position_name
from .table_rows import RowNumbers

if TYPE_CHECKING:
    from .program import Program


def row_of(p: Program, cell: int, weight: Any) -> np.ndarray:
    """The cells of the row of a table that an id names."""
    def make() -> Any:
        return p.builder.embed(*p.ids_column(cell, weight))
    return p.sources.add(p.sources.of(cell)[0].axis, weight.shape[1], "embed", make, data=(cell, weight))


def position_rows(p: Program, axis: str, rows: np.ndarray, path: str | None) -> np.ndarray:
    """[columns]: rows [places, columns] by the places of events."""
    def make() -> Any:
        name = p.table_name(path)
        p.tables[name] = rows
        p.lookups.setdefault(position_name(axis), {})[name] = len(rows)
        table = p.builder.table(name, dim=rows.shape[1], rows=len(rows))
        return p.builder.embed(p.positions(axis), table)
    return p.sources.add(axis, rows.shape[1], "positions", make, data=(rows, path))


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
        made = p.sources.add(source.axis, source.width, "ids", no_numbers, data=given)
        p.input_of_source[int(source_numbers(made)[0])] = given
        cells = np.where(own, made[columns_of(x.cells)], cells)
    return Value(cells, True, x.batch, x.inner)


def no_numbers() -> Any:
    raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")


def row_numbers(p: Program, function: str, x: Value, constant: Any) -> Value:
    """Ids times, or plus, a constant for each column."""
    array = np.asarray(constant)
    shape = np.broadcast_shapes(array.shape, x.cells.shape)
    along_rows = array.ndim >= -x.batch and array.shape[x.batch] > 1
    if array.dtype.kind not in "iu" or along_rows or x.inner != 1 or len(shape) != x.cells.ndim or \
            (array < (function == "mul")).any():
        raise Unsupported("ids, or ids times and plus whole numbers, for each column", (
            f"'{function}' of {array.dtype} {list(array.shape)}"))
    cells, constants = (np.broadcast_to(each, shape).flatten() for each in (x.cells, array.astype(np.int64)))
    factors, offsets = np.ones_like(constants), np.zeros_like(constants)
    numbers: list[np.ndarray | None] = [None] * len(cells)
    for i, (source, column) in enumerate(map(p.sources.of, cells)):
        if isinstance(source.data, RowNumbers):
            before = source.data
            cells[i], factors[i], offsets[i] = before.cells[column], before.factors[column], before.offsets[column]
            numbers[i] = before.numbers[column]
    if function == "mul":
        factors, offsets = factors * constants, offsets * constants
    else:
        offsets = offsets + constants
    made = p.sources.add(p.sources.axis_of(cells), len(cells), "row_numbers", no_numbers,
                         data=RowNumbers(cells, factors, offsets, numbers))
    return Value(made.reshape(shape), True, x.batch, x.inner)


def indexed(p: Program, constant: Any, x: Value) -> Value:
    """Of a constant with a whole number for each id those of some ids."""
    array = p.whole_numbers(constant)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise Unsupported("a constant with a whole number for each id", f"{array.dtype} {list(array.shape)}")
    cells = x.cells.ravel()
    if any(isinstance(p.sources.of(cell)[0].data, RowNumbers) for cell in cells):
        raise Unsupported("ids that are an input", "some that are computed")
    made = p.sources.add(p.sources.axis_of(cells), len(cells), "row_numbers", no_numbers, data=RowNumbers(
        cells, np.ones_like(cells), np.zeros_like(cells), [array] * len(cells)))
    return Value(made.reshape(x.cells.shape), True, x.batch, x.inner)
