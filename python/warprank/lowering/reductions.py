# SPDX-License-Identifier: Apache-2.0
"""Sums, means and maxima, over columns and over the events of a sequence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from . import cin, events, fields, linears
from .candidates import as_rows
from .cells import COLUMN_SHIFT, PAIR, Unsupported, Value, numbers, row_dimension
from .expressions import at

if TYPE_CHECKING:
    from .program import Program


def reduce(p: Program, x: Any, dims: Any, keepdim: bool, pooling: str, function: str) -> Value:
    """Over columns, and over the events of a sequence."""
    x = as_rows(p, numbers(x))
    found, cells = p.sources.split_events(x.cells)
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
        if found is None:
            found = cin.sums(p, rows)
        if found is None and len(rows) == 1:
            found = fields.summed_machine(p, rows[0])
        if found is None and count > 1:
            found = fields.products_of_pairs(p, rows)
        if found is None:
            found = products_with_events(p, rows)
        if found is None:
            found = weighted_sums(p, rows)
    if found is not None:
        return x.like(found.reshape(shape))
    axis = p.sources.axis_of(cells)
    kind = "pooled columns" if pooling == "max" else pooling
    key = (kind, axis, rows.shape, rows.tobytes())
    if key not in p.expressions:
        p.expressions[key] = _made(p, rows, axis, kind, pooling, function)
    return x.like(p.expressions[key].reshape(shape))


def products_with_events(p: Program, rows: np.ndarray) -> np.ndarray | None:
    """The scores of queries and the events of a sequence, of sums [out, terms] of their products; None: others."""
    axis = p.sources.axis_of(rows)
    query, _, sequence = axis.partition(PAIR)
    if not sequence or query in p.sequences:
        return None
    sides = np.empty((2, *rows.shape), rows.dtype)
    for place, cell in np.ndenumerate(rows):
        source, column = p.sources.of(int(cell))
        operands = [at(x, column) for x in source.operands] if source.kind == "mul" else []
        if not operands or not all(isinstance(x, int) for x in operands):
            return None
        of_events = [p.sources.of(x)[0].axis == sequence for x in operands]
        if of_events not in ([True, False], [False, True]) or any(PAIR in p.sources.of(x)[0].axis for x in operands):
            return None
        sides[(slice(None), *place)] = operands if of_events[1] else operands[::-1]
    return np.concatenate([events.scores(p, *each) for each in sides.swapaxes(0, 1)])


def weighted_sums(p: Program, rows: np.ndarray) -> np.ndarray | None:
    """The cells of sums [out, terms] of values times constants, as a layer; None: they are others, or a layer would
    multiply many more than there are."""
    most_products = 16
    values, factors = np.empty_like(rows), np.empty(rows.shape, np.float32)
    for place, cell in np.ndenumerate(rows):
        source, column = p.sources.of(int(cell))
        if source.kind != "affine" or source.data[1][column] != 0:
            return None
        values[place], factors[place] = source.operands[0][column], source.data[0][column]
    inputs, which = np.unique(values, return_inverse=True)
    if len(inputs) > most_products * rows.shape[1]:
        return None
    weight = np.zeros((len(rows), len(inputs)), np.float32)
    np.add.at(weight, (np.arange(len(rows))[:, None], which.reshape(rows.shape)), factors)
    return linears.linear_row(p, events.Layer(inputs, weight))


def are_views(rows: np.ndarray) -> bool:
    """Whether each of not too many is columns of one value that lie side by side."""
    most = 64
    return len(rows) <= most and bool((np.diff(rows, axis=1) == 1 << COLUMN_SHIFT).all())


def _made(p: Program, rows: np.ndarray, axis: str, kind: str, pooling: str, function: str) -> np.ndarray:
    """[kept] of [kept, reduced]"""
    count, few = rows.shape[1], 8
    adds_columns = count == 1 or len(rows) > count or are_views(rows.T) and (len(rows) > 1 or count <= few)
    if count > 1 and are_views(rows) or not adds_columns:
        def reduced(row: np.ndarray) -> wr.Tensor:
            return p.builder.reduce(p.sources.gather(row, axis), pooling)  # type: ignore[arg-type]
        each = [p.sources.add(axis, 1, kind, lambda r=r: reduced(r), data=r[None])  # type: ignore[misc]
                for r in rows]
        return np.concatenate(each)

    def make() -> wr.Tensor:
        total = p.sources.gather(rows[:, 0], axis)
        for column in rows.T[1:]:
            total = p.builder.apply(function, [total, p.sources.gather(column, axis)])  # type: ignore[arg-type]
        return p.builder.apply("mul", [total, 1 / count]) if pooling == "mean" else total
    return p.sources.add(axis, len(rows), kind, make, data=rows)


