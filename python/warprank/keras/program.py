# SPDX-License-Identifier: Apache-2.0
"""Runs a graph of TensorFlow's: batches become cells, all else is computed at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import warprank as wr

from ..lowering.cells import Unsupported, Value, move, with_rows
from ..lowering.inputs import Input
from ..lowering.placeholders import placeholder
from ..lowering.places import by_event, embedding
from ..lowering.program import Failed
from ..lowering.program import Program as LoweredProgram
from .handlers import CALLS, HANDLERS, MOVES, OF_CONSTANTS, OF_EVENTS, SAME, SIZES
from .loop_lists import Events, States
from .negative_ids import FromTheEnd, without_negative_ids
from .tracing import OfFeatures, Traced, Variable
from .walk import Walk, executed

# Constants that are made of one parameter belong to its layer.
MADE_OF_ONE = MOVES | SAME | {"Cast", "GatherV2"}
BRANCHES = frozenset("If StatelessIf Case StatelessCase".split())


class Program(LoweredProgram, Walk):
    def __init__(self, traced: Traced, inputs: Mapping[str, Input], batch: int, hashed: Mapping[str, Any]):
        LoweredProgram.__init__(self, inputs, batch, hashed)
        Walk.__init__(self, traced)
        self.problems.extend(traced.problems)
        self._kept: list[Any] = []  # constants, which are known by their id()

    def run(self) -> wr.Graph:
        """Raises InvalidArgument with everything that cannot be expressed."""
        placeholders = {name: placeholder(self, given) for name, given in self.inputs.items()}
        for _, captured in self._traced.captured:
            if isinstance(captured, Variable):
                self._paths[id(captured.array)] = captured.path
                if captured.array.dtype.kind == "f":
                    self.check_finite(captured.path, captured.array)
        for tensor, made in self._traced.made.items():
            self._values[tensor] = self._of_features(made, placeholders) if isinstance(made, OfFeatures) else \
                Failed() if made is None else made
        given = [(tensor, placeholders[name]) for name, tensor in self._traced.inputs.items()]
        results = self._outputs([*given, *self._traced.captured], list(self._traced.outputs.values()))
        return self.finish(list(self._traced.outputs), results)

    def _of_features(self, made: OfFeatures, placeholders: Mapping[str, Value]) -> Value:
        given = tuple(placeholders[name] for name in made.features)
        value: Value = move(lambda *arrays: np.concatenate([x.reshape(-1) for x in arrays])[made.places], given, {},
                            self.batch, lambda cells: cells)
        if made.table is None:
            return value
        table = made.table.array if isinstance(made.table, Variable) else made.table
        if not made.pooling:
            for name in made.features:
                self.inputs[name].padding = -1
            looked_up: Value = move(lambda array: array[:, 0], (value,), {}, self.batch, lambda cells: cells)
            return embedding(self, table, looked_up)

        def make() -> wr.Tensor:
            bag = self.bag(value.cells.ravel(), -1, table)
            return self.builder.embed_bag(*bag, made.pooling)  # type: ignore[arg-type]
        return Value(self.sources.add(self.inputs[made.features[0]].axis, table.shape[1], "embed_bag", make)[None])

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

    def _apply(self, op: tf.Operation, args: list[Any]) -> Any:
        if any(isinstance(x, Failed) for x in args) and op.type not in CALLS:
            return Failed()
        before, self._node = self._node, op
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
                return executed(op, [np.zeros(with_rows(args[0], self.batch).shape, np.float32)])
            if not any(isinstance(x, (Value, Events, States)) for x in args):
                return self._constant(op, args)
            return self._of_batches(op, args)
        except Unsupported as problem:
            self.unsupported(*problem.args)
        except Exception as error:  # of an op of TensorFlow, or a shape that a handler did not foresee
            self.unsupported("an op that can be expressed", f"{type(error).__name__}: {str(error).splitlines()[0]}")
        finally:
            self._node = before
        return Failed()

    def _of_batches(self, op: tf.Operation, args: list[Any]) -> Any:
        if op.type in MOVES or (op.type == "GatherV2" and isinstance(args[0], Value)):
            return move(lambda *given: executed(op, list(given)), args, {}, self.batch, lambda cells: cells)
        if op.type in BRANCHES:
            raise Unsupported("a graph without branches by values", op.type)
        if op.type not in HANDLERS:
            raise Unsupported("an op of the model language", "none that does this")
        handler = HANDLERS[op.type]
        if op.type in OF_EVENTS:
            return handler(self, op, *args)
        return by_event(self, lambda p, *given: handler(p, op, *given), args, {}, constants=op.type in OF_CONSTANTS,
                        widens=op.type in ("ResourceGather", "GatherV2"))

    def _constant(self, op: tf.Operation, args: list[Any]) -> Any:
        made = executed(op, [x.array if isinstance(x, Variable) else x for x in args])
        if isinstance(made, list):
            return made
        known = [x for x in args if self._paths.get(id(x))]
        return self.keep(made, known[0] if op.type in MADE_OF_ONE and known else None)
