# SPDX-License-Identifier: Apache-2.0
"""Runs a functional model of Keras with a Builder, layer by layer; a layer that is a user's own is taken apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

import warprank as wr

from ..errors import Problems
from .layers import LAYERS, OPS
from .values import Graph, IdsValue, Unsupported, Value


class _Failed:
    """What could not be expressed; what comes of it is no further problem."""


@dataclass
class Input:
    """What the model takes by a name."""

    name: str
    axis: str  # of a sequence its own
    shape: tuple[int | None, ...]  # of a row
    is_ids: bool
    is_sequence: bool
    padding: int | None = None

    def column_names(self) -> list[str]:
        """Of the inputs of ids that it became."""
        count = 1 if self.is_sequence else int(np.prod([n or 1 for n in self.shape]))
        return [self.name] if count == 1 else [f"{self.name}.{i}" for i in range(count)]


class Program:
    """The graph, weights and tables of a model, as they are made."""

    def __init__(self, inputs: Mapping[str, Input]):
        self.graph = Graph()
        self.builder = self.graph.builder
        self.inputs = inputs
        self.weights: dict[str, np.ndarray] = {}
        self.tables: dict[str, np.ndarray] = {}
        self.problems = Problems()
        self.looked_up: dict[str, tuple[wr.Ids, wr.Table]] = {}  # by ids of sequences
        self._layers: dict[str, int] = {}
        self._handles: dict[int, wr.Table] = {}
        self._ids: dict[str, wr.Ids] = {}
        self._path: list[str] = []
        self._operation: Any = None
        for given in sorted(inputs.values(), key=lambda i: i.axis.count("/")):
            self.graph.axis(given.axis)

    def run(self, model: Any, outputs: Mapping[str, Any]) -> wr.Graph:
        """Raises InvalidArgument with everything that cannot be expressed."""
        values = {id(tensor): self._input(self.inputs[tensor.name]) for tensor in model.inputs}
        self.walk(model, values)
        made = []
        for name, tensor in outputs.items():
            value = values[id(tensor)]
            if isinstance(value, Value) and not value.is_sequence:
                made.append((name, self.graph.joined(value)))
            elif not isinstance(value, _Failed):
                self.problems.add(f"output '{name}'", "scores of a batch", "a sequence" if isinstance(
                    value, Value) else type(value).__name__)
        self.problems.raise_if_any()
        return self.builder.finish(made)

    def walk(self, function: Any, values: dict[int, Any]) -> None:
        """Adds the values of all tensors of a keras.Function."""
        for depth in sorted(function._nodes_by_depth, reverse=True):
            for node in function._nodes_by_depth[depth]:
                if node.is_input or any(id(x) not in values for x in node.input_tensors):
                    continue
                args, kwargs = node.arguments.fill_in(values)
                made = self._apply(node.operation, args, kwargs, node)
                for tensor, value in zip(node.outputs, made if isinstance(made, list) else [made] * len(node.outputs)):
                    values[id(tensor)] = value

    # --- what handlers ask for

    def path(self) -> str:
        """Of the current layer."""
        return "/".join([*self._path, self._operation.name])

    def layer(self, variable: Any = None) -> str:
        """A name that is not taken for the current layer's weights, or for what a variable is used in."""
        name = "/".join([*self._path, variable.name]) if hasattr(variable, "path") else self.path()
        self._layers[name] = self._layers.get(name, 0) + 1
        return name if self._layers[name] == 1 else f"{name}#{self._layers[name]}"

    def weight(self, name: str, variable: Any) -> None:
        array = np.ascontiguousarray(np.asarray(variable, np.float32))
        wrong = np.flatnonzero(~np.isfinite(array))
        if len(wrong):
            self.problems.add(f"weight '{name}', element {wrong[0]}", "a finite number", str(array.flat[wrong[0]]))
        self.weights[name] = array

    def table(self, layer: Any) -> wr.Table:
        if id(layer) not in self._handles:
            name = self.path()
            self.weight(name, layer.embeddings)
            self.tables[name] = self.weights.pop(name)
            rows, dim = self.tables[name].shape
            self._handles[id(layer)] = self.builder.table(name, dim=dim, rows=rows)
        return self._handles[id(layer)]

    def ids(self, name: str, axis: str) -> wr.Ids:
        if name not in self._ids:
            self._ids[name] = self.builder.ids(name, self.graph.axis(axis))
        return self._ids[name]

    def has_padding(self, axis: str) -> bool:
        return any(i.axis == axis and i.padding is not None for i in self.inputs.values())

    # --- the rest

    def _input(self, given: Input) -> Any:
        if given.is_ids:
            return IdsValue(given.name, given.axis, tuple(n or 1 for n in given.shape), given.is_sequence)
        shape = tuple(n or 1 for n in given.shape)
        row = shape[1:] if given.is_sequence else shape
        tensor = self.builder.dense(given.name, self.graph.axis(given.axis), int(np.prod(row)))
        value = self.graph.split(tensor, given.axis, row)
        value.is_sequence, value.length = given.is_sequence, shape[0] if given.is_sequence else None
        return value

    def _apply(self, operation: Any, args: Any, kwargs: Any, node: Any) -> Any:
        leaves = keras.tree.flatten((args, kwargs))
        if any(isinstance(x, _Failed) for x in leaves):
            return _Failed()
        outer, self._operation = self._operation, operation
        kind = type(operation).__name__
        before = len(self.problems._list)
        try:
            handler = _handler(operation)
            if handler is not None:
                kwargs = {k: v for k, v in kwargs.items() if k not in ("training", "mask")}
                return handler(self, operation, *args, **kwargs)
            return self._inside(operation, args, kwargs, node)
        except Unsupported as problem:
            expected, got = problem.args
        except Exception as error:  # of Keras, or a shape that a handler did not foresee
            expected, got = "a layer that can be expressed", f"{type(error).__name__}: {str(error).splitlines()[0]}"
        finally:
            self._operation = outer
        if len(self.problems._list) == before:
            path = "/".join([*self._path, operation.name])
            self.problems.add(f"layer '{path}' ({kind})", expected, got)
        return _Failed()

    def _inside(self, operation: Any, args: Any, kwargs: Any, node: Any) -> Any:
        """A model, or a layer of a user's own: what its call does."""
        function = getattr(operation, "_functional", operation)
        given = [x for x in keras.tree.flatten((args, kwargs)) if isinstance(x, (Value, IdsValue))]
        if not hasattr(function, "_nodes_by_depth"):
            if not isinstance(operation, keras.Layer) or type(operation).__module__.startswith("keras."):
                raise Unsupported("a layer or an op of those that are known", "none of them")
            function = _traced(operation, node)
        values = dict(zip((id(x) for x in function.inputs), given))
        self._path.append(operation.name)
        try:
            self.walk(function, values)
        finally:
            self._path.pop()
        made = [values[id(x)] for x in function.outputs]
        return made[0] if len(made) == 1 else made


def _handler(operation: Any) -> Callable[..., Any] | None:
    known = LAYERS if isinstance(operation, keras.Layer) else OPS
    for kind in type(operation).__mro__:
        if kind.__name__ in known and kind.__module__.startswith("keras."):
            return known[kind.__name__]
    return None


def _traced(layer: Any, node: Any) -> Any:
    """What a layer's call does with symbols."""
    inputs = {id(x): keras.KerasTensor(x.shape, x.dtype) for x in node.input_tensors}
    args, kwargs = node.arguments.fill_in(inputs)
    try:
        outputs = layer.call(*args, **{k: v for k, v in kwargs.items() if v is not None and k != "training"})
    except Exception as error:
        raise Unsupported("a call of layers and of keras.ops",
                          f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
    return keras.Function(list(inputs.values()), outputs)
