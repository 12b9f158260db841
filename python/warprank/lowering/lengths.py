# SPDX-License-Identifier: Apache-2.0
"""How many events rows have, where a program compares it with the places of events, or picks the last event by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import events, linears
from .cells import Unsupported, Value
from .expressions import EMPTY, FUNCTIONS, PADDING, at, constant, constant_of, elementwise, masked_value
from .inputs import last_name

if TYPE_CHECKING:
    from .program import Program

# What a comparison is with its sides exchanged.
TURNED = {"less": "greater", "greater": "less", "less_equal": "greater_equal", "greater_equal": "less_equal",
          "equal": "equal", "not_equal": "not_equal"}


class Lengths(NamedTuple):
    """A function of how many events rows have."""

    cell: int  # that says how many
    axis: str  # of the events
    numbers: np.ndarray  # [length + 1]: of each number of events


def lengths_of(p: Program, cell: int) -> Lengths | None:
    """What a cell is as such a function, as of lengths.clamp(min=1) - 1; None: it is none."""
    source, column = p.sources.of(cell)
    if source.kind == "count":
        axis = p.sources.axis_of(source.operands[0])
        sequence = p.sources.sequence_of(axis)
        is_of_all = sequence is not None and sequence.mask is not None and masked_value(
            p, int(source.operands[0][0])) != 0
        return None if sequence is None or is_of_all else Lengths(cell, axis, np.arange(sequence.length + 1.0))
    if source.kind not in ("add", "sub", "max", "min"):
        return None
    sides = [lengths_of(p, x) if isinstance(x, int) else None for x in (at(y, column) for y in source.operands)]
    given = next((x for x in sides if x is not None), None)
    if given is None:
        return None
    numbers = [s.numbers if s is not None else constant_of(p, at(x, column)) for s, x in zip(sides, source.operands)]
    if any(n is None for n in numbers) or any(s is not None and s.cell != given.cell for s in sides):
        return None
    each = np.array([FUNCTIONS[source.kind](*x) for x in zip(*(np.broadcast_to(n, given.numbers.shape)  # type: ignore
                                                               for n in numbers))])
    return given._replace(numbers=each)


def tells_events(p: Program, cell: int, axis: str) -> bool:
    """Whether a cell is other than 0 in rows that have events of an axis, and in no others."""
    source, column = p.sources.of(cell)
    operands = [at(x, column) for x in source.operands] if source.kind in TURNED else [cell]
    sides = [lengths_of(p, x) if isinstance(x, int) else None for x in operands]
    given = next((side for side in sides if side is not None), None)
    if given is None or given.axis != axis:
        return False
    numbers = [constant_of(p, x) if side is None else side.numbers for side, x in zip(sides, operands)]
    if any(n is None for n in numbers):
        return False
    is_true = [FUNCTIONS[source.kind](*x) if source.kind in TURNED else x[0]
               for x in zip(*np.broadcast_arrays(*numbers))]  # type: ignore[arg-type]
    return not is_true[0] and all(is_true[1:])


def are_whole(p: Program, x: Value) -> bool:
    """Whether all are known to be whole: lengths, masks and constants."""
    def is_whole(cell: int) -> bool:
        source, _ = p.sources.of(cell)
        if source.kind in ("count", "is_last"):
            return True
        given = lengths_of(p, cell)
        numbers = source.data if source.kind == "constant" else None if given is None else given.numbers
        return numbers is not None and bool((np.floor(numbers) == numbers).all())
    return all(map(is_whole, np.unique(x.cells).tolist()))


def _one_lengths(p: Program, x: Value) -> Lengths | None:
    """Of a batch that is one number for each row."""
    return lengths_of(p, int(x.cells.flat[0])) if (x.cells == x.cells.flat[0]).all() else None


def _noted(p: Program, given: Lengths) -> None:
    """That a row's events are its first, as many as are said."""
    said = p.sources.of(given.cell)[0].data
    if said is not None:
        p.mask(given.axis, said.name, None)
    p.sequences[given.axis].is_ordered = True


def check_lengths(p: Program, x: Value, axis: str) -> None:
    """That a batch says how many events of an axis rows have, also that they have none."""
    given = _one_lengths(p, x) if not x.is_ids else None
    if given is None or given.axis != axis or (given.numbers != np.arange(len(given.numbers))).any():
        raise Unsupported("lengths of each row's events, as (ids != 0).sum(1), of rows that have some", "others")
    _noted(p, given)


def places_compared(p: Program, function: str, x: Value, places: np.ndarray) -> Value | None:
    """Which places of events, counted from any number on, are below the lengths, or the last below them: a mask; None:
    it is another comparison."""
    given = _one_lengths(p, x) if not x.is_ids else None
    length = 0 if given is None else len(given.numbers) - 1
    if given is None or places.size != length or places.shape[-1] != length or (np.diff(places.ravel()) != 1).any():
        return None
    is_true = np.array([[FUNCTIONS[function](n, place) for place in places.ravel()] for n in given.numbers])
    lengths, each = np.arange(1, length + 1)[:, None], np.arange(length)
    of_empty = float(is_true[0, 0])
    cells = None
    for state in (1.0, 0.0):
        if (is_true[1:] == np.where(each < lengths, state, 1 - state)).all() and (is_true[0, 1:] == 1 - state).all():
            cells = constant(p, given.axis, state, 1 - state, empty=of_empty)
    if (is_true[1:] == (each == lengths - 1)).all() and not is_true[0, 1:].any():
        cells = is_last(p, given.axis, of_empty)
    if cells is None:
        raise Unsupported("lengths that are compared with the places of events: arange < length, or "
                          "arange == length - 1", "others")
    _noted(p, given)
    shape = [1] * max(x.cells.ndim, places.ndim)
    return Value(p.sources.with_events(cells.reshape(shape), -1, length), False, x.batch, x.inner)


def is_last(p: Program, axis: str, of_empty: float = 0.0) -> np.ndarray:
    """[1]: 1 for the last event of each row, of padding 0; of the first event of a row that has none `of_empty`."""
    key = ("is_last", axis, of_empty)
    if key not in p.expressions:
        p.expressions[key] = p.sources.add(axis, 1, "is_last", lambda: p.marks_of_last(axis),
                                           data={PADDING: 0.0, EMPTY: of_empty})
    return p.expressions[key]


def at_last(p: Program, x: Value, dim: int, places: Value, wraps: bool) -> Value | None:
    """Of [batch, .., events, ..] the last event, picked by lengths - 1, with a dimension of one event; None: places are
    others. wraps: whether the place -1, of a row without events, is another event, and no error"""
    given = _one_lengths(p, places) if not places.is_ids else None
    place, cells = p.sources.split_events(x.cells)
    if given is None or place is None or place + x.cells.ndim != dim % x.cells.ndim or \
            p.sources.axis_of(cells) != given.axis or (given.numbers[1:] != np.arange(len(given.numbers) - 1)).any():
        return None
    if given.numbers[0] == -1 and wraps:
        raise Unsupported("the last event by lengths.clamp(min=1) - 1", "lengths - 1: -1 of a row without events")
    _noted(p, given)
    made = last_of(p, cells.ravel(), given.axis) if given.numbers[0] == -1 else last_or_padding(p, cells.ravel(), given)
    return x.like(made.reshape(cells.shape))


def last_of(p: Program, cells: np.ndarray, axis: str) -> np.ndarray:
    """[n]: cells [n] of the last event; 0 where there is none."""
    return events.pool(p, elementwise(p, "mul", [is_last(p, axis), cells], len(cells), axis), "sum")


def last_or_padding(p: Program, cells: np.ndarray, given: Lengths) -> np.ndarray:
    """[n]: cells [n] of the last event, and where there is none what they are in a first event of padding."""
    first = [masked_value(p, int(c), EMPTY) for c in cells]
    if None in first:
        raise Unsupported("the last of events of which is known what they are for padding, as of ids that are compared "
                          "with it, or behind x * is_event.unsqueeze(-1)", "one that is padding in rows without events")
    picked = last_of(p, cells, given.axis)
    if not any(first):
        return picked
    parent = p.sources.of(given.cell)[0].axis
    is_empty = elementwise(p, "equal", [np.array([given.cell]), 0.0], 1, parent)
    of_empty = linears.linear_row(p, events.Layer(is_empty, np.array(first, np.float32)[:, None]))
    return elementwise(p, "add", [picked, of_empty], len(cells), parent)
