# SPDX-License-Identifier: Apache-2.0
"""Tensors of a traced program as columns of a graph's tensors.

A batch [B, ...] of the program is an array of cells, one for each element of a row: which column of which source
holds it, and of the events of a sequence which one. Whatever only moves elements (view, transpose, cat, index, ..)
moves cells and computes nothing; the op itself is run on cells that are marked with their row, so that one which mixes
rows is found out. What computes makes a source: an expression, of which a tensor of the graph is made when it is
wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import warprank as wr

POSITION_BITS, COLUMN_BITS, SOURCE_BITS = 12, 20, 18
COLUMN_SHIFT = POSITION_BITS
SOURCE_SHIFT = POSITION_BITS + COLUMN_BITS
ROW_SHIFT = SOURCE_SHIFT + SOURCE_BITS
POSITIONS = (1 << POSITION_BITS) - 1
MOST_ROWS = 1 << 13
PAIR = "*"  # "user/item*user/history": each item with each event


class Unsupported(Exception):
    """expected, got"""


# Of columns: the tensor that has them, where, and how many it has.
Make = Callable[[np.ndarray], tuple[wr.Tensor, np.ndarray, int]]


@dataclass
class Source:
    """A tensor of the graph, once it is wanted, and what it computes."""

    axis: str  # "user/item", or a pair of them
    width: int
    kind: str
    make: Make
    operands: tuple[Any, ...] = ()  # cells by column, or numbers, where `kind` is an elementwise function
    data: Any = None  # what patterns want to know of others
    node: Any = None  # of the program: where it was computed
    left_out: set[int] = field(default_factory=set)  # columns that the tensor does not have


@dataclass
class Value:
    """A batch of the program. The dimension `batch`, from the right, is of [outer, B, inner] elements, most often
    [1, B, 1]; cells have the program's shape, but without the B."""

    cells: np.ndarray
    is_ids: bool = False
    batch: int = 0  # 0: the first
    inner: int = 1

    def __post_init__(self) -> None:
        self.batch = self.batch or -self.cells.ndim

    def like(self, cells: np.ndarray) -> Value:
        """Other numbers, with as many dimensions."""
        return Value(cells, False, self.batch, self.inner)

    @property
    def is_plain(self) -> bool:
        """Whether it is [B, ...]."""
        return self.batch == -self.cells.ndim and self.cells.shape[0] == 1


@dataclass
class Sequence:
    """An axis of events, of which the module has [B, length] with padding."""

    axis: str
    length: int
    # What tells events from padding: an input and its padding id, or None for one of truth values or of lengths.
    mask: tuple[str, int | None] | None = None
    is_ordered: bool = False  # what is computed holds for padding behind the events alone
    events: Sequence | None = None  # of those with a candidate behind them: the events


def source_numbers(cells: np.ndarray) -> np.ndarray:
    return cells >> SOURCE_SHIFT


def columns_of(cells: np.ndarray) -> np.ndarray:
    return (cells >> COLUMN_SHIFT) & ((1 << COLUMN_BITS) - 1)


def num_runs(cells: np.ndarray) -> int:
    """Of how many runs of columns that lie side by side cells consist."""
    return 1 + int(np.count_nonzero(np.diff(cells) != 1 << COLUMN_SHIFT))


def pooled_axis(axis: str) -> str:
    """Of what is pooled over the events of an axis, or of a pair."""
    query, _, events = axis.rpartition(PAIR)
    return query or events.rpartition("/")[0]


@dataclass
class Sources:
    """All tensors that cells are of."""

    builder: wr.Builder
    axes: Mapping[str, wr.Axis]
    sequences: Mapping[str, Sequence]  # by axis
    problem: Callable[[str, str], None]  # at the current node
    current: Callable[..., Any]  # the current node; given one, it becomes that
    all: list[Source] = field(default_factory=list)
    _tensors: dict[int, wr.Tensor] = field(default_factory=dict)
    _gathered: dict[tuple[str, bytes], wr.Tensor] = field(default_factory=dict)

    def add(self, axis: str, width: int, kind: str, make: Callable[..., Any], operands: tuple[Any, ...] = (),
            data: Any = None, by_column: bool = False) -> np.ndarray:
        """The cells of all columns of a new source. `make` gives its tensor, or `by_column` that of some columns."""
        number = len(self.all)
        self.all.append(Source(axis, width, kind, make if by_column else self._once(number, make), operands, data,
                                self.current()))
        return (number << SOURCE_SHIFT) + (np.arange(width, dtype=np.int64) << COLUMN_SHIFT)

    def make_otherwise(self, cell: int, make: Callable[[], wr.Tensor]) -> None:
        """Another way to make the source of a cell."""
        number = cell >> SOURCE_SHIFT
        self.all[number].make = self._once(number, make)

    def _once(self, number: int, make: Callable[[], wr.Tensor]) -> Make:
        def made(columns: np.ndarray) -> tuple[wr.Tensor, np.ndarray, int]:
            source = self.all[number]
            if number not in self._tensors:
                self._tensors[number] = make()
            if not source.left_out:
                return self._tensors[number], columns, source.width
            kept = np.array([c not in source.left_out for c in range(source.width)])
            if not kept[columns].all():
                raise Unsupported(f"columns of '{source.data.name}' that are ids, or numbers", "one that is both")
            return self._tensors[number], (np.cumsum(kept) - 1)[columns], int(kept.sum())
        return made

    def of(self, cell: int) -> tuple[Source, int]:
        return self.all[cell >> SOURCE_SHIFT], int(cell >> COLUMN_SHIFT) & ((1 << COLUMN_BITS) - 1)

    def readers_of(self, cell: int) -> list[Source]:
        """The sources that are made of the source of a cell."""
        number = cell >> SOURCE_SHIFT

        def reads(source: Source) -> bool:
            given = (*source.operands, getattr(source.data, "cells", None))
            return any(isinstance(x, np.ndarray) and (source_numbers(x) == number).any() for x in given)
        return [source for source in self.all if reads(source)]

    def axes_in(self, *cells: np.ndarray) -> set[str]:
        return {self.all[s].axis for c in cells for s in np.unique(source_numbers(c))}

    def axis_of(self, *cells: np.ndarray) -> str:
        """The deepest axis of cells; of queries and the events of a sequence the pair."""
        axes = self.axes_in(*cells)
        for axis in axes:
            if axis.partition(PAIR)[2] and axis.partition(PAIR)[0] in self.sequences:
                return axis  # each event with each
        parts = {part for axis in axes for part in axis.split(PAIR)}
        events = {axis for axis in parts if axis in self.sequences}
        deepest = self._deepest(parts - events) if parts - events else None
        if not events:
            assert deepest is not None
            return deepest
        event = self._deepest(events)
        if deepest is None or event.startswith(deepest + "/") or event == deepest:
            return event
        if not deepest.startswith(event.rpartition("/")[0]):
            raise Unsupported("tensors of which one's axis lies above the other's", f"'{event}' and '{deepest}'")
        return deepest + PAIR + event

    def _deepest(self, axes: set[str]) -> str:
        deepest = max(sorted(axes), key=lambda axis: axis.count("/"))
        for axis in sorted(axes):
            if deepest != axis and not deepest.startswith(axis + "/"):
                raise Unsupported("tensors of which one's axis lies above the other's", f"'{axis}' and '{deepest}'")
        return deepest

    def sequence_of(self, axis: str) -> Sequence | None:
        return self.sequences.get(axis.rpartition(PAIR)[2])

    def split_events(self, cells: np.ndarray) -> tuple[int | None, np.ndarray]:
        """The dimension (from the right) along which events lie, and the cells of one of them, of size 1 there."""
        position = cells & POSITIONS
        if not position.any():
            return None, cells
        bare = cells - position
        axes = self.axes_in(bare[position > 0])
        lengths = {s.length for s in map(self.sequence_of, axes) if s is not None}
        for d in range(cells.ndim):
            along = np.arange(1, cells.shape[d] + 1).reshape(-1, *[1] * (cells.ndim - d - 1))
            one, first = bare.take([0], d), position.take([0], d)
            same = (position == np.where(first > 0, along, 0)).all() and (bare == one).all()
            if same and {cells.shape[d]} == lengths:
                return d - cells.ndim, one
        raise Unsupported("all events of a sequence", "some of them, picked by their place")

    def with_events(self, cells: np.ndarray, dimension: int, length: int) -> np.ndarray:
        """Cells of one event, of size 1 in that dimension, as those of all."""
        shape = list(cells.shape)
        shape[dimension] = length
        along = np.arange(1, length + 1).reshape(-1, *[1] * (-dimension - 1))
        is_event = np.zeros(cells.shape, bool)
        for number in np.unique(source_numbers(cells)):
            if self.sequence_of(self.all[number].axis) is not None:
                is_event |= source_numbers(cells) == number
        return np.broadcast_to(cells, shape) + np.where(is_event, along, 0)

    def gather(self, cells: np.ndarray, axis: str) -> wr.Tensor:
        """The tensor [rows of axis, cells] that has these columns in this order."""
        flat = np.ascontiguousarray(cells).ravel()
        key = (axis, flat.tobytes())
        if PAIR in axis:
            raise Unsupported("attention that the library has, of a query over all events", "values of their pairs")
        if key not in self._gathered:
            self._gathered[key] = self._gather(flat, axis)
        return self._gathered[key]

    def _gather(self, flat: np.ndarray, axis: str) -> wr.Tensor:
        if (flat & POSITIONS).any():
            raise Unsupported("all events of a sequence", "some of them, picked by their place")
        breaks = np.flatnonzero(np.diff(source_numbers(flat))) + 1
        parts = [part for same in np.split(flat, breaks) for part in self._parts(same, axis)]
        return parts[0] if len(parts) == 1 else self.builder.concat(parts)

    def _parts(self, flat: np.ndarray, axis: str) -> list[wr.Tensor]:
        """Of cells of one source."""
        number = int(flat[0]) >> SOURCE_SHIFT
        source = self.all[number]
        tensor, columns, width = self._tensor(number, columns_of(flat))
        if source.axis != axis and number in self._tensors:
            key = (axis, b"expanded %d" % number)
            if key not in self._gathered:
                self._gathered[key] = self.builder.expand(tensor, self.axes[axis])
            tensor = self._gathered[key]
        elif source.axis != axis:
            tensor = self.builder.expand(tensor, self.axes[axis])
        parts = []
        for run in np.split(columns, np.flatnonzero(np.diff(columns) != 1) + 1):
            begin, end = int(run[0]), int(run[-1]) + 1
            parts.append(tensor if begin == 0 and end == width else self.builder.slice(tensor, begin, end))
        return parts

    def _tensor(self, number: int, columns: np.ndarray) -> tuple[wr.Tensor, np.ndarray, int]:
        source = self.all[number]
        before = self.current()
        self.current(source.node)
        try:
            if PAIR in source.axis:
                query, _, events = source.axis.partition(PAIR)
                raise Unsupported("attention that the library has, of a query over all events",
                                  f"another function of '{query}' and '{events}'")
            return source.make(columns)
        except Unsupported as problem:
            self.problem(*problem.args)
        finally:
            self.current(before)
        # A stand-in, so that what else is wrong is told, too.
        name = f"unsupported {number}"
        axis = source.axis.partition(PAIR)[0]
        source.axis, source.left_out = axis, set()
        self._tensors.pop(number, None)
        source.make = self._once(number, lambda: self.builder.dense(name, self.axes[axis], source.width))
        return source.make(columns)


def move(op: Callable[..., Any], args: Any, kwargs: Any, batch: int, tensor: Callable[[np.ndarray], Any]) -> Any:
    """Runs an op that moves elements on the cells of its arguments, as the framework's tensors; those that it makes
    become Values."""
    is_ids: list[bool] = []

    def marked(x: Any) -> Any:
        if isinstance(x, Value):
            is_ids.append(x.is_ids)
            return tensor(with_rows(x, batch))
        if isinstance(x, (list, tuple)):
            return type(x)(marked(each) for each in x)
        return x

    result = op(*marked(args), **{name: marked(x) for name, x in kwargs.items()})
    if isinstance(result, (list, tuple)):
        return type(result)(_value(np.asarray(r), batch, all(is_ids)) for r in result)
    return _value(np.asarray(result), batch, all(is_ids))


def with_rows(x: Value, batch: int) -> np.ndarray:
    """Its cells in the program's shape, each with its row."""
    shape, d = x.cells.shape, x.batch + x.cells.ndim
    if x.cells.size == 0:
        return np.zeros((*shape[:d], shape[d] * batch, *shape[d + 1:]), np.int64)
    apart = x.cells.reshape(*shape[:d], -1, 1, x.inner, *shape[d + 1:])
    rows = (np.arange(batch, dtype=np.int64) << ROW_SHIFT).reshape(-1, *[1] * (len(shape) - d))
    return np.array((apart + rows).reshape(*shape[:d], -1, *shape[d + 1:]), order="C")  # for views of any shape


def _value(moved: np.ndarray, batch: int, is_ids: bool) -> Value:
    rows = moved >> ROW_SHIFT
    if moved.size == 0 and batch in moved.shape:  # nothing tells which, and nothing but moves takes it
        d = moved.shape.index(batch)
        return Value(np.zeros((*moved.shape[:d], 1, *moved.shape[d + 1:]), np.int64), is_ids, d - moved.ndim)
    for d, size in enumerate(moved.shape):
        if moved.size == 0 or size % batch:
            continue
        along = np.moveaxis(rows, d, 0).reshape(size, -1)[:, 0]
        inner = int((along != 0).argmax())  # where the second row begins
        if inner == 0 or size % (batch * inner):
            continue
        expected = (np.arange(size) // inner) % batch
        if not (rows == expected.reshape(-1, *[1] * (moved.ndim - d - 1))).all():
            continue
        apart = (moved & ((1 << ROW_SHIFT) - 1)).reshape(*moved.shape[:d], -1, batch, inner, *moved.shape[d + 1:])
        one = apart.take([0], d + 1)
        if (apart == one).all():
            return Value(one.reshape(*moved.shape[:d], -1, *moved.shape[d + 1:]), is_ids, d - moved.ndim, inner)
    raise Unsupported("each row made of itself, and all in one way", "others")


def numbers(x: Any) -> Value:
    """A batch of numbers, for ops that compute."""
    if not isinstance(x, Value):
        raise Unsupported("a batch of numbers", type(x).__name__)
    if x.is_ids:
        raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")
    if x.cells.size == 0:
        raise Unsupported("a batch of numbers", "one of none")
    return x


def row_dimension(x: Value, dim: int) -> int:
    """A dimension that is not the batch's, from the left."""
    dim = dim + x.cells.ndim if dim < 0 else dim
    if dim == x.batch + x.cells.ndim:
        raise Unsupported("each row by itself", "an op over the batch")
    return dim
