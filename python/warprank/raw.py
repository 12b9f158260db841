# SPDX-License-Identifier: Apache-2.0
"""From Arrow tables with the columns of logs to requests of a model, through transforms where there are any.

A row of a table is a request. An input of the model is a column by its name, or a feature by its name, which transforms
make of other columns. Where an input is on a nested axis, its column has lists; an axis of which no column has lists has
one row for each row of its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from . import _core
from .columns import Input, Ragged, inputs_of
from .errors import InvalidArgument, Problems
from .transforms import Transforms

KINDS = {"text": "text", "i64": "integers", "f32": "numbers", "ids": "integers", "dense": "numbers"}


@dataclass
class _Wanted:
    """A column as it is read."""

    kind: str  # of KINDS
    most: int  # lists around a row
    in_row: str = ""  # how many values a row has; "": one


@dataclass
class _Made:
    """Features on the rows of one axis."""

    axes: tuple[str, ...]  # from below the outermost to the axis
    inputs: list[Input]
    transforms: Transforms


@dataclass
class _Rows:
    """While a table is read: by axis its offsets, and what gave them."""

    outermost: int
    offsets: dict[str, np.ndarray] = field(default_factory=dict)
    givers: dict[str, str] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)

    def give(self, axis: str, giver: str, offsets: np.ndarray) -> None:
        if axis not in self.offsets:
            self.offsets[axis], self.givers[axis] = offsets, giver
        elif not np.array_equal(self.offsets[axis], offsets):
            self.problems.add(f"lists of axis '{axis}'", f"those of {self.givers[axis]}", f"others of {giver}")


class Requests:
    """Reads tables whose columns are those of a schema."""

    def __init__(self, plan: _core.Plan, transforms: Transforms | None = None):
        """Raises what the transforms make that is not what the inputs of their names are."""
        self._inputs = inputs_of(plan)
        self._groups = _groups(self._inputs, transforms)
        made = {i.name for group in self._groups for i in group.inputs}
        self._columns = {name: i for name, i in self._inputs.items() if name not in made}
        self._listed: set[str] = set()

    @property
    def types(self) -> dict[str, str]:
        """By column that is read "text", "i64" or "f32"."""
        direct = {name: "i64" if i.kind == "ids" else "f32" for name, i in self._columns.items()}
        return direct | {name: type for group in self._groups for name, type, *_ in group.transforms._core.columns()}

    def read(self, names: Iterable[str]) -> list[str]:
        """Those of a table's columns that are read."""
        types = self.types
        return [name for name in names if name in types]

    def is_single(self, axes: Sequence[str]) -> bool:
        """Whether there is one row for each request; of a schema that was checked."""
        return not self._listed & set(axes)

    def check(self, schema: Any, source: str, problems: Problems) -> None:
        """Collects the columns that are missing, or of another type."""
        self._listed = set()
        for name, given in self._columns.items():
            if name not in schema.names:
                if not given.has_default:
                    self.missing(name, schema.names, source, problems)
                continue
            wide = given.kind == "dense" and given.width > 1
            depth = self._depth(schema, name, source, problems, _Wanted(
                given.kind, len(given.axes), f"lists of {given.width} " if wide else ""))
            self._lists(given.axes, depth)
        for group in self._groups:
            self._listed |= {i.axes[-1] for i in group.inputs if len(i.axes) > len(group.axes)}
            for name, type, ragged, width in group.transforms._core.columns():
                if name not in schema.names:
                    self.missing(name, schema.names, source, problems)
                    continue
                in_row = "lists of " if ragged else f"lists of {width} " if width > 1 else ""
                self._lists(group.axes, self._depth(schema, name, source, problems, _Wanted(
                    type, len(group.axes), in_row)))

    @staticmethod
    def missing(name: str, names: Sequence[str], source: str, problems: Problems) -> None:
        near = get_close_matches(name, names, 1)
        problems.add(f"column '{name}'", f"a column of {source}",
                     "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))

    @staticmethod
    def _depth(schema: Any, name: str, source: str, problems: Problems, wanted: _Wanted) -> int:
        """How many lists are around a row of a column."""
        depth, type = _lists_of(schema.field(name).type)
        depth -= wanted.in_row != ""
        if _fits(type, wanted.kind) and 0 <= depth <= wanted.most:
            return depth
        deep = f", or lists of them up to {wanted.most} deep" if wanted.most else ""
        problems.add(f"column '{name}' of {source}", f"{wanted.in_row}{KINDS[wanted.kind]}{deep}",
                     str(schema.field(name).type))
        return 0

    def _lists(self, axes: Sequence[str], depth: int) -> None:
        self._listed |= set(axes[len(axes) - depth:])

    def __call__(self, table: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A table of the schema that was checked, as data and offsets for Model.score."""
        rows = _Rows(table.num_rows)
        data: dict[str, Any] = {}
        for name, given in self._columns.items():
            if name in table.column_names:
                data[name] = column = _whole(table.column(name))
                self._give(rows, name, given.axes, column, given.kind == "dense" and given.width > 1)
        columns: list[tuple[_Made, dict[str, Any]]] = []
        for group in self._groups:
            found = {}
            for name, _, ragged, width in group.transforms._core.columns():
                column = _whole(table.column(name))
                found[name] = self._give(rows, name, group.axes, column, ragged or width > 1)
            columns.append((group, found))
        rows.problems.raise_if_any()
        self._add_singles(rows)
        for group, found in columns:
            data |= self._run(rows, group, found)
        rows.problems.raise_if_any()
        self._add_singles(rows)  # below those that transforms made
        return data, rows.offsets

    def _give(self, rows: _Rows, name: str, axes: Sequence[str], column: Any, in_row: bool) -> tuple[Any, int]:
        """A column without the lists around its rows, and their number."""
        depth = _lists_of(column.type)[0] - in_row
        listed = [axis for axis in axes if axis in self._listed]
        for level in range(depth + in_row):
            if column.null_count:
                rows.problems.add(f"column '{name}'", "no nulls", f"{column.null_count} of them")
                break
            if level < depth:
                offsets, column = _split(column)
                rows.give(listed[level], f"'{name}'", offsets)
        return column, depth

    def _add_singles(self, rows: _Rows) -> None:
        """Offsets of axes without lists, where it is known how many rows are above."""
        for given in self._inputs.values():
            count = rows.outermost
            for axis in given.axes:
                if axis not in self._listed:
                    rows.offsets[axis] = np.arange(count + 1, dtype=np.int64)
                elif axis in rows.offsets:
                    count = int(rows.offsets[axis][-1])
                else:
                    break

    def _run(self, rows: _Rows, group: _Made, found: dict[str, tuple[Any, int]]) -> dict[str, Any]:
        """The inputs that transforms make."""
        import pyarrow
        listed = [axis for axis in group.axes if axis in self._listed]
        given: dict[str, Any] = {}
        for name, type, ragged, width in group.transforms._core.columns():
            column, depth = found[name]
            for axis in listed[depth:]:  # one value for each row above
                column = _repeated(column, np.diff(rows.offsets[axis]))
            if ragged:
                offsets, values = _split(column)
                given[name] = values, offsets
            elif width > 1:
                given[name] = _wide(rows, name, column, width)
            else:
                is_nan = column.null_count and type == "f32" and name in group.transforms.buckets_only
                given[name] = column.cast(pyarrow.float64()).fill_null(float("nan")) if is_nan else column
        try:
            made = group.transforms.run(given)
        except InvalidArgument as error:
            for problem in error.problems:
                rows.problems.add(problem.what, problem.expected, problem.got)
            return {}
        data = {}
        for wanted in group.inputs:
            value = made[wanted.name]
            if isinstance(value, Ragged):
                rows.give(wanted.axes[-1], f"'{wanted.name}'", np.ascontiguousarray(value.offsets, np.int64))
                value = value.values
            data[wanted.name] = value
        return data


def _groups(inputs: dict[str, Input], transforms: Transforms | None) -> list[_Made]:
    if transforms is None:
        return []
    problems = Problems()
    by_axes: dict[tuple[str, ...], list[Input]] = {}
    for name, example in transforms.examples().items():
        given = inputs.get(name)
        if given is None:
            continue
        is_ragged = isinstance(example, Ragged)
        values = example.values if isinstance(example, Ragged) else example
        kind = "ids" if values.dtype == np.int64 else "dense"
        width = values.shape[1] if values.ndim == 2 else 1
        if (kind, width) != (given.kind, given.width):
            problems.add(f"input '{name}'", _shown(given.kind, given.width),
                         f"a feature of {_shown(kind, width)}")
        elif is_ragged and not given.axes:
            problems.add(f"input '{name}'", "one value for each request", "a feature of any number of them")
        else:
            by_axes.setdefault(tuple(given.axes[:len(given.axes) - is_ragged]), []).append(given)
    problems.raise_if_any()
    return [_Made(axes, group, transforms.only([i.name for i in group])) for axes, group in by_axes.items()]


def _shown(kind: str, width: int) -> str:
    return "ids" if kind == "ids" else "numbers" if width == 1 else f"{width} numbers"


def _lists_of(type: Any) -> tuple[int, Any]:
    """How deep lists are, and what they are of."""
    from pyarrow import types
    depth = 0
    while types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        depth, type = depth + 1, type.value_type
    return depth, type


def _fits(type: Any, kind: str) -> bool:
    from pyarrow import types
    if types.is_dictionary(type):
        type = type.value_type
    if kind == "text":
        return any(getattr(types, f"is_{t}", lambda _: False)(type) for t in (
            "string", "large_string", "string_view", "binary", "large_binary", "binary_view"))
    is_number = types.is_integer(type) or (kind in ("f32", "dense") and types.is_floating(type))
    return is_number or (kind == "dense" and types.is_boolean(type))


def _whole(column: Any) -> Any:
    """One array."""
    import pyarrow
    return column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column


def _split(array: Any) -> tuple[np.ndarray, Any]:
    """Offsets and values of lists."""
    from pyarrow import types
    if types.is_fixed_size_list(array.type):
        return np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size, array.flatten()
    begins = array.offsets.to_numpy().astype(np.int64)
    return begins - begins[0], array.values.slice(int(begins[0]), int(begins[-1] - begins[0]))


def _repeated(array: Any, times: np.ndarray) -> Any:
    import pyarrow
    return array.take(pyarrow.array(np.repeat(np.arange(len(array)), times)))


def _wide(rows: _Rows, name: str, array: Any, width: int) -> np.ndarray:
    offsets, values = _split(array)
    if values.null_count or (np.diff(offsets) != width).any():
        rows.problems.add(f"column '{name}'", f"lists of {width} numbers", "others")
        return np.zeros((len(array), width), np.float32)
    return values.to_numpy(zero_copy_only=False).reshape(-1, width)
