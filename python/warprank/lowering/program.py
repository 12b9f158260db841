# SPDX-License-Identifier: Apache-2.0
"""The graph, weights and tables of a traced program, as they are made, and what ops ask for."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

import warprank as wr

from ..errors import Problems
from ..rows import hashed_keys
from ..weights import check_finite
from .cells import COLUMN_SHIFT, SOURCE_SHIFT, Sequence, Sources, Unsupported, Value, columns_of
from .inputs import WITH_CANDIDATE, Input, last_name, position_name, with_candidate
from .table_rows import TableRows, rows_of

MOST_DEPTH = 20000


class Failed:
    """What an op made that could not be expressed; what comes of it is no further problem."""


class Program(ABC):
    """What runs a program of some framework op by op. Constants are the framework's; `array` has their numbers."""

    def __init__(self, inputs: Mapping[str, Input], batch: int, hashed: Mapping[str, Any]):
        self.builder = wr.Builder()
        self.batch = batch
        self.inputs = inputs  # by what the program calls them
        self.hashed = hashed  # by table the ids of its rows
        self.weights: dict[str, np.ndarray] = {}
        self.tables: dict[str, np.ndarray] = {}
        self.problems = Problems()
        self.sequences: dict[str, Sequence] = {}
        self._axes: dict[str, wr.Axis] = {}
        for given in sorted(inputs.values(), key=lambda i: i.axis.count("/")):
            self._add_axis(given.axis)
            if given.is_events and not given.is_flat and given.shape:
                length = given.shape[0]
                if length < 2:
                    self.problems.add(f"input '{given.name}'", "an example of 2 events or more", str(length))
                if self.sequences.setdefault(given.axis, Sequence(given.axis, length)).length != length:
                    self.problems.add(f"input '{given.name}'", f"{self.sequences[given.axis].length} events, as others "
                                      f"of axis '{given.axis}' have", str(length))
        self.sources = Sources(self.builder, self._axes, self.sequences, self.unsupported, self.current)
        self._paths: dict[int, str] = {}  # of parameters, by id()
        self.expressions: dict[tuple[Any, ...], np.ndarray] = {}  # their cells, by what they compute
        self.of_nan: set[int] = set()  # cells that say where a softmax over events is no number
        self.of_padding: dict[tuple[int, int], np.ndarray] = {}  # by layer and state what it makes of padding
        self.products: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}  # by their cells, of which matrices
        self._layers: dict[str, int] = {}
        self.layer_names: dict[int, str] = {}  # by the first cell of a linear layer
        self.read_orders: dict[bytes, np.ndarray] = {}  # by the cells of layers: in which order the first reads them
        self._table_handles: dict[tuple[int, ...], tuple[str, wr.Table]] = {}  # by constant, and rows
        self._ids: dict[str, wr.Ids] = {}
        self._marks: dict[str, wr.Tensor] = {}
        self._whole: dict[int, tuple[Any, np.ndarray]] = {}  # constants, which live as long, by id()
        self.input_of_source: dict[int, Input] = {}
        self.lookups: dict[str, dict[str, int]] = {}  # by input the tables that it looks up, with their rows
        self._node: Any = None

    # --- of the framework

    @abstractmethod
    def array(self, constant: Any) -> np.ndarray:
        """The numbers of a constant, in FP32."""

    @abstractmethod
    def path_of(self, constant: Any, suffix: str) -> str | None:
        """The layer that a parameter belongs to; None: it is computed, or not named so."""

    @abstractmethod
    def module_path(self) -> str:
        """Of the part of the model that the current op is in."""

    @abstractmethod
    def default_name(self) -> str:
        """Of the current op, for weights that no layer has."""

    @abstractmethod
    def unsupported(self, expected: str, got: str) -> None:
        """Notes a problem at the current op."""

    def has_events(self, axis: str) -> bool:
        """Whether the current op is of those rows alone that have events of an axis."""
        return False

    def current(self, *node: Any) -> Any:
        """The current op; given one, it becomes that."""
        if node:
            self._node = node[0]
        return self._node

    # --- what ops ask for

    def layer(self, name: str | None) -> str:
        """A name for a layer's weights that is not taken."""
        name = name or self.default_name()
        self._layers[name] = self._layers.get(name, 0) + 1
        return name if self._layers[name] == 1 else self.layer(f"{name}#{self._layers[name]}")

    def axis(self, path: str) -> wr.Axis:
        return self._axes[path]

    def layer_behind(self, cells: np.ndarray) -> str | None:
        """The linear layer of which cells are all columns, which has been made."""
        name = self.layer_names.get(int(cells[0]))
        source, _ = self.sources.of(int(cells[0]))
        return name if len(cells) == source.width and (np.diff(columns_of(cells)) == 1).all() else None

    def table(self, weight: Any, rows: TableRows | None = None) -> tuple[str, wr.Table]:
        """Its name, and what the builder knows it by: of all rows of a constant, or some."""
        key = (id(weight), *((rows.begin, rows.end, rows.step, id(rows.numbers)) if rows is not None else ()))
        if key not in self._table_handles:
            name, array = self.table_name(self.path_of(weight, ".weight")), self.array(weight)
            if rows is not None:
                step = f"_by_{rows.step}" if rows.step > 1 else ""
                name, array = self.layer(f"{name}.rows_{rows.begin}{step}"), rows.of(array)
            if name not in self.hashed:
                self.tables[name] = array
                make = self.builder.table
            else:
                keys = hashed_keys(name, self.hashed[name], len(array), self.problems)
                self.tables |= {f"{name}.keys": np.arange(len(array)) if keys is None else keys, f"{name}.rows": array}
                make = self.builder.hashed_table
            self._table_handles[key] = name, make(name, dim=weight.shape[1], rows=len(array))
        return self._table_handles[key]

    def whole_numbers(self, constant: Any) -> np.ndarray:
        """Of a constant, always the same array."""
        return self._whole.setdefault(id(constant), (constant, np.asarray(constant)))[1]

    def table_name(self, path: str | None) -> str:
        name = path or self.layer(None)
        return name if name not in self.tables else self.layer(f"{name}.position")

    def looked_up(self, name: str, weight: Any, rows: TableRows | None = None) -> wr.Table:
        """The table, in which an input is looked up."""
        table_name, table = self.table(weight, rows)
        for each in (name, name.replace(WITH_CANDIDATE, "")):  # the rows of a batch's own ids, too
            self.lookups.setdefault(each, {})[table_name] = weight.shape[0] if rows is None else len(rows)
        return table

    def input_of(self, cell: int) -> Input:
        if cell >> SOURCE_SHIFT not in self.input_of_source:
            raise Unsupported("ids that are an input", "some that are computed")
        return self.input_of_source[cell >> SOURCE_SHIFT]

    def ids_column(self, cell: int, weight: Any) -> tuple[wr.Ids, wr.Table]:
        """The input that has one column of ids, and the table."""
        cell, rows = rows_of(self.sources, cell, weight.shape[0])
        taken = self.input_of(cell)
        if taken.is_bag:
            raise Unsupported("ids that are not also a bag", f"'{taken.name}'")
        taken.is_split = taken.is_ids
        name = taken.column_name(int(columns_of(np.array(cell))))
        if name not in self._ids:
            self._ids[name] = self.builder.ids(name, self._axes[taken.axis])
        return self._ids[name], self.looked_up(name, weight, rows)

    def positions(self, axis: str) -> wr.Ids:
        """An input that says which of the module's events, with padding, an event is."""
        name = position_name(axis)
        if name not in self._ids:
            self._ids[name] = self.builder.ids(name, self._axes[axis])
        return self._ids[name]

    def marks_of_last(self, axis: str) -> wr.Tensor:
        """An input that is 1 for the last event of each row, and 0 for others."""
        name = last_name(axis)
        if name not in self._marks:
            self._marks[name] = self.builder.dense(name, self._axes[axis], 1)
        return self._marks[name]

    def bag(self, cells: np.ndarray, padding: int | None, weight: Any) -> tuple[wr.Ids, wr.Table]:
        """The input of ids whose every row is a bag, and the table."""
        taken = self.input_of(int(cells[0]))
        if not taken.is_ids:
            raise Unsupported("a bag of ids that are an input", f"columns of '{taken.name}'")
        if len(cells) != taken.width or np.any(np.diff(columns_of(cells)) != 1):
            raise Unsupported("a bag of all ids of an input", f"some of '{taken.name}', or of several")
        if taken.is_split or (taken.is_bag and taken.padding != padding):
            raise Unsupported("ids that are looked up in one way", f"'{taken.name}', in two")
        if not taken.is_bag:
            taken.is_bag, taken.padding = True, padding
            path = f"{taken.axis}/{taken.name}"
            self._add_axis(path)
            self._ids[taken.name] = self.builder.ids(taken.name, self._axes[path])
        return self._ids[taken.name], self.looked_up(taken.name, weight)

    def mask(self, axis: str, name: str, padding: int | None) -> None:
        """Events of the axis are padding by what an input says."""
        sequence = self.sequences[axis]
        if sequence.mask is not None and sequence.mask != (name, padding):
            raise Unsupported("one mask for each sequence", f"'{sequence.mask[0]}' and '{name}'")
        sequence.mask = (name, padding)
        if with_candidate(axis) in self.sequences:
            self.sequences[with_candidate(axis)].mask = (with_candidate(name), padding)

    def add_sequence(self, axis: str) -> None:
        """The events of an axis, each row's with a candidate behind them, as an axis."""
        events, path = self.sequences[axis], with_candidate(axis)
        self.sequences[path] = Sequence(path, events.length + 1, events=events)
        self._add_axis(path)
        if events.mask is not None:
            self.mask(axis, *events.mask)

    def padding_value(self, source: Any, column: int) -> float | None:
        """Of an embedding of events what it is for padding; None: not known."""
        ids, weight = source.data
        sequence = self.sources.sequence_of(source.axis)
        if ids is None or sequence is None or sequence.mask is None or sequence.mask[1] is None:
            return None
        cell, rows = rows_of(self.sources, ids, weight.shape[0])
        if sequence.mask[0] != self.input_of(cell).name:
            return None
        padding = sequence.mask[1]
        return float(self.array(weight)[padding if rows is None else rows.row(padding), column])

    def some_rows(self, axis: str) -> wr.Tensor:
        """Any tensor of an axis."""
        for number, given in self.input_of_source.items():
            columns = set(range(given.width)) - given.ids_columns
            if given.axis == axis and given.kind == "numbers" and columns:
                cell = (number << SOURCE_SHIFT) + (min(columns) << COLUMN_SHIFT)
                return self.sources.gather(np.array([cell]), axis)
        for number, source in enumerate(self.sources.all):
            if source.axis == axis and source.kind == "embed":
                return self.sources.gather(np.array([number << SOURCE_SHIFT]), axis)
        raise Unsupported(f"ids of axis '{axis}' that are looked up, or numbers", "none")

    # --- the rest

    def finish(self, names: list[str], results: list[Any]) -> wr.Graph:
        """The graph of outputs. Raises InvalidArgument with everything that cannot be expressed."""
        outputs: list[Any] = []
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(max(depth, MOST_DEPTH))  # tensors ask for the tensors that they are made of
        try:
            for name, value in zip(names, results):
                if isinstance(value, Value) and not value.is_ids and value.is_plain:
                    outputs.append((name, self._output(value, names)))
                elif not isinstance(value, Failed):
                    kind = "rows that are not the batch's" if isinstance(value, Value) else type(value).__name__
                    self.problems.add(f"output '{name}'", "scores of a batch", kind)
        finally:
            sys.setrecursionlimit(depth)
        self.problems.raise_if_any()
        for name, array in (self.weights | self.tables).items():  # which may be computed of constants
            self.check_finite(name, array, is_learned=False)
        self.problems.raise_if_any()
        graph = self.builder.finish(outputs)
        self._check_hashed(graph)
        return graph

    def _check_hashed(self, graph: wr.Graph) -> None:
        problems = Problems()
        hashed = {t.name for t in wr.compile(graph).tables if t.hashed}
        for name in self.hashed:
            if name not in hashed:
                problems.add(f"hashed: '{name}'", "a table of the model, " + ", ".join(
                    t.name for t in wr.compile(graph).tables), "none of that name")
        for name, tables in self.lookups.items():
            if len({table if table in hashed else None for table in tables}) > 1:
                problems.add(f"hashed: ids '{name}'", "look-ups with the same ids", "tables " + ", ".join(tables))
        problems.raise_if_any()

    def _output(self, value: Value, names: list[str]) -> Any:
        try:
            events, cells = self.sources.split_events(value.cells)
            return self.sources.gather(cells, self.sources.axis_of(cells))
        except Unsupported as problem:
            self.problems.add("outputs " + ", ".join(names), *problem.args)

    def _add_axis(self, path: str) -> None:
        if path in self._axes:
            return
        parent, _, name = path.rpartition("/")
        if parent:
            self._add_axis(parent)
            self._axes[path] = self.builder.axis(name, self._axes[parent])
        else:
            self._axes[path] = self.builder.axis(name)

    def check_finite(self, path: str, array: np.ndarray, is_learned: bool = True) -> None:
        """Masks, which are not learned, may have minus infinity."""
        check_finite(f"weight '{path}'", array, self.problems, may_be_minus_infinity=not is_learned)
