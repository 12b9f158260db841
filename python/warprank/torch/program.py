# SPDX-License-Identifier: Apache-2.0
"""Runs a program of torch.export with a Builder: batches become columns of a graph, all else is computed at once."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import warprank as wr

from ..errors import Problems
from .cells import COLUMN_BITS, FlatIds, Source, Sources, Unsupported, Value, move
from .ops import HANDLERS, MOVES, SAME

KEPT_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class _Failed:
    """What an op made that could not be expressed; what comes of it is no further problem."""


@dataclass
class Input:
    """A tensor that the module takes."""

    name: str
    axis: str
    shape: tuple[int, ...]  # of a row
    is_ids: bool
    is_bag: bool = False
    is_split: bool = False  # one input of ids for each column
    padding: int | None = None

    @property
    def width(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def column_name(self, column: int) -> str:
        return self.name if self.width == 1 else f"{self.name}.{column}"


class Program:
    """The graph, weights and tables of an exported program, as they are made."""

    def __init__(self, exported: torch.export.ExportedProgram, inputs: Mapping[str, Input], batch: int):
        self.builder = wr.Builder()
        self.batch = batch
        self.inputs = inputs  # by the name of the program's placeholder
        self.weights: dict[str, np.ndarray] = {}
        self.tables: dict[str, np.ndarray] = {}
        self.problems = Problems()
        self._axes: dict[str, wr.Axis] = {}
        for path in sorted({i.axis for i in inputs.values()}, key=lambda axis: axis.count("/")):
            self._add_axis(path)
        self.sources = Sources(self.builder, self._axes)
        self._paths: dict[int, str] = {}  # of parameters, by id()
        self._layers: dict[str, int] = {}
        self._table_handles: dict[int, wr.Table] = {}
        self._ids: dict[str, wr.Ids] = {}
        self._input_of_source: dict[int, Input] = {}
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
        outputs = []
        for name, value in zip(output_names, results):
            if isinstance(value, Value) and not value.is_ids:
                axis = self.sources.axis_of(value)
                outputs.append((name, self.sources.gather(value.cells, axis)))
            elif not isinstance(value, _Failed):
                self.problems.add(f"output '{name}'", "scores of a batch", type(value).__name__)
        self.problems.raise_if_any()
        return self.builder.finish(outputs)

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
        name = name or ".".join(filter(None, [self._module_path()[0], self._node.name]))
        self._layers[name] = self._layers.get(name, 0) + 1
        return name if self._layers[name] == 1 else self.layer(f"{name}#{self._layers[name]}")

    def table(self, weight: torch.Tensor) -> wr.Table:
        if id(weight) not in self._table_handles:
            name = self.path_of(weight, ".weight") or self.layer(None)
            self.tables[name] = self.array(weight)
            self._table_handles[id(weight)] = self.builder.table(name, dim=weight.shape[1], rows=weight.shape[0])
        return self._table_handles[id(weight)]

    def ids_column(self, cell: int) -> tuple[wr.Ids, str]:
        """The input that has one column of ids, and its axis."""
        taken = self._input_of_source[cell >> COLUMN_BITS]
        if taken.is_bag:
            raise Unsupported("ids that are not also a bag", f"'{taken.name}'")
        taken.is_split = True
        name = taken.column_name(cell & ((1 << COLUMN_BITS) - 1))
        if name not in self._ids:
            self._ids[name] = self.builder.ids(name, self._axes[taken.axis])
        return self._ids[name], taken.axis

    def bag(self, cells: np.ndarray, padding: int | None) -> tuple[wr.Ids, str]:
        """The input of ids whose every row is a bag, and the axis of the bags."""
        taken = self._input_of_source[int(cells[0]) >> COLUMN_BITS]
        if len(cells) != taken.width or np.any(np.diff(cells) != 1):
            raise Unsupported("a bag of all ids of an input", f"some of '{taken.name}', or of several")
        if taken.is_split or (taken.is_bag and taken.padding != padding):
            raise Unsupported("ids that are looked up in one way", f"'{taken.name}', in two")
        if not taken.is_bag:
            taken.is_bag, taken.padding = True, padding
            path = f"{taken.axis}/{taken.name}"
            self._add_axis(path)
            self._ids[taken.name] = self.builder.ids(taken.name, self._axes[path])
        return self._ids[taken.name], taken.axis

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
                constant = exported.state_dict.get(path, exported.constants.get(path))
                if isinstance(constant, torch.Tensor) and constant.is_floating_point():
                    self._check_finite(path, constant)
                values[node] = constant
                self._paths[id(constant)] = path
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
        if given.is_ids:
            value = self.sources.add(Source(given.axis, given.width), given.shape)
            value.is_ids = True
            self._input_of_source[int(value.cells.flat[0]) >> COLUMN_BITS] = given
            return Value(value.cells.reshape(given.shape), True)
        tensor = self.builder.dense(given.name, self._axes[given.axis], given.width)
        return Value(self.sources.add(Source(given.axis, given.width, tensor)).cells.reshape(given.shape))

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
            if not any(isinstance(x, (Value, FlatIds)) for x in found):
                with torch.no_grad():
                    return node.target(*args, **kwargs)  # type: ignore[operator]
            return self._apply(node, args, kwargs)
        except Unsupported as problem:
            expected, got = problem.args
        except Exception as error:  # of an op of PyTorch, or a shape that a handler did not foresee
            expected, got = "an op that can be expressed", f"{type(error).__name__}: {error}"
        path, kind = self._module_path()
        where = f"module '{path}' ({kind}): " if path else ""
        self.problems.add(f"{where}{node.target}", expected, got)
        return _Failed()

    def _apply(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        name = node.target._schema.name.partition("::")[2]  # type: ignore[union-attr]
        if name in MOVES:
            return move(node.target, args, kwargs, self.batch)  # type: ignore[arg-type]
        if name in SAME:
            return args[0]
        if name in ("to", "_to_copy") and not args[0].is_ids and node.meta["val"].dtype in KEPT_TYPES:
            return args[0]  # all is computed in FP32
        if name not in HANDLERS:
            raise Unsupported("an op of the model language", "none that does this")
        return HANDLERS[name](self, *args, **kwargs)

    def _module_path(self) -> tuple[str, str]:
        """Of the module that the current op is in: its path and type."""
        assert self._node is not None
        stack = list((self._node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1] if stack else ("", "")
        return str(path), (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
