# SPDX-License-Identifier: Apache-2.0
"""Ops of the events of a sequence, which are computed for one of them, and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import is_constant
from .behind import in_parts, parts_of
from .candidates import are_rows, as_rows
from .cells import PAIR, Unsupported, Value
from .expressions import constant
from .ids import position_rows, row_of
from .layers import turned_scores
from .linears import linear

if TYPE_CHECKING:
    from .program import Program


def ids_of(p: Program, x: Any) -> Value:
    """A batch of ids, also as a part of a matrix in which they are beside numbers."""
    if not isinstance(x, Value) or not (x.is_ids or {p.sources.of(c)[0].kind for c in x.cells.flat} == {"ids"}):
        raise Unsupported("ids that are an input", "numbers that are computed")
    return Value(x.cells, True, x.batch, x.inner)


def embedding(p: Program, weight: Any, ids: Any) -> Value:
    rows = [row_of(p, cell, weight) for cell in ids_of(p, ids).cells.ravel().tolist()]
    return Value(np.stack(rows).reshape(*ids.cells.shape, weight.shape[1]), False, ids.batch - 1, ids.inner)


def matmul_constant(p: Program, a: Any, weight: Any, path: str | None) -> Value:
    """Of rows, also of each event, with a matrix [out, in]."""
    return by_event(p, linear, (a, weight, None, path), {})


def by_event(p: Program, handler: Callable[..., Any], args: Any, kwargs: Any, *, constants: bool = False,
             widens: bool = False) -> Any:
    """Calls a handler for one event, whose results serve all.

    constants: those that it takes may be others for each event
    widens: its results have a dimension more, at the end
    """
    try:
        values, found = with_places(p, (*args, *kwargs.values()))
    except Unsupported:
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, Value)]
        parts = parts_of(given)
        if parts is None:
            raise
        if any(are_rows(p, x) for x in given) or (constants and any(is_square(x, parts[1][-1][1]) for x in args)):
            return by_event(p, handler, [as_rows(p, x) for x in args], {k: as_rows(p, x) for k, x in kwargs.items()},
                            constants=constants, widens=widens)
        return in_parts(lambda *a, **k: by_event(p, handler, a, k, constants=constants, widens=widens), parts, args,
                        kwargs, constants, widens)
    if -2 in found and (len(found) > 1 or any(constants and is_square(x, found[-2]) for x in args)):
        args = [turned_scores(p, x) for x in args]
        values, found = with_places(p, (*args, *kwargs.values()))
    if not found:
        return handler(p, *args, **kwargs)
    if len(found) > 1:
        raise Unsupported("events along one dimension", "events with events")
    (dimension, length), = found.items()

    def one(x: Any) -> Any:
        if isinstance(x, Value):
            split, cells = p.sources.split_events(x.cells)
            if split is None and x.cells.ndim >= -dimension and x.cells.shape[dimension] == length:
                cells = x.cells.take([0], dimension)
                if not (x.cells == cells).all():
                    raise Unsupported("numbers that are the same for each event", "others")
            # Events may be merged with the batch: as many as there were are left behind.
            merged = split == x.batch or (split is None and dimension == x.batch)
            return Value(cells, x.is_ids, x.batch, 1 if merged else x.inner)
        if constants and is_constant(x) and len(x.shape) >= -dimension and x.shape[dimension] == length > 1:
            if dimension == -1 and is_of_pairs(p, x, length, values):
                return of_pairs(p, x, values)
            first = x[(slice(None),) * (len(x.shape) + dimension) + (slice(0, 1),)]
            return first if bool((x == first).all()) else of_positions(p, x, dimension, values)
        return x

    def all_events(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(all_events(each) for each in x)
        if not isinstance(x, Value):
            return x
        place = dimension - widens
        return Value(p.sources.with_events(x.cells, place, length), x.is_ids, x.batch, inner)

    inner = next(x.inner for x in values if p.sources.split_events(x.cells)[0] is not None)
    return all_events(handler(p, *map(one, args), **{k: one(v) for k, v in kwargs.items()}))


def with_places(p: Program, given: Iterable[Any]) -> tuple[list[Value], dict[int, int]]:
    """The batches among them, and of the dimensions, from the right, along which events lie, how many."""
    values = [x for x in given if isinstance(x, Value)]
    places = [(p.sources.split_events(x.cells)[0], x.cells.shape) for x in values]
    return values, {place: shape[place] for place, shape in places if place is not None}


def is_square(x: Any, length: int) -> bool:
    """Whether it is a constant for each pair of events."""
    return is_constant(x) and tuple(x.shape[-2:]) == (length, length)


def is_of_pairs(p: Program, x: Any, length: int, values: list[Value]) -> bool:
    """Whether a constant is another for each event that asks, too, and those are not columns, of which are as many."""
    if not is_square(x, length) or bool((x == x[..., :1, :]).all()):
        return False
    cells = [p.sources.split_events(v.cells)[1] for v in values]
    return all(c.ndim < 2 or bool((c == c[..., :1, :]).all()) for c in cells)


def of_pairs(p: Program, x: Any, values: list[Value]) -> Value:
    """A constant [.., events, events] that is one number on the diagonal, one above it, and one below it."""
    like = next(v for v in values if p.sources.split_events(v.cells)[0] is not None)
    query, _, events = p.sources.axis_of(p.sources.split_events(like.cells)[1]).rpartition(PAIR)
    array = p.array(x)
    places = np.arange(array.shape[-1])
    behind = places[:, None] - places  # by how many places a query is behind a key
    parts = [array[..., part] for part in (behind > 0, behind < 0, behind == 0)]
    if events not in p.sequences or query not in ("", events) or any((x != x.flat[0]).any() for x in parts):
        raise Unsupported("a mask of padding, of each event by itself, or of what comes after it: a triangle", "another")
    value, later, of_self = (float(x.flat[0]) for x in parts)
    cell = constant(p, events + PAIR + events, value, value, later, of_self=of_self)
    shape = [1] * max(array.ndim, like.cells.ndim)
    shape[-2], shape[like.batch] = array.shape[-2], like.cells.shape[like.batch]
    return Value(np.full(shape, cell), False, like.batch, like.inner)


def of_positions(p: Program, x: Any, dimension: int, values: list[Value]) -> Value:
    """A constant that is another for each event of the module's, with padding: a table of them."""
    if "float" not in str(x.dtype):
        raise Unsupported("numbers that are the same for each event", "whole ones for each")
    like = next(v for v in values if p.sources.split_events(v.cells)[0] is not None)
    if dimension == like.batch or like.inner != 1:
        raise Unsupported("[batch, events] numbers", "both merged")
    axis = p.sources.axis_of(p.sources.split_events(like.cells)[1])
    if axis not in p.sequences:
        raise Unsupported("numbers for each event of a sequence", "of pairs")
    array = np.moveaxis(p.array(x), dimension, 0)
    shape = array.shape[1:]
    rows = np.ascontiguousarray(array.reshape(len(array), -1))
    cells = position_rows(p, axis, rows, p.path_of(x, ".weight")).reshape(shape)
    cells = np.expand_dims(cells, dimension + len(x.shape))
    while cells.ndim < like.cells.ndim:
        cells = cells[None]
    return Value(cells, False, like.batch)
