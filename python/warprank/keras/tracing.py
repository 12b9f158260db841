# SPDX-License-Identifier: Apache-2.0
"""The graph of ops that TensorFlow makes of a model: of Keras, or saved."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..columns import Ragged
from ..errors import Problems, refuse
from ..lowering.examples import BATCH, LENGTH
from .examples import columns_of_examples, serialized
from .preprocessing import Preprocessing, preprocessing_layers, preprocessing_of
from .variables import named_variables


@dataclass(eq=False)
class Variable:
    """A parameter: its layer's path with its own name, and what it was trained to."""

    path: str
    array: np.ndarray


@dataclass
class Model:
    """What is called with tensors by input, and gives tensors by output."""

    whole: Any
    columns: dict[str, tf.TensorSpec]  # what the whole model takes
    variables: list[tuple[str, Any]]
    layers: set[str] = field(default_factory=set)
    owner: Any = None  # of the variables
    preprocessing: Preprocessing | None = None
    rest: Any = None  # the same without it
    begins_with_numbers: bool = True  # and ids, once `preprocessing` has been done
    examples: str = ""  # the input that has the columns as tf.Examples
    ragged: frozenset[str] = frozenset()  # columns that have any number of values a row

    @property
    def call(self) -> Any:
        """What the graph is to compute, of `inputs`."""
        return self.whole if self.rest is None else self.rest

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        return self.columns if self.preprocessing is None else _specs(self.preprocessing.inputs)

    def batch(self, batch: Any) -> dict[str, Any]:
        """A batch by column, arrays or Ragged: of a mapping, a list in their order, or an array."""
        if not isinstance(batch, Mapping):
            given = batch if isinstance(batch, (tuple, list)) else [batch]
            if len(given) != len(self.columns):
                refuse("batch", f"{len(self.columns)} arrays, " + ", ".join(self.columns), str(len(given)))
            batch = dict(zip(self.columns, given))
        problems = Problems()
        for name in batch:
            if name not in self.columns:
                near = get_close_matches(str(name), self.columns, 1)
                problems.add(f"batch: '{name}'", "an input of the model",
                             "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
        arrays = {name: (_ragged if name in self.ragged else _array)(name, batch.get(name), spec.dtype, problems)
                  for name, spec in self.columns.items()}
        problems.raise_if_any()
        return arrays

    def arrays(self, batch: Any) -> dict[str, np.ndarray]:
        """A batch by input of the graph."""
        arrays = self.batch(batch)
        return arrays if self.preprocessing is None else self.preprocessing.arrays(arrays)

    def scores(self, batch: Any) -> list[np.ndarray]:
        """Those of the whole model."""
        given = self.batch(batch)
        made = self.whole({self.examples: serialized(given)} if self.examples else {
            name: tf.constant(array) for name, array in given.items()})
        return [np.asarray(array, np.float64) for array in made.values()]


def _array(name: str, given: Any, dtype: tf.DType, problems: Problems) -> np.ndarray:
    """An array of the type that an input has, where that holds its values."""
    what = f"batch: input '{name}'"
    expected, kinds = (("text", "OSU") if dtype == tf.string else ("integers", "iub") if dtype.is_integer else
                       ("truth values", "b") if dtype.is_bool else ("numbers", "fiub"))
    try:
        array = np.asarray(given)
    except ValueError as error:
        problems.add(what, "rows of one length", str(error))
        return np.zeros(0, dtype.as_numpy_dtype)
    if given is None:
        problems.add(what, "an array", "none")
    elif array.dtype.kind not in kinds:
        problems.add(what, expected, f"{array.dtype} values")
    elif dtype.is_integer and array.size and not dtype.min <= array.min() <= array.max() <= dtype.max:
        beyond = array[(array < dtype.min) | (array > dtype.max)]
        problems.add(what, f"values that {dtype.name} has", str(beyond.flat[0]))
    else:
        return array.astype(dtype.as_numpy_dtype, copy=False)
    return np.zeros(array.shape, dtype.as_numpy_dtype)


def _ragged(name: str, given: Any, dtype: tf.DType, problems: Problems) -> Ragged:
    """Ragged values of the type that a column has, of Ragged or of a sequence for each row."""
    if given is None or isinstance(given, Ragged):
        values, offsets = (None, [0]) if given is None else (given.values, given.offsets)
    else:
        rows = [np.atleast_1d(row).tolist() for row in given]
        values, offsets = [value for row in rows for value in row], np.cumsum([0, *map(len, rows)])
        values = values or np.zeros(0, dtype.as_numpy_dtype)
    return Ragged(_array(name, values, dtype, problems), np.asarray(offsets, np.int64))


def _specs(tensors: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(t.shape, t.dtype, name) for name, t in tensors.items()}


@dataclass
class OfFeatures:
    """A tensor that transforms make: of which features, and which of their elements, one feature's behind the other's,
    is where; or the rows of a table that these ids have, zeros for -1, or bags of them, pooled."""

    features: list[str]
    places: np.ndarray
    table: Variable | np.ndarray | None = None
    pooling: str = ""  # of bags


@dataclass
class Traced:
    """A graph for a batch of known shape."""

    graph: tf.Graph
    inputs: dict[str, tf.Tensor]
    captured: list[tuple[tf.Tensor, Any]]  # tensors of the graph that are variables, constants and tables outside
    outputs: dict[str, tf.Tensor]
    layers: set[str]
    bodies: dict[tf.Operation, tf.Graph] = field(default_factory=dict)  # by call what it calls
    # Tensors that are not computed of the inputs by the graph; None: that cannot be expressed, which `problems` tell.
    made: dict[Any, OfFeatures | np.ndarray | None] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)


def opened(model: Any, example_batch: Any, axes: Mapping[str, str] | None) -> Model:
    """Of a Keras model, of a file of one, or of a folder of a SavedModel."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if not os.path.exists(path):
            refuse(f"model '{path}'", "a .keras, an .h5 or a SavedModel", "none")
        if os.path.isdir(path):
            return _saved(path)
        try:
            model = keras.models.load_model(path, compile=False)
        except Exception as error:
            refuse(f"model '{path}'", "a model that Keras can load; with classes of your own or Lambda layers, load it "
                   "and give the model", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
    return _of_keras(model, example_batch, axes)


def _of_keras(model: Any, example_batch: Any, axes: Mapping[str, str] | None) -> Model:
    function = model if hasattr(model, "_nodes_by_depth") else getattr(model, "_functional", None)
    if function is not None:
        inputs = _specs({t.name: t for t in function.inputs})
        structure, outputs = function._inputs_struct, _output_names(model, function)
    elif example_batch is None:
        refuse(f"model '{model.name}'", "example_batch, since its inputs are known only then", "none")
    else:
        structure = example_batch
        flat = keras.tree.flatten(example_batch)
        names = list(example_batch) if isinstance(example_batch, Mapping) else [f"input_{i}" for i in range(len(flat))]
        names = ["input"] if len(names) == 1 and not isinstance(example_batch, Mapping) else names
        order = keras.tree.flatten(dict(zip(names, names))) if isinstance(example_batch, Mapping) else names
        inputs = {name: _spec_of(name, x) for name, x in zip(order, flat)}
        outputs = None
        if preprocessing_layers(model):
            function, outputs = _functional(model, structure, inputs)

    def call(given: Mapping[str, Any]) -> dict[str, Any]:
        made = model(keras.tree.pack_sequence_as(structure, list(given.values())), training=False)
        flat = keras.tree.flatten(made)
        names = outputs or (list(made) if isinstance(made, Mapping) else
                            ["output"] if len(flat) == 1 else [f"output_{i}" for i in range(len(flat))])
        if isinstance(made, Mapping) and outputs is None:
            flat = [made[name] for name in names]
        return dict(zip(names, flat))

    layers = {layer.name for layer in model._flatten_layers(include_self=False)}
    found = None if function is None else preprocessing_of(function, axes)
    is_whole = _is_whole(found, preprocessing_layers(model), inputs)
    made = Model(call, inputs, list(named_variables(model)), layers, preprocessing=found if is_whole else None,
                 begins_with_numbers=is_whole)
    if found is not None and is_whole and outputs is not None:
        made.rest = lambda given: dict(zip(outputs, found.rest(function, given)))
    return made


def _is_whole(found: Preprocessing | None, layers: list[Any], inputs: Mapping[str, tf.TensorSpec]) -> bool:
    """Whether what was found is all that makes ids."""
    if found is None:
        return not layers and not any(spec.dtype == tf.string for spec in inputs.values())
    return all(any(layer is other for other in found.layers) for layer in layers) and not any(
        inputs[name].dtype == tf.string for name in found.kept)


def _spec_of(name: str, array: Any) -> tf.TensorSpec:
    """Of what is given as an example."""
    array = np.asarray(array)
    return tf.TensorSpec((None, *array.shape[1:]), tf.string if array.dtype.kind in "OSU" else array.dtype, name)


def _functional(model: Any, structure: Any, inputs: Mapping[str, tf.TensorSpec]) -> tuple[Any, list[str] | None]:
    """A class of a user's own as a functional model, so that it is known what its preprocessing layers read; None: it
    calls what Keras cannot call so."""
    given = [keras.Input(spec.shape[1:], dtype=spec.dtype.name, name=name) for name, spec in inputs.items()]
    options = {"training": False} if "training" in inspect.signature(model.call).parameters else {}
    try:
        made = model.call(keras.tree.pack_sequence_as(structure, given), **options)
        function = keras.Model(given, made)
    except Exception:
        return None, None
    count = len(function.outputs)
    names = sorted(made) if isinstance(made, Mapping) else [f"output_{i}" for i in range(count)]
    return function, ["output"] if count == 1 and not isinstance(made, Mapping) else names


def _output_names(model: Any, function: Any) -> list[str]:
    """In the order in which Keras flattens them."""
    struct = getattr(function, "_outputs_struct", None)
    if isinstance(struct, Mapping):
        return sorted(struct)
    return ["output"] if len(function.outputs) == 1 else list(model.output_names)


def _saved(path: str) -> Model:
    if not os.path.exists(os.path.join(path, "saved_model.pb")):
        refuse(f"model '{path}'", "a .keras, an .h5 or a SavedModel", "a folder of others")
    loaded = tf.saved_model.load(path)
    signatures = loaded.signatures
    if not signatures:
        refuse(f"model '{path}'", "a SavedModel with a signature", "one without")
    signature = signatures.get("serving_default", next(iter(signatures.values())))
    inputs = dict(signature.structured_input_signature[1])
    named = [(v.name.removesuffix(":0"), v) for v in signature.variables]

    def call(given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(sorted(signature(**given).items()))
    made = Model(call, inputs, named, owner=loaded, begins_with_numbers=False)
    parsed = columns_of_examples(signature.graph) if [spec.dtype for spec in inputs.values()] == [tf.string] else None
    if parsed is not None:
        (made.examples,), (made.columns, made.ragged) = inputs, parsed
    return made


def shapes(model: Model, example: Mapping[str, Any] | None) -> dict[str, tuple[int, ...]]:
    """Of the columns of the batch that is traced."""
    if example is not None:
        return {name: (len(array.offsets) - 1, LENGTH) if isinstance(array, Ragged) else array.shape
                for name, array in example.items()}
    return {name: (BATCH, *(LENGTH if n is None else n for n in column.shape[1:]))
            for name, column in model.columns.items()}


def traced(model: Model, of: Mapping[str, tuple[int, ...]]) -> Traced:
    given = model.inputs
    if model.examples:
        rows = next(iter(of.values()))[:1]
        given, of = {model.examples: tf.TensorSpec(rows, tf.string)}, {model.examples: rows}
    specs = [tf.TensorSpec(of[name], spec.dtype) for name, spec in given.items()]
    try:
        function = tf.function(lambda *tensors: model.call(dict(zip(given, tensors))),
                               autograph=False).get_concrete_function(*specs)
    except Exception as error:
        text = str(error).strip().splitlines()
        refuse("model", "one that TensorFlow can trace", f"{type(error).__name__}: {text[0] if text else ''}")
    graph = function.graph
    names = {id(_handle(variable)): name for name, variable in model.variables}
    captured: list[tuple[tf.Tensor, Any]] = []
    handles = {id(_handle(variable)): variable for _, variable in model.variables}
    handles |= {id(v.handle): v for v in graph.variables if id(v.handle) not in handles}
    for outside, inside in graph.captures:
        variable = handles.get(id(outside))
        if variable is not None:
            name = names.get(id(outside)) or variable.name.removesuffix(":0")
            captured.append((inside, Variable(name, np.asarray(variable.numpy()))))
        else:
            captured.append((inside, outside if outside.dtype == tf.resource else outside.numpy()))
    inputs = dict(zip(given, graph.inputs))
    outputs = function.structured_outputs
    return Traced(graph, inputs, captured, dict(outputs), model.layers)


def _handle(variable: Any) -> Any:
    return variable.handle if hasattr(variable, "handle") else variable.value.handle  # Keras' has TensorFlow's
