# SPDX-License-Identifier: Apache-2.0
"""Graphs that begin with ops that make ids of text and numbers, as those of SavedModels: what these compute becomes
transforms, and the rest has their ids as inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..lowering.cells import Unsupported
from .column_features import Encoded, Features, check
from .column_maps import FUNCTIONS, Crossed, Itself, Map, Number, constant, elementwise, refusing
from .column_values import (COLUMN_OPS, EXPECTED, OF_BATCHES, PLACE_BITS, PLACES, SPARSE, SPARSE_OPS, AtLeast, Cells,
                            Examples, Known, LookedUp, Rest, Some, with_least)
from .handlers import CALLS, MOVES, SAME, SIZES
from .preprocessing import Column, Preprocessing
from .tracing import Model, OfFeatures, Traced, Variable, traced
from .walk import Walk, executed

MAKE_IDS = frozenset("""StringToHashBucketFast StringToHashBucketStrong StringToHashBucket LookupTableFindV2 Bucketize
SparseCross SparseCrossV2 SparseCrossHashed""".split())
ELEMENTWISE = frozenset(FUNCTIONS) | set("""Cast AsString StringToHashBucketFast StringToHashBucketStrong
LookupTableFindV2""".split())


def divided(model: Model, of: Mapping[str, tuple[int, ...]], axes: Mapping[str, str] | None) -> Traced:
    """The graph of a model, whose batch has these shapes, without the ops that make ids, which become the model's
    `preprocessing` where there are any. What of them cannot be expressed is among the graph's problems."""
    graph = traced(model, of)
    columns = {name: Column(keras.KerasTensor(spec.shape, spec.dtype.name, name=name),
                            (axes or {}).get(name, "").endswith("[]"), name in model.ragged)
               for name, spec in model.columns.items()}
    ops = ColumnWalk(graph, columns, of)
    ops.divide()
    model.preprocessing = ops.preprocessing()
    return graph


class ColumnWalk(Walk):
    """Follows columns through a graph."""

    def __init__(self, graph: Traced, columns: Mapping[str, Column], shapes: Mapping[str, tuple[int, ...]]):
        super().__init__(graph)
        self.graph = graph
        self.shapes = shapes
        self.maps: list[Map | Encoded] = []
        self.of_column: dict[Any, str] = {}  # by tensor the column that it is
        self._columns = columns
        self._numbers: dict[Any, int] = {}
        self._tables: dict[int, dict[Any, Any]] = {}
        self._caller: dict[Any, tf.Tensor] = {}  # by input of a function what it is called with
        self._made: dict[Any, Cells | LookedUp] = {}  # by tensor that the rest reads
        self._kept: dict[str, tf.Tensor] = {}  # columns that it reads
        self._told: set[str] = set()  # columns that it cannot read

    # --- what each tensor is

    def column(self, name: str, dtype: tf.DType) -> Cells:
        x = Map((name,), Itself() if dtype == tf.string or dtype.is_integer else Number())
        shape = self.shapes[name]
        return Cells(self.cells(x, np.arange(int(np.prod(shape))).reshape(shape)))

    def cells(self, x: Map | Encoded, places: Any) -> np.ndarray:
        return np.asarray(self._number(x) << PLACE_BITS) + places

    def _number(self, x: Map | Encoded) -> int:
        if x.key not in self._numbers:
            self._numbers[x.key] = len(self.maps)
            self.maps.append(x)
        return self._numbers[x.key]

    def map_of(self, x: Cells) -> Map:
        """The one that all elements have, in their order."""
        made, array = self.maps[int(x.array.flat[0]) >> PLACE_BITS], x.array.reshape(-1)
        if not isinstance(made, Map) or not np.array_equal(array, self.cells(made, np.arange(array.size))):
            raise Unsupported("a column, or ids of it", "several")
        return made

    def width(self, x: Map | Encoded) -> int:
        """The elements of a row."""
        if isinstance(x, Encoded):
            return x.tokens
        of = [self.width(part) for part in x.rule.of] if isinstance(x.rule, Crossed) else self.shapes[x.columns[0]][1:]
        return int(np.prod(of))

    def is_ragged(self, x: Map | Encoded) -> bool:
        return any(self._columns[name].is_ragged for name in x.columns)

    def _apply(self, op: tf.Operation, args: list[Any]) -> Any:
        if op.type in CALLS:
            self._caller |= {inside.ref(): outside for inside, outside in zip(self.body(op).inputs, op.inputs)}
            return self._called(op, args)
        rest = [x for x, value in zip(op.inputs, args) if isinstance(value, Rest)]
        if rest:  # of text its own op tells why
            is_first = op.type in MAKE_IDS and not any(x.dtype == tf.string for x in rest)
            return Rest(("columns, and ids of them", "what is computed of columns") if is_first else None)
        try:
            return self._computed(op, args)
        except Unsupported as problem:
            return Rest(problem.args)
        except Exception as error:  # of an op of TensorFlow
            told = " ".join(str(error).split())[:200]
            return Rest(("an op that can be expressed", f"{type(error).__name__}: {told}"))

    def _computed(self, op: tf.Operation, args: list[Any]) -> Any:
        if op.type in SAME | {"ReadVariableOp"}:
            return self.each(refusing, args[0]) if isinstance(args[0], Cells) and _is_asserted(op) else args
        if any(isinstance(x, SPARSE) for x in args):
            return self._of_sparse(op, args)
        bare = [x.array if isinstance(x, (Cells, Known, Variable)) else x for x in args]
        if op.type in SIZES and isinstance(args[0], Cells):
            dtype = op.inputs[0].dtype
            return Known(executed(op, [np.full(bare[0].shape, b"" if dtype == tf.string else 0, dtype.as_numpy_dtype)]))
        of_columns = [isinstance(x, Cells) for x in args]
        if any(isinstance(x, AtLeast) for x in args):
            return with_least(op, bare)
        if not any(of_columns):
            made = executed(op, bare)
            if not any(isinstance(x, Known) for x in args):
                return made
            return [Known(x) for x in made] if isinstance(made, list) else Known(made)
        if op.type in MOVES or (op.type == "GatherV2" and of_columns[0]):
            if op.type in ("ConcatV2", "Pack") and not all(of_columns[:op.get_attr("N")]):
                raise Unsupported("columns, and ids of them", "constants beside them")
            made = executed(op, bare)
            return [Cells(x) for x in made] if isinstance(made, list) else Cells(made)
        return self._handled(op, args)

    def _handled(self, op: tf.Operation, args: list[Any]) -> Any:
        if op.type not in COLUMN_OPS:
            raise Unsupported(EXPECTED, "none that does this")
        return COLUMN_OPS[op.type](self, op, [x.array if isinstance(x, Known) else x for x in args])

    def _of_sparse(self, op: tf.Operation, args: list[Any]) -> Any:
        if op.type in SPARSE_OPS:
            return SPARSE_OPS[op.type](self, op, [x.array if isinstance(x, Known) else x for x in args])
        return self.of_each(op, args)

    def of_each(self, op: tf.Operation, args: list[Any]) -> Some:
        """Elementwise, of some values of a column and constants."""
        if op.type not in ELEMENTWISE or any(type(x) in {Cells, *SPARSE} - {Some} for x in args):
            raise Unsupported(EXPECTED, "none that does this")
        some = [x for x in args if isinstance(x, Some)]
        if any(x.kept.tobytes() != some[0].kept.tobytes() or not x.is_cells for x in some):
            raise Unsupported("values of one column", "others")
        return some[0].like(self._handled(op, [Cells(x.array) if isinstance(x, Some) else x for x in args]).array)

    def function(self, name: str, *args: Any) -> Cells:
        """An elementwise op."""
        return self.elementwise(lambda given: elementwise(name, given), args)

    def each(self, function: Callable[[Map], Map], x: Any) -> Cells:
        """A function of each map."""
        return self.elementwise(lambda given: function(given[0]), [x])

    def elementwise(self, function: Callable[[list[Map]], Map], args: Iterable[Any]) -> Cells:
        """A function of maps of the same values, and of constants."""
        given = np.broadcast_arrays(*(x.array if isinstance(x, Cells) else self._constants(x) for x in args))
        flat = np.stack([x.reshape(-1) for x in given])
        used, which = np.unique(flat >> PLACE_BITS, axis=1, return_inverse=True)
        which = which.reshape(-1)
        made = np.zeros(flat.shape[1], np.int64)
        for i, numbers in enumerate(used.T.tolist()):
            of = [self.maps[n] for n in numbers]
            if any(isinstance(x, Encoded) for x in of):
                raise Unsupported("ids", "what is encoded")
            here = which == i
            places = (flat[:, here] & PLACES)[[bool(x.columns) for x in of]]
            if (places != places[:1]).any():
                raise Unsupported("values of one place", "of several")
            made[here] = self.cells(function(of), places[0])  # type: ignore[arg-type]
        return Cells(made.reshape(given[0].shape))

    def _constants(self, array: Any) -> np.ndarray:
        array = np.asarray(array)
        if array.dtype.kind not in "iubOS":
            raise Unsupported("ids", "numbers")
        values, which = np.unique(array, return_inverse=True)
        cells = [self.cells(constant(v), 0) for v in values.tolist()]
        return np.array(cells, np.int64)[which].reshape(array.shape)

    def encoded(self, x: Cells, tokens: int, mode: str) -> Cells:
        """A last dimension more."""
        made = np.zeros((x.array.size, tokens), np.int64)
        for number in np.unique(x.array >> PLACE_BITS).tolist():
            of = self.maps[number]
            if isinstance(of, Encoded) or any(self._columns[name].is_events for name in of.columns):
                raise Unsupported("one id a row that is encoded", "others")
            here = (x.array.reshape(-1) >> PLACE_BITS) == number
            places = (x.array.reshape(-1)[here] & PLACES)[:, None] * tokens + np.arange(tokens)
            made[here] = self.cells(Encoded(of, tokens, mode), places)
        return Cells(made.reshape(*x.array.shape, tokens))

    def table(self, handle: Any, op: tf.Operation) -> dict[Any, Any]:
        """What a table has."""
        if id(handle) not in self._tables:
            keys, values = tf.raw_ops.LookupTableExportV2(
                table_handle=handle, Tkeys=op.get_attr("Tin"), Tvalues=op.get_attr("Tout"))
            self._tables[id(handle)] = dict(zip(keys.numpy().tolist(), values.numpy().tolist()))
        return self._tables[id(handle)]

    # --- what the rest reads

    def divide(self) -> None:
        """Finds the last tensors that are maps which transforms have, from the outputs on."""
        graph = self.graph
        self.of_column |= {tensor.ref(): name for name, tensor in graph.inputs.items()}
        given = [(tensor, self.column(name, tensor.dtype) if name in self._columns else Examples())
                 for name, tensor in graph.inputs.items()]
        outputs = list(graph.outputs.values())
        self._outputs([*given, *graph.captured], outputs)
        seen = set()
        stack = outputs[::-1]
        while stack:
            tensor = stack.pop()
            key, op, value = tensor.ref(), tensor.op, self._values.get(tensor.ref())
            if key in seen or not isinstance(value, OF_BATCHES):
                continue
            seen.add(key)
            if isinstance(value, Known):
                graph.made[key] = value.array
                continue
            why = value.why if isinstance(value, Rest) else None
            if isinstance(value, LookedUp) or (
                    isinstance(value, Cells) and (tensor.dtype.is_integer or tensor.dtype.is_floating)):
                try:
                    self._check(value)
                    self._made[key] = value
                    continue
                except Unsupported as problem:
                    why = problem.args
            if key in self.of_column:
                self._keep(self.of_column[key], tensor)
            elif key in self._caller:
                stack.append(self._caller[key])
            elif op.type in CALLS:
                stack.append(self.body(op).outputs[tensor.value_index])
            elif why is not None and (op.type in MAKE_IDS or any(x.dtype == tf.string for x in op.inputs)):
                graph.problems.add(f"{op.type} '{op.name}'", *why)
                graph.made[key] = None
            else:
                stack += list(op.inputs)[::-1]
        graph.made |= {tensor: None for tensor, name in self.of_column.items() if name not in self._kept}
        graph.inputs = self._kept

    def _check(self, value: Cells | LookedUp) -> None:
        """Raises Unsupported where transforms or a graph cannot have it."""
        cells = value.ids if isinstance(value, LookedUp) else value.array
        found = [self.maps[n] for n in np.unique(cells >> PLACE_BITS).tolist()]
        for x in found:
            check(x, self._columns)
        if isinstance(value, LookedUp):
            if value.values is not None or (len(found) > 1 and any(map(self.is_ragged, found))):
                raise Unsupported("zeros for rows without an id, which are of one column", "others")
        elif any(self.is_ragged(x) and not (isinstance(x, Encoded) and x.mode != "one_hot") for x in found):
            raise Unsupported("ids of any number a row, of which rows are looked up and pooled, or which are counted",
                              "another use")

    def _keep(self, name: str, tensor: tf.Tensor) -> None:
        if name in self._columns and tensor.dtype != tf.string and not self._columns[name].is_ragged:
            self._kept[name] = tensor
            return
        if name not in self._told:
            self._told.add(name)
            self.graph.problems.add(f"input '{name}'", EXPECTED, "another use of it")
        self.graph.made[tensor.ref()] = None

    def preprocessing(self) -> Preprocessing | None:
        """The transforms; None: there are none."""
        arrays = {key: value.array if isinstance(value, Cells) else value.ids for key, value in self._made.items()}
        used = {key: np.unique(array >> PLACE_BITS).tolist() for key, array in arrays.items()}
        found = list(dict.fromkeys(n for numbers in used.values() for n in numbers))
        if not found and not any(c.is_ragged or c.tensor.dtype == "string" for c in self._columns.values()):
            return None
        if not found and not self._kept:
            self.graph.problems.raise_if_any()
        widths = {self.maps[n]: self.width(self.maps[n]) for n in found if self.is_ragged(self.maps[n])}
        features = Features(self._columns, set(self._kept), [self.maps[n] for n in found], widths)
        rows = next(iter(self.shapes.values()))[0]
        for key, numbers in used.items():
            begin = np.zeros(numbers[-1] + 1, np.int64)
            begin[numbers] = np.cumsum([0, *(rows * self.width(self.maps[n]) for n in numbers[:-1])])
            made = OfFeatures([features.names[self.maps[n]] for n in numbers],
                              begin[arrays[key] >> PLACE_BITS] + (arrays[key] & PLACES))
            value = self._made[key]
            if isinstance(value, LookedUp):
                made.table = value.table
                made.pooling = value.pooling if self.maps[numbers[0]] in widths else ""
            self.graph.made[key] = made
        return features.preprocessing(self.graph.problems)


def _is_asserted(op: tf.Operation) -> bool:
    """Whether an assertion about what an op takes stands before it."""
    behind = [x for other in op.control_inputs if other.type == "Assert" for x in other.inputs]
    seen = set()
    while behind:
        tensor = behind.pop()
        if tensor is op.inputs[0]:
            return True
        if tensor.ref() not in seen:
            seen.add(tensor.ref())
            behind += list(tensor.op.inputs)
    return False
