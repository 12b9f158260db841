# SPDX-License-Identifier: Apache-2.0
"""Goes through the ops of a traced graph, also those of the functions that it calls."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from ..lowering.cells import Unsupported
from .handlers import CALLS, SAME
from .tracing import Traced


class Walk(ABC):
    """What gives each tensor a value, by those of the tensors that its op takes."""

    def __init__(self, traced: Traced):
        self._traced = traced
        self._values: dict[Any, Any] = {}  # by tensor, those of functions, too
        self._functions = {f.signature.name: f for f in traced.graph.as_graph_def().library.function}

    @abstractmethod
    def _apply(self, op: tf.Operation, args: list[Any]) -> Any:
        """What an op makes: a value for each of its outputs, or one for all."""

    def _outputs(self, given: Iterable[tuple[tf.Tensor, Any]], wanted: Sequence[tf.Tensor]) -> list[Any]:
        """The values of some tensors; only what they are made of is computed, ops in their order."""
        self._values.update((tensor.ref(), value) for tensor, value in given)
        stack = [tensor.op for tensor in wanted if tensor.ref() not in self._values]
        while stack:
            op = stack[-1]
            if all(tensor.ref() in self._values for tensor in op.outputs):
                stack.pop()
                continue
            missing = [x.op for x in op.inputs if x.ref() not in self._values and not _tells_shape(op, x)]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            made = self._apply(op, [self._values.get(x.ref()) for x in op.inputs])
            made = list(made) if isinstance(made, (list, tuple)) else [made] * len(op.outputs)
            for tensor, value in zip(op.outputs, made):
                self._values.setdefault(tensor.ref(), value)
        return [self._values[tensor.ref()] for tensor in wanted]

    def _called(self, op: tf.Operation, args: list[Any]) -> list[Any]:
        graph = self.body(op)
        return self._outputs(zip(graph.inputs, args), graph.outputs)

    def body(self, op: tf.Operation) -> tf.Graph:
        """What a call calls, as a graph of its own: another one calls other tensors."""
        assert op.type in CALLS
        if op not in self._traced.bodies:
            self._traced.bodies[op] = self.part(op, "f")
        return self._traced.bodies[op]

    def part(self, op: tf.Operation, name: str) -> tf.Graph:
        """What an attribute of an op names: what it calls, or of a loop the body or the condition."""
        return function_def_to_graph(self._functions[op.get_attr(name).name])


def _tells_shape(op: tf.Operation, given: tf.Tensor) -> bool:
    """Whether a loop, or an op of a list, takes something as a shape alone, which may be made of its first step."""
    if op.type in ("While", "StatelessWhile"):
        return given.op.type in ("ZerosLike", "TensorListReserve")
    return op.type in ("TensorListFromTensor", "TensorListStack") and given is not op.inputs[0]


def computed(graph: tf.Graph, given: Sequence[Any], wanted: Sequence[tf.Tensor]) -> list[np.ndarray]:
    """What the body of a loop gives in FP64 for its inputs; of lists those have the event that is taken."""
    values = {tensor.ref(): value for tensor, value in zip(graph.inputs, given)}

    def value(tensor: tf.Tensor) -> Any:
        if tensor.ref() not in values:
            made = of_op(tensor.op, [value(x) for x in tensor.op.inputs])
            each = made if isinstance(made, list) else [made] * len(tensor.op.outputs)
            values.update((output.ref(), widened(x)) for output, x in zip(tensor.op.outputs, each))
        return values[tensor.ref()]

    def of_op(op: tf.Operation, args: list[Any]) -> Any:
        if op.type in SAME or op.type in ("ReadVariableOp", "TensorListGetItem"):
            return args[:len(op.outputs)]
        return executed(op, [widened(x) for x in args])

    def widened(x: Any) -> Any:
        return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x
    return [value(tensor) for tensor in wanted]


def made_of(tensor: tf.Tensor) -> set[Any]:
    """References of all tensors that one is made of."""
    found: set[Any] = set()
    left = [tensor]
    while left:
        tensor = left.pop()
        if tensor.ref() not in found:
            found.add(tensor.ref())
            left += tensor.op.inputs
    return found


def executed(op: tf.Operation, args: list[Any]) -> Any:
    """What TensorFlow computes."""
    if op.type == "Const":
        return tf.make_ndarray(op.get_attr("value"))
    if op.type == "ResourceGather":
        return np.take(args[0], args[1], 0)
    function = getattr(tf.raw_ops, op.type, None)
    if function is None:
        raise Unsupported("an op of TensorFlow", op.type)
    # Python's names are others for some: inputs, then attributes that have no default, then the rest.
    definition = op.op_def
    inferred = {name for a in definition.input_arg for name in (a.type_attr, a.number_attr, a.type_list_attr)}
    attributes = sorted((a for a in definition.attr if a.name not in inferred), key=lambda a: a.HasField(
        "default_value"))
    rest = iter(args)
    given: list[Any] = []
    for arg in definition.input_arg:
        if arg.number_attr:
            given.append([next(rest) for _ in range(op.get_attr(arg.number_attr))])
        elif arg.type_list_attr:
            given.append([next(rest) for _ in op.get_attr(arg.type_list_attr)])
        else:
            given.append(next(rest))
    given += [op.get_attr(a.name) for a in attributes]
    made = function(**dict(zip(inspect.signature(function).parameters, given)))
    if not isinstance(made, (list, tuple)):
        return made if made.dtype in (tf.variant, tf.resource) else np.asarray(made)
    return [np.asarray(x) for x in made]
