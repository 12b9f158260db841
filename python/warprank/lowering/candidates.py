# SPDX-License-Identifier: Apache-2.0
"""Events with a candidate behind them that are computed together, as rows of an axis of both. A request has one more row
there for each history, the last one, whose ids are -1: its numbers are those of the candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .behind import parts_of
from .cells import PAIR, POSITIONS, Source, Unsupported, Value, columns_of, source_numbers
from .expressions import FUNCTIONS, PADDING, SELF, constant, constant_of, elementwise
from .ids import position_rows, row_of
from .inputs import with_candidate
from .lengths import is_last, last_of
from .linears import linear_row
from .norms import norm_rows
from .placeholders import placeholder

if TYPE_CHECKING:
    from .program import Program


def are_rows(p: Program, x: Any) -> bool:
    """Whether it is of an axis of events with a candidate behind them, or of pairs of such rows."""
    axes = {axis for each in p.sources.axes_in(x.cells) for axis in each.split(PAIR)} if isinstance(x, Value) else set()
    return any(axis in p.sequences and p.sequences[axis].events is not None for axis in axes)


def as_rows(p: Program, x: Any) -> Any:
    """Numbers of events with one candidate behind them as rows of an axis that has both; others as they are."""
    parts = parts_of([x]) if isinstance(x, Value) and not x.is_ids else None
    if parts is None or len(parts[1]) != 2 or parts[1][1][1] - parts[1][1][0] != 1:
        return x
    dimension, ((_, length), _) = parts
    place, events = p.sources.split_events(x.cells.take(range(length), dimension))
    candidate = x.cells.take([length], dimension)
    axes = p.sources.axes_in(events) & p.sequences.keys()
    if place != dimension or len(axes) != 1 or (candidate & POSITIONS).any():
        return x
    axis = axes.pop()
    of_candidate, parent = p.sources.axis_of(candidate), axis.rpartition("/")[0]
    if not f"{parent}/".startswith(f"{of_candidate}/"):
        raise Unsupported(f"a candidate with its history, behind it, on the axis of the history's rows, '{parent}'",
                          f"one on '{of_candidate}'")
    rows = _Rows(p, axis).joined(events.ravel(), candidate.ravel())
    return Value(p.sources.with_events(rows.reshape(events.shape), dimension, length + 1), False, x.batch, length + 1
                 if x.batch == dimension else x.inner)


def of_candidates(p: Program, x: Any) -> Any:
    """What was picked of such an axis, where it is of the last rows alone, as numbers of candidates; others as they
    are."""
    if not are_rows(p, x):
        return x
    cells, places = x.cells.copy(), x.cells & POSITIONS
    for axis in p.sources.axes_in(x.cells) & p.sequences.keys():
        own = np.isin(source_numbers(cells), [n for n in np.unique(source_numbers(cells))
                                              if p.sources.all[n].axis == axis])
        if p.sequences[axis].events is None or (places[own] != p.sequences[axis].length).any():
            return x
        cells[own] = last_of(p, cells[own] - places[own], axis)
    return Value(cells, x.is_ids, x.batch, x.inner)


class _Rows:
    """Of an axis of events the axis of the events and what is behind them."""

    def __init__(self, p: Program, axis: str):
        self._p, self._of_events, self._axis = p, axis, with_candidate(axis)
        if self._axis not in p.sequences:
            p.add_sequence(axis)

    def joined(self, events: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """[n]: cells of events [n], and of the last row those of a candidate [n]."""
        p, made = self._p, np.empty_like(events)
        pairs = source_numbers(events) << 32 | source_numbers(candidate)
        for pair in np.unique(pairs):
            own = pairs == pair
            made[own] = self._of_sources(events[own], candidate[own])
        return made

    def _of_sources(self, events: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """The same of cells of one source each."""
        p = self._p
        of_event, of_candidate = (p.sources.of(int(x[0]))[0] for x in (events, candidate))
        if of_event is of_candidate and (events == candidate).all():
            return candidate
        number = constant_of(p, int(candidate[0]))
        if number is not None and number == constant_of(p, int(events[0])):
            return np.repeat(self._moved(events[:1]), len(events))
        if (columns_of(events) == columns_of(candidate)).all():
            same = self._same(of_event, of_candidate)
            if same is not None:
                return same[columns_of(events)]
        return elementwise(p, "select", [candidate, self._moved(events), is_last(p, self._axis)], len(events),
                           self._axis)

    def _same(self, a: Source, b: Source) -> np.ndarray | None:
        """All columns of what computes both: a function, or a layer of the same weights; None: they are others."""
        if a.kind != b.kind or a.width != b.width:
            return None
        if a.kind in FUNCTIONS:
            sides = list(zip(a.operands, b.operands))
            are_cells = [isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and len(x) == len(y) for x, y in sides]
            if not any(are_cells) or any(not both and not np.array_equal(x, y) for both, (x, y) in zip(are_cells, sides)):
                return None
            given = [self.joined(x, y) if both else x for both, (x, y) in zip(are_cells, sides)]
            return elementwise(self._p, a.kind, given, a.width, self._axis)
        if a.kind not in ("linear", "layer_norm"):
            return None
        weights = [(getattr(a.data, name), getattr(b.data, name)) for name in ("weight", "bias", "eps", "rows")
                   if hasattr(a.data, name)]
        if any(x is not y and not np.array_equal(x, y) for x, y in weights):
            return None
        same = replace(a.data, cells=self.joined(a.data.cells, b.data.cells))
        return linear_row(self._p, same) if a.kind == "linear" else norm_rows(self._p, replace(same, tensors={}))

    def _moved(self, cells: np.ndarray) -> np.ndarray:
        """[n]: cells of events [n] as those of the joined rows; of the last row they are any numbers."""
        return np.array([self._source(int(number))[column] if self._is_of_events(int(number)) else cell
                         for cell, number, column in zip(cells, source_numbers(cells), columns_of(cells))])

    def _is_of_events(self, number: int) -> bool:
        return self._p.sources.all[number].axis == self._of_events

    def _source(self, number: int) -> np.ndarray:
        key = ("with_candidate", number)
        if key not in self._p.expressions:
            self._p.expressions[key] = self._made(self._p.sources.all[number])
        return self._p.expressions[key]

    def _made(self, source: Source) -> np.ndarray:
        p = self._p
        if source.kind in ("ids", "dense") and not source.data.is_flat:
            given = source.data
            cells = placeholder(p, replace(given, name=with_candidate(given.name), axis=self._axis,
                                           shape=(given.shape[0] + 1, *given.shape[1:]))).cells[0, 0].ravel()
            return cells - (cells & POSITIONS)
        if source.kind == "row_numbers":
            return p.sources.add(self._axis, source.width, source.kind, source.make, data=replace(
                source.data, cells=self._moved(source.data.cells)))
        if source.kind == "embed":
            ids, weight = source.data
            return row_of(p, int(self._moved(np.array([ids]))[0]), weight)
        if source.kind == "constant":
            value, *others = source.data
            return constant(p, self._axis, value, others[PADDING - 1], of_self=others[SELF - 1])
        if source.kind == "positions":
            rows, path = source.data
            return position_rows(p, self._axis, np.vstack([rows, np.zeros_like(rows[:1])]), path)
        if source.kind == "linear":
            return linear_row(p, replace(source.data, cells=self._moved(source.data.cells)))
        if source.kind in FUNCTIONS:
            return elementwise(p, source.kind, [self._moved(x) if isinstance(x, np.ndarray) else x
                                                for x in source.operands], source.width, self._axis)
        raise Unsupported("events that are looked up, numbers, or linear layers and arithmetic of them, with a candidate "
                          "behind them", f"those of '{source.kind}'")
