# SPDX-License-Identifier: Apache-2.0
"""What a model takes, and how its batches become columns and offsets of requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from ..columns import Ragged
from ..errors import Problems
from . import cells


# What arrays of an input may be, as NumPy calls them, and as messages do.
KINDS = {"ids": "iu", "numbers": "fiub", "mask": "b"}
NAMES = {"ids": "integers", "numbers": "numbers", "mask": "truth values"}

# Behind the name of an axis of events, or of an input of theirs, that has a candidate behind them.
WITH_CANDIDATE = ".with_candidate"


@dataclass
class Input:
    """A tensor that the model takes."""

    name: str
    axis: str
    shape: tuple[int, ...]  # of a row
    kind: Literal["ids", "numbers", "mask"]
    is_events: bool = False  # the first dimension of a row is that of its axis' events
    is_flat: bool = False  # the events of all rows one behind the other, without a dimension for the batch
    is_bag: bool = False
    is_split: bool = False  # one input of ids for each column
    padding: int | None = None
    offsets: str | None = None  # of flat ones: the input that has them
    has_end: bool = False  # those have the end of the last, too
    ids_columns: set[int] = field(default_factory=set)  # of numbers: those that the model takes for ids

    @property
    def is_ids(self) -> bool:
        return self.kind == "ids"

    @property
    def is_lengths(self) -> bool:
        return self.is_events and self.is_ids and not self.shape and not self.is_flat

    @property
    def width(self) -> int:
        shape = self.shape[1:] if self.is_events and not self.is_flat else self.shape
        return math.prod(shape)

    def column_name(self, column: int) -> str:
        return self.name if self.width == 1 else f"{self.name}.{column}"


def axes_of(names: Sequence[str], axes: Mapping[str, str] | None, problems: Problems) -> dict[str, tuple[str, bool]]:
    """By input its axis, and whether it has events of it ("user/history[]")."""
    found = {}
    for name in names:
        axis = "row" if axes is None else axes.get(name, "")
        if not axis:
            problems.add(f"axes: input '{name}'", "its axis", "none")
        is_events = axis.endswith("[]")
        axis = axis.removesuffix("[]")
        if is_events and "/" not in axis:
            problems.add(f"axes: input '{name}'", "an axis of events that is nested, 'user/history[]'", f"'{axis}[]'")
        found[name] = axis, is_events
    for name in axes or {}:
        if name not in found:
            near = get_close_matches(name, found, 1)
            problems.add(f"axes: '{name}'", "an input of the model",
                         "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
    return found


def with_candidate(name: str) -> str:
    """Of an axis of events, or an input of theirs: with a row behind them."""
    return name + WITH_CANDIDATE


def position_name(axis: str) -> str:
    return axis.rpartition("/")[2] + ".position"


def last_name(axis: str) -> str:
    return axis.rpartition("/")[2] + ".is_last"


def columns(inputs: Sequence[Input], sequences: Mapping[str, cells.Sequence], lookups: Mapping[str, Mapping[str, int]],
            arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Columns and offsets of a batch, by input its array: one request for each row.

    lookups: by column the tables in which its ids are looked up, with their rows
    """
    rows = len(next(arrays[i.name] for i in inputs if not i.is_flat))
    problems = Problems()
    for given in inputs:
        if not _fits(given, inputs, arrays, rows, problems):
            continue
        if given.kind == "numbers":
            _check_numbers(given, arrays[given.name], problems)
        if (given.is_ids and not given.is_lengths) or given.ids_columns:
            _check_ids(given, sequences, lookups, arrays[given.name], problems)
    problems.raise_if_any()
    lengths = {i.axis: arrays[i.name].shape[1] for i in inputs if i.is_events and arrays[i.name].ndim > 1}
    kept = {axis: events_of(sequence, lengths.get(axis, sequence.length), arrays, rows)
            for axis, sequence in sequences.items() if sequence.events is None}
    for axis, events in kept.items():
        if sequences[axis].is_ordered:
            _check_order(sequences[axis], events, problems)
        for given in inputs:
            if given.is_lengths and given.axis == axis:
                _check_lengths(given, sequences[axis], events, arrays[given.name], problems)
    problems.raise_if_any()
    kept |= {axis: np.pad(kept[sequence.events.axis], ((0, 0), (0, 1)), constant_values=True)
             for axis, sequence in sequences.items() if sequence.events is not None}
    data: dict[str, Any] = {}
    offsets: dict[str, np.ndarray] = {}
    for given in inputs:
        array = arrays[given.name]
        axes = given.axis.split("/")[1:]
        for axis in axes[:-1] if given.is_events else axes:
            offsets[axis] = np.arange(rows + 1, dtype=np.int64)
        if given.is_events:
            data |= _of_events(given, array, kept, arrays)
            if with_candidate(given.axis) in kept and array.ndim > 1:
                behind = [(0, 0), (0, 1), *[(0, 0)] * (array.ndim - 2)]
                data |= _of_events(replace(given, name=with_candidate(given.name), axis=with_candidate(given.axis)),
                                   np.pad(array, behind, constant_values=-1 if given.is_ids else 0), kept, arrays)
        elif given.is_bag:
            array = array.reshape(rows, -1)
            in_bag = np.ones(array.shape, bool) if given.padding is None else array != given.padding
            data[given.name] = _ragged(array, in_bag)
        elif given.is_split:
            split = array.reshape(rows, -1)
            data |= {given.column_name(c): np.ascontiguousarray(split[:, c]) for c in range(given.width)}
        elif not given.is_ids:
            data |= _of_numbers(given, array.reshape(rows, given.width))
    for axis, events in kept.items():
        places = np.broadcast_to(np.arange(events.shape[1]), events.shape)
        data[position_name(axis)] = _ragged(places, events)
        counts = events.cumsum(1)
        data[last_name(axis)] = _ragged((counts == counts[:, -1:])[..., None].astype(np.float32), events)
    return data, offsets


def _fits(given: Input, inputs: Sequence[Input], arrays: Mapping[str, np.ndarray], rows: int,
          problems: Problems) -> bool:
    """Whether an array is of the type and the shape of an input; dimensions of size 1 may be there or not."""
    array, what = arrays[given.name], f"batch: input '{given.name}'"
    if array.dtype.kind not in KINDS[given.kind]:
        problems.add(what, NAMES[given.kind], f"{array.dtype} values")
        return False
    if given.is_flat or given.name in {i.offsets for i in inputs}:
        return True
    shape = array.shape
    is_free = given.is_bag or (given.is_events and bool(given.shape))  # of any number of ids or events
    width = math.prod(shape[2:] if is_free else shape[1:])
    if shape[:1] == (rows,) and not (is_free and len(shape) < 2) and (given.is_bag or width == given.width):
        return True
    inner = given.shape[1:] if is_free else given.shape
    expected = [str(rows), *["any"] * is_free, *map(str, inner)]
    problems.add(what, f"shape [{', '.join(expected)}]", str(list(shape)))
    return False


def _check_numbers(given: Input, array: np.ndarray, problems: Problems) -> None:
    """That FP32 holds them, as far as whole numbers go: seconds since 1970 it rounds to two minutes. Ids among them stay
    what they are."""
    if array.dtype.itemsize < 8 or array.size == 0:
        return
    array = np.delete(array.reshape(-1, given.width), sorted(given.ids_columns), 1).ravel()
    with np.errstate(over="ignore"):
        is_lost = (np.abs(array) >= 2**24) & np.isfinite(array) & (array.astype(np.float32) != array)
    if is_lost.any():
        lost = array[is_lost.argmax()]
        problems.add(f"batch: input '{given.name}'", "numbers that FP32 holds, such as the differences of these",
                     f"{lost}, which is {np.float32(lost):.0f} in FP32")


def _check_ids(given: Input, sequences: Mapping[str, cells.Sequence], lookups: Mapping[str, Mapping[str, int]],
               array: np.ndarray, problems: Problems) -> None:
    """That tables have rows for all ids but padding, and of a sequence for the places of all events."""
    sequence = sequences.get(given.axis)
    masked = given.padding
    if sequence is not None and sequence.mask is not None and sequence.mask[0] == given.name:
        masked = sequence.mask[1]
    columns = array.reshape(-1, 1 if given.is_flat or given.is_bag else given.width)
    for column, ids in enumerate(columns.T):
        if not given.is_ids:
            if column not in given.ids_columns:
                continue
            broken = ids[ids != np.floor(ids)]
            if len(broken):
                problems.add(f"batch: input '{given.name}'", f"ids in column {column}", str(broken[0]))
                continue
            ids = ids.astype(np.int64)
        for table, rows in lookups.get(given.column_name(column) if not given.is_bag else given.name, {}).items():
            beyond = ids[((ids < 0) | (ids >= rows)) & (ids != masked if masked is not None else True)]
            if len(beyond):
                more = f", and {len(beyond) - 1} more" if len(beyond) > 1 else ""
                problems.add(f"batch: input '{given.name}'", f"ids of 0 to {rows - 1}, the rows of table '{table}'",
                             f"{beyond[0]}{more}")
    for behind, axis in enumerate((given.axis, with_candidate(given.axis))):
        for table, rows in lookups.get(position_name(axis), {}).items():
            if given.is_events and array.ndim > 1 and array.shape[1] + behind > rows:
                problems.add(f"batch: input '{given.name}'", f"{rows - behind} events at most, as table '{table}' has",
                             str(array.shape[1]))


def events_of(sequence: cells.Sequence, length: int, arrays: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """[rows, length]: which of them are events, and not padding."""
    if sequence.mask is None:
        return np.ones((rows, length), bool)
    name, padding = sequence.mask
    array = arrays[name]
    if padding is not None:
        return array != padding
    return array if array.dtype == bool else np.arange(length) < array.reshape(-1, 1)


def _check_lengths(given: Input, sequence: cells.Sequence, events: np.ndarray, lengths: np.ndarray,
                   problems: Problems) -> None:
    """That an input says as many events as there are: the library counts those."""
    if sequence.mask is None:
        return
    counts, name = events.sum(1), sequence.mask[0]
    wrong = (lengths.reshape(-1) != counts).nonzero()[0]
    if len(wrong):
        row = wrong[0]
        expected = (f"0 to {events.shape[1]} events" if name == given.name else
                    f"{counts[row]} in row {row}, as many events as '{name}' has there")
        problems.add(f"batch: input '{given.name}'", expected, f"{lengths.reshape(-1)[row]}, and {len(wrong) - 1} more"
                     if len(wrong) > 1 else str(lengths.reshape(-1)[row]))


def _check_order(sequence: cells.Sequence, events: np.ndarray, problems: Problems) -> None:
    early = (~events[:, :-1] & events[:, 1:]).any(1).nonzero()[0]
    if sequence.mask is not None and len(early):
        problems.add(f"batch: input '{sequence.mask[0]}'", "padding behind the events, as the model computes what "
                     "depends on their order", f"padding ahead of an event in row {early[0]}")


def _of_numbers(given: Input, array: np.ndarray) -> dict[str, Any]:
    """Those columns that are ids, each by itself, and the others."""
    data: dict[str, Any] = {given.column_name(c): array[:, c].astype(np.int64) for c in sorted(given.ids_columns)}
    others = [c for c in range(given.width) if c not in given.ids_columns]
    if others:
        data[given.name] = np.ascontiguousarray(array[:, others]) if given.ids_columns else array
    return data


def _of_events(given: Input, array: np.ndarray, kept: Mapping[str, np.ndarray],
               arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    if given.is_flat:
        offsets = arrays[given.offsets] if given.offsets is not None else np.zeros(0, np.int64)
        return {given.name: Ragged(array, offsets if given.has_end else np.append(offsets, len(array)))}
    if given.is_lengths or given.kind == "mask":
        return {}
    events = kept[given.axis]
    split = array.reshape(*events.shape, -1)
    if not given.is_ids:
        return {given.name: _ragged(split, events)}
    return {given.column_name(c): _ragged(split[:, :, c], events) for c in range(given.width)}


def _ragged(array: np.ndarray, kept: np.ndarray) -> Ragged:
    """Of [rows, length, ..] those elements that are kept."""
    return Ragged(np.ascontiguousarray(array[kept]), np.concatenate([[0], np.cumsum(kept.sum(1))]))
