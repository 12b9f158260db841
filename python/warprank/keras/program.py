# SPDX-License-Identifier: Apache-2.0
"""Runs a graph of TensorFlow's: batches become cells, all else is computed at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

import warprank as wr

from ..lowering.cells import Unsupported, Value, move, with_rows
from ..lowering.inputs import Input
from ..lowering.placeholders import placeholder
from ..lowering.places import by_event
from ..lowering.program import Failed
from ..lowering.program import Program as LoweredProgram
from .handlers import CALLS, HANDLERS, MOVES, OF_CONSTANTS, OF_EVENTS, SAME
from .negative_ids import FromTheEnd, without_negative_ids
from .tracing import MAKE_IDS_OPS, Traced, Variable

# Constants that are made of one parameter belong to its layer.
MADE_OF_ONE = MOVES | SAME | {"Cast", "GatherV2"}
LOOPS = frozenset("While StatelessWhile If StatelessIf Case StatelessCase TensorListFromTensor".split())
SIZES = frozenset("Shape Rank Size ZerosLike OnesLike".split())


class Program(LoweredProgram):
    def __init__(self, traced: Traced, inputs: Mapping[str, Input], batch: int, hashed: Mapping[str, Any]):
        super().__init__(inputs, batch, hashed)
        self._traced = traced
        self._functions = {f.signature.name: f for f in traced.graph.as_graph_def().library.function}
        self._kept: list[Any] = []  # constants, which are known by their id()

    def run(self) -> wr.Graph:
        """Raises InvalidArgument with everything that cannot be expressed."""
        given: list[tuple[tf.Tensor, Any]] = [(tensor, placeholder(self, self.inputs[name]))
                                              for name, tensor in self._traced.inputs.items()]
        for _, variable in self._traced.variables:
            self._paths[id(variable.array)] = variable.path
            if variable.array.dtype.kind == "f":
                self.check_finite(variable.path, variable.array)
        results = self._outputs([*given, *self._traced.variables], list(self._traced.outputs.values()))
        return self.finish(list(self._traced.outputs), results)

    # --- what handlers ask for

    def array(self, constant: Any) -> np.ndarray:
        return np.ascontiguousarray(constant, np.float32)

    def path_of(self, constant: Any, suffix: str) -> str | None:
        path = self._paths.get(id(constant), "")
        layer, _, name = path.rpartition("/")
        return layer if name in ("kernel", "embeddings") and layer else path or None

    def keep(self, constant: np.ndarray, of: Any = None) -> np.ndarray:
        """A constant that is made of another, as one of the same layer."""
        self._kept.append(constant)
        self._paths[id(constant)] = self._paths.get(id(of), "")
        return constant

    def module_path(self) -> str:
        """The names of the layers among the op's scopes."""
        assert self._node is not None
        parts = []
        for scope in self._node.name.split("/")[:-1]:
            bare = re.sub(r"_\d+$", "", scope)
            parts += [name for name in (bare, scope) if name in self._traced.layers][:1]
        return "/".join(parts)

    def default_name(self) -> str:
        assert self._node is not None
        return self.module_path() or (self._node.name.rpartition("/")[2] if self._traced.layers else self._node.name)

    def unsupported(self, expected: str, got: str) -> None:
        assert self._node is not None
        path = self.module_path()
        where = f"layer '{path}': " if path else ""
        name = self._node.name if not path else self._node.name.rpartition("/")[2]
        self.problems.add(f"{where}{self._node.type} '{name}'", expected, got)

    # --- the rest

    def _outputs(self, given: Iterable[tuple[tf.Tensor, Any]], wanted: Sequence[Any]) -> list[Any]:
        """Of tensors what they are, of ops in their order; only what is wanted is computed."""
        values = {tensor.ref(): value for tensor, value in given}
        stack = [tensor.op for tensor in wanted]
        while stack:
            op = stack[-1]
            if all(tensor.ref() in values for tensor in op.outputs):
                stack.pop()
                continue
            missing = [x.op for x in op.inputs if x.ref() not in values]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            before, self._node = self._node, op
            made = self._apply(op, [values[x.ref()] for x in op.inputs])
            self._node = before
            made = list(made) if isinstance(made, (list, tuple)) else [made] * len(op.outputs)
            for tensor, value in zip(op.outputs, made):
                values[tensor.ref()] = value
        return [values[tensor.ref()] for tensor in wanted]

    def _apply(self, op: tf.Operation, args: list[Any]) -> Any:
        if any(isinstance(x, Failed) for x in args):
            return Failed()
        try:
            if op.type in CALLS:
                return self._called(op, args)
            if any(isinstance(x, FromTheEnd) for x in args):
                return without_negative_ids(op, args)
            if op.type == "ReadVariableOp":
                return args[0].array
            if op.type in SAME:
                return args
            if op.type in SIZES and isinstance(args[0], Value):
                return self._executed(op, [np.zeros(with_rows(args[0], self.batch).shape, np.float32)])
            if not any(isinstance(x, Value) for x in args):
                return self._constant(op, args)
            return self._of_batches(op, args)
        except Unsupported as problem:
            expected, got = problem.args
        except Exception as error:  # of an op of TensorFlow, or a shape that a handler did not foresee
            expected, got = "an op that can be expressed", f"{type(error).__name__}: {str(error).splitlines()[0]}"
        self.unsupported(expected, got)
        return Failed()

    def _of_batches(self, op: tf.Operation, args: list[Any]) -> Any:
        if op.type in MOVES or (op.type == "GatherV2" and isinstance(args[0], Value)):
            return move(lambda *given: self._executed(op, list(given)), args, {}, self.batch, lambda cells: cells)
        if op.type in LOOPS:
            raise Unsupported("a graph without loops and branches by values, as recurrent layers have", op.type)
        if op.type in MAKE_IDS_OPS:
            raise Unsupported("ids: they are made by layers that read the inputs of a functional model (.keras), or by "
                              "a file of transforms (transforms_of)", op.type)
        if op.type not in HANDLERS:
            raise Unsupported("an op of the model language", "none that does this")
        handler = HANDLERS[op.type]
        if op.type in OF_EVENTS:
            return handler(self, op, *args)
        return by_event(self, lambda p, *given: handler(p, op, *given), args, {}, constants=op.type in OF_CONSTANTS,
                        widens=op.type in ("ResourceGather", "GatherV2"))

    def _called(self, op: tf.Operation, args: list[Any]) -> list[Any]:
        name = op.get_attr("f").name
        graph = function_def_to_graph(self._functions[name])
        return self._outputs(zip(graph.inputs, args), graph.outputs)

    def _constant(self, op: tf.Operation, args: list[Any]) -> Any:
        made = self._executed(op, [x.array if isinstance(x, Variable) else x for x in args])
        if isinstance(made, list):
            return made
        known = [x for x in args if self._paths.get(id(x))]
        return self.keep(made, known[0] if op.type in MADE_OF_ONE and known else None)

    @staticmethod
    def _executed(op: tf.Operation, args: list[Any]) -> Any:
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
            return made if made.dtype == tf.variant else np.asarray(made)
        return [np.asarray(x) for x in made]
