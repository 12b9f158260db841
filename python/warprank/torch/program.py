# SPDX-License-Identifier: Apache-2.0
"""Runs a program of torch.export with a Builder: batches become columns of a graph, all else is computed at once."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import warprank as wr

from ..errors import Problems
from .cells import SOURCE_SHIFT, Sequence, Sources, Unsupported, Value, columns_of, move, source_numbers
from .expressions import constant
from . import layers, lookups, ops  # noqa: F401: they register what they handle
from .handlers import HANDLERS, MOVES, OF_EVENTS, SAME, by_event

MOST_DEPTH = 20000


class _Failed:
    """What an op made that could not be expressed; what comes of it is no further problem."""


@dataclass
class Input:
    """A tensor that the module takes."""

    name: str
    axis: str
    shape: tuple[int, ...]  # of a row
    dtype: torch.dtype
    is_events: bool = False  # the first dimension of a row is that of its axis' events
    is_flat: bool = False  # the events of all rows one behind the other, without a dimension for the batch
    is_bag: bool = False
    is_split: bool = False  # one input of ids for each column
    padding: int | None = None
    offsets: str | None = None  # of flat ones: the input that has them
    has_end: bool = False  # those have the end of the last, too

    @property
    def is_ids(self) -> bool:
        return not self.dtype.is_floating_point and self.dtype != torch.bool

    @property
    def is_lengths(self) -> bool:
        return self.is_events and self.is_ids and not self.shape and not self.is_flat

    @property
    def width(self) -> int:
        shape = self.shape[1:] if self.is_events and not self.is_flat else self.shape
        return int(np.prod(shape, dtype=np.int64))

    def column_name(self, column: int) -> str:
        return self.name if self.width == 1 else f"{self.name}.{column}"


def position_name(axis: str) -> str:
    return axis.rpartition("/")[2] + ".position"


class Program:
    """The graph, weights and tables of an exported program, as they are made."""

    def __init__(self, exported: torch.export.ExportedProgram, inputs: Mapping[str, Input], batch: int,
                 hashed: Mapping[str, np.ndarray]):
        self.builder = wr.Builder()
        self.batch = batch
        self.inputs = inputs  # by the name of the program's placeholder
        self.hashed = hashed
        self.weights: dict[str, np.ndarray] = {}
        self.tables: dict[str, np.ndarray] = {}
        self.problems = Problems()
        self.sequences: dict[str, Sequence] = {}
        self._axes: dict[str, wr.Axis] = {}
        for given in sorted(inputs.values(), key=lambda i: i.axis.count("/")):
            self._add_axis(given.axis)
            if given.is_events and not given.is_flat and given.shape:
                length = given.shape[0]
                if self.sequences.setdefault(given.axis, Sequence(given.axis, length)).length != length:
                    self.problems.add(f"input '{given.name}'", f"{self.sequences[given.axis].length} events, as others "
                                      f"of axis '{given.axis}' have", str(length))
        self.sources = Sources(self.builder, self._axes, self.sequences, self._unsupported, self.current)
        self._paths: dict[int, str] = {}  # of parameters, by id()
        self.expressions: dict[tuple[Any, ...], np.ndarray] = {}  # their cells, by what they compute
        self._layers: dict[str, int] = {}
        self.layer_names: dict[int, str] = {}  # by the first cell of a linear layer
        self._table_handles: dict[int, wr.Table] = {}
        self._ids: dict[str, wr.Ids] = {}
        self._input_of_source: dict[int, Input] = {}
        self.hashed_inputs: dict[str, set[str | None]] = {}  # by input the hashed tables that it looks up
        self._exported = exported
        self._node: torch.fx.Node | None = None

    def run(self, output_names: list[str]) -> wr.Graph:
        """Raises InvalidArgument with everything that cannot be expressed."""
        values = self._placeholders()
        results: list[Any] = []
        for node in self._exported.graph.nodes:
            self._node = node
            if node.op == "call_function":
                values[node] = self._call(node, values)
            elif node.op == "output":
                results = torch.fx.node.map_arg(list(node.args[0]), lambda n: values[n])
        outputs: list[Any] = []
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(max(depth, MOST_DEPTH))  # tensors ask for the tensors that they are made of
        try:
            for name, value in zip(output_names, results):
                if isinstance(value, Value) and not value.is_ids and value.is_plain:
                    outputs.append((name, self._output(value, output_names)))
                elif not isinstance(value, _Failed):
                    kind = "rows that are not the batch's" if isinstance(value, Value) else type(value).__name__
                    self.problems.add(f"output '{name}'", "scores of a batch", kind)
        finally:
            sys.setrecursionlimit(depth)
        self.problems.raise_if_any()
        return self.builder.finish(outputs)

    def _output(self, value: Value, names: list[str]) -> Any:
        try:
            events, cells = self.sources.split_events(value.cells)
            return self.sources.gather(cells, self.sources.axis_of(cells))
        except Unsupported as problem:
            self.problems.add("outputs " + ", ".join(names), *problem.args)

    # --- what ops ask for

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.detach().to(torch.float32).contiguous().numpy()

    def path_of(self, tensor: torch.Tensor, suffix: str) -> str | None:
        """The layer that a parameter belongs to; None: it is computed, or not named so."""
        path = self._paths.get(id(tensor), "")
        return path.removesuffix(suffix) if path.endswith(suffix) else path or None

    def layer(self, name: str | None) -> str:
        """A name for a layer's weights that is not taken."""
        assert self._node is not None
        name = name or ".".join(filter(None, [self.module_path(), self._node.name]))
        self._layers[name] = self._layers.get(name, 0) + 1
        return name if self._layers[name] == 1 else self.layer(f"{name}#{self._layers[name]}")

    def module_path(self) -> str:
        return self._module()[0]

    def axis(self, path: str) -> wr.Axis:
        return self._axes[path]

    def layer_behind(self, cells: np.ndarray) -> str | None:
        """The linear layer of which cells are all columns, which has been made."""
        name = self.layer_names.get(int(cells[0]))
        source, _ = self.sources.of(int(cells[0]))
        return name if len(cells) == source.width and (np.diff(columns_of(cells)) == 1).all() else None

    def table(self, weight: torch.Tensor) -> wr.Table:
        if id(weight) not in self._table_handles:
            name = self.table_name(self.path_of(weight, ".weight"))
            array = self.array(weight)
            keys = self.hashed.get(name)
            if keys is None:
                self.tables[name] = array
                make = self.builder.table
            else:
                if len(keys) != len(array):
                    self.problems.add(f"hashed: '{name}'", f"{len(array)} ids, one for each row of the table",
                                      str(len(keys)))
                self.tables |= {f"{name}.keys": keys, f"{name}.rows": array}
                make = self.builder.hashed_table
            self._table_handles[id(weight)] = make(name, dim=weight.shape[1], rows=weight.shape[0])
        return self._table_handles[id(weight)]

    def table_name(self, path: str | None) -> str:
        name = path or self.layer(None)
        return name if name not in self.tables else self.layer(f"{name}.position")

    def looked_up(self, name: str, weight: torch.Tensor) -> wr.Table:
        """The table, in which an input is looked up."""
        path = self.path_of(weight, ".weight")
        self.hashed_inputs.setdefault(name, set()).add(path if path in self.hashed else None)
        return self.table(weight)

    def input_of(self, cell: int) -> Input:
        return self._input_of_source[cell >> SOURCE_SHIFT]

    def ids_column(self, cell: int, weight: torch.Tensor) -> tuple[wr.Ids, wr.Table]:
        """The input that has one column of ids, and the table."""
        taken = self.input_of(cell)
        if taken.is_bag:
            raise Unsupported("ids that are not also a bag", f"'{taken.name}'")
        taken.is_split = True
        name = taken.column_name(int(columns_of(np.array(cell))))
        if name not in self._ids:
            self._ids[name] = self.builder.ids(name, self._axes[taken.axis])
        return self._ids[name], self.looked_up(name, weight)

    def positions(self, axis: str) -> wr.Ids:
        """An input that says which of the module's events, with padding, an event is."""
        name = position_name(axis)
        if name not in self._ids:
            self._ids[name] = self.builder.ids(name, self._axes[axis])
        return self._ids[name]

    def bag(self, cells: np.ndarray, padding: int | None, weight: torch.Tensor) -> tuple[wr.Ids, wr.Table]:
        """The input of ids whose every row is a bag, and the table."""
        taken = self.input_of(int(cells[0]))
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

    def padding_value(self, source: Any, column: int) -> float | None:
        """Of an embedding of events what it is for padding; None: not known."""
        ids, weight = source.data
        sequence = self.sources.sequence_of(source.axis)
        given = self.input_of(ids) if ids is not None else None
        if sequence is None or sequence.mask is None or given is None or sequence.mask[0] != given.name or \
                sequence.mask[1] is None:
            return None
        return float(weight.detach()[sequence.mask[1], column])

    def some_events(self, axis: str) -> wr.Tensor:
        """Any tensor of an axis."""
        for number, given in self._input_of_source.items():
            if given.axis == axis and given.is_events and not given.is_lengths and not given.is_ids:
                return self.sources.gather(np.array([number << SOURCE_SHIFT]), axis)
        for number, source in enumerate(self.sources.all):
            if source.axis == axis and source.kind == "embed":
                return self.sources.gather(np.array([number << SOURCE_SHIFT]), axis)
        raise Unsupported(f"events of axis '{axis}' that are looked up", "none")

    # --- the rest

    def _add_axis(self, path: str) -> None:
        if path in self._axes:
            return
        parent, _, name = path.rpartition("/")
        if parent:
            self._add_axis(parent)
            self._axes[path] = self.builder.axis(name, self._axes[parent])
        else:
            self._axes[path] = self.builder.axis(name)

    def _placeholders(self) -> dict[torch.fx.Node, Any]:
        exported = self._exported
        targets = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs if spec.target}
        values: dict[torch.fx.Node, Any] = {}
        for node in exported.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in self.inputs:
                values[node] = self._input(self.inputs[node.name])
            elif node.name in targets:
                path = targets[node.name]
                kept = exported.state_dict.get(path, exported.constants.get(path))
                if isinstance(kept, torch.Tensor) and kept.is_floating_point():
                    self._check_finite(path, kept)
                values[node] = kept
                self._paths[id(kept)] = path
            else:
                values[node] = node.meta.get("val")
        return values

    def _check_finite(self, path: str, tensor: torch.Tensor) -> None:
        wrong = torch.nonzero(~torch.isfinite(tensor.detach().flatten()))
        if len(wrong):
            element = int(wrong[0])
            self.problems.add(f"weight '{path}', element {element}", "a finite number",
                              str(float(tensor.detach().flatten()[element])))

    def _input(self, given: Input) -> Value:
        def make() -> wr.Tensor:
            return self.builder.dense(given.name, self._axes[given.axis], given.width)

        is_mask = given.dtype == torch.bool
        if is_mask and not (given.is_events and len(given.shape) == 1):
            self.problems.add(f"input '{given.name}'", "numbers or ids; truth values for the events of a sequence",
                              f"truth values {list(given.shape)} on axis '{given.axis}'")
        if is_mask and given.axis in self.sequences:
            self.mask(given.axis, given.name, None)
            cells = constant(self, given.axis, 1.0, 0.0)
        elif given.is_lengths:
            ones = constant(self, given.axis, 1.0, 0.0)
            parent = given.axis.rpartition("/")[0]
            cells = self.sources.add(parent, 1, "count", lambda: self.builder.pool(
                self.sources.gather(ones, given.axis), "sum"), data=given)
        else:
            cells = self.sources.add(given.axis, given.width, "ids" if given.is_ids else "dense", make, data=given)
        self._input_of_source[int(source_numbers(cells)[0])] = given
        if given.is_flat or given.is_lengths or not given.is_events:
            return Value(cells.reshape(1, *(() if given.is_flat else given.shape)), given.is_ids)
        each = cells.reshape(1, 1, *given.shape[1:])
        return Value(self.sources.with_events(each, 1 - each.ndim, given.shape[0]), given.is_ids)

    def _call(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
        found: list[Any] = []
        torch.fx.node.map_aggregate((args, kwargs), lambda x: found.append(x))
        if any(isinstance(x, _Failed) for x in found):
            return _Failed()
        if node.target is operator.getitem:
            taken = args[0]
            return taken[args[1]]
        try:
            if not any(isinstance(x, Value) for x in found):
                return self._constant(node, args, kwargs)
            return self._apply(node, args, kwargs)
        except Unsupported as problem:
            expected, got = problem.args
        except Exception as error:  # of an op of PyTorch, or a shape that a handler did not foresee
            expected, got = "an op that can be expressed", f"{type(error).__name__}: {error}"
        self._unsupported(expected, got)
        return _Failed()

    def interpret(self, graph: torch.fx.Graph, inputs: Any) -> Any:
        """What a part of the program gives."""
        before, given = self._node, iter(inputs)
        values: dict[torch.fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op == "output":
                self._node = before
                return values[node.args[0]]
            if node.op == "placeholder":
                values[node] = next(given)
                continue
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
            found: list[Any] = []
            torch.fx.node.map_aggregate((args, kwargs), lambda x: found.append(x))
            self._node = node
            values[node] = (self._apply(node, args, kwargs) if any(isinstance(x, Value) for x in found)
                            else self._constant(node, args, kwargs))

    def _constant(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        with torch.no_grad():
            result = node.target(*args, **kwargs)  # type: ignore[operator]
        if node.target == torch.ops.aten.embedding.default:  # of the places of events
            self._paths[id(result)] = self._paths.get(id(args[0]), "")
        return result

    def _unsupported(self, expected: str, got: str) -> None:
        assert self._node is not None
        path, kind = self._module()
        where = f"module '{path}' ({kind}): " if path else ""
        self.problems.add(f"{where}{self._node.target}", expected, got)

    def current(self, *node: Any) -> Any:
        if node:
            self._node = node[0]
        return self._node

    def _apply(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        name = node.target._schema.name.partition("::")[2]  # type: ignore[union-attr]
        if name in MOVES:
            return move(node.target, args, kwargs, self.batch)  # type: ignore[arg-type]
        if name in SAME:
            return args[0]
        if name not in HANDLERS:
            raise Unsupported("an op of the model language", "none that does this")
        if name in OF_EVENTS:
            return HANDLERS[name](self, *args, **kwargs)
        return by_event(self, name, args, kwargs)

    def _module(self) -> tuple[str, str]:
        """Of the module that the current op is in: its path and type."""
        assert self._node is not None
        stack = list((self._node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1] if stack else ("", "")
        return str(path), (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
