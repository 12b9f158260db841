# SPDX-License-Identifier: Apache-2.0
"""Functional models that begin with preprocessing layers, as Hashing: those become transforms, the rest has their ids
as inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

import warprank as wr

from ..columns import Ragged
from ..errors import Problems
from ..lowering.cells import Unsupported
from ..lowering.inputs import axes_of
from .transforms import File, Source, column_of, feature_of

# Normalization alone is arithmetic, which the graph has.
MAKE_IDS = {"Hashing", "StringLookup", "IntegerLookup", "Discretization", "HashedCrossing", "CategoryEncoding"}


@dataclass
class Column:
    """An input of the whole model."""

    tensor: Any
    is_events: bool = False
    is_ragged: bool = False  # of any number of values a row


@dataclass
class Preprocessing:
    """What of a model makes ids of text and numbers."""

    transforms: wr.Transforms | None  # None: there are problems, which are told before transforms are wanted
    columns: dict[str, Column]
    made: dict[str, Any]  # by feature that the rest reads its symbolic tensor
    kept: dict[str, Any]  # by column that the rest reads
    of: dict[str, list[str]]  # by feature the columns that it is made of
    layers: list[Any] = field(default_factory=list)  # which it replaces
    _parts: dict[str, wr.Transforms] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Any]:
        """Those of the rest."""
        return self.made | self.kept

    def axes(self, axes: Mapping[str, str] | None) -> dict[str, str] | None:
        """Those of the rest's inputs: a feature of several columns is on the innermost of theirs."""
        if axes is None:
            return None
        problems = Problems()
        of_columns = axes_of(list(self.columns), axes, problems)
        problems.raise_if_any()
        found = {name: axes[name] for name in self.kept}
        for name in self.made:
            paths = sorted((of_columns[column][0].split("/") for column in self.of[name]), key=len)
            if any(path != paths[-1][:len(path)] for path in paths):
                problems.add(f"axes: feature '{name}' of {_listed(self.of[name])}", "columns on one axis, or above it",
                             ", ".join("/".join(path) for path in paths))
            found[name] = "/".join(paths[-1]) + "[]" * any(of_columns[column][1] for column in self.of[name])
        problems.raise_if_any()
        return found

    def shapes(self, of: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Those of the rest's inputs, of those of the columns."""
        found = {name: of[name] for name in self.kept}
        for name, tensor in self.made.items():
            shape = of[self.of[name][0]]
            found[name] = shape if None in tensor.shape[1:] else (shape[0], *tensor.shape[1:])
        return found

    def arrays(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The rest's inputs, of a batch of the whole model's: by the transforms, and not by Keras."""
        assert self.transforms is not None
        arrays = {name: batch[name] for name in self.kept}
        for name, tensor in self.made.items():
            if name not in self._parts:
                self._parts[name] = self.transforms.only([name])
            given = {column: batch[column] for column in self.of[name]}
            values = self._parts[name].run({column: values if isinstance(values, Ragged) else values.reshape(-1)
                                            for column, values in given.items()})[name]
            if isinstance(values, Ragged):
                arrays[name] = _padded(values)
            elif values.ndim == 1:
                arrays[name] = values.reshape(batch[self.of[name][0]].shape if len(tensor.shape) > 1 else -1)
            else:
                arrays[name] = values
        return arrays

    def rest(self, function: Any, given: Mapping[str, Any]) -> list[Any]:
        """The outputs of a functional model of the rest's inputs. To make a model of the rest would change the layers
        of this one, which could not be saved afterwards."""
        values = {id(tensor): given[name] for name, tensor in self.inputs.items()}
        for depth in sorted(function._nodes_by_depth, reverse=True):
            for node in function._nodes_by_depth[depth]:
                known = all(id(x) in values for x in node.input_tensors)
                if node.is_input or not known or all(id(x) in values for x in node.outputs):
                    continue
                args, kwargs = node.arguments.fill_in(values)
                if "training" in inspect.signature(node.operation.call).parameters:
                    kwargs["training"] = False
                outputs = keras.tree.flatten(node.operation(*args, **kwargs))
                values |= {id(x): value for x, value in zip(node.outputs, outputs)}
        return [values[id(x)] for x in function.outputs]


def _padded(ids: Ragged) -> np.ndarray:
    """With -1 behind the ids of each row."""
    lengths = np.diff(ids.offsets)
    padded = np.full((len(lengths), max(1, int(lengths.max(initial=0)))), -1, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = ids.values
    return padded


def preprocessing_layers(model: Any) -> list[Any]:
    """What in a model makes ids, wherever it is."""
    return [layer for layer in model._flatten_layers(include_self=False) if type(layer).__name__ in MAKE_IDS]


def preprocessing_of(function: Any, axes: Mapping[str, str] | None) -> Preprocessing | None:
    """What of a functional model makes ids; None: nothing does. Raises which of it cannot be expressed."""
    columns = {t.name: Column(t, (axes or {}).get(t.name, "").endswith("[]")) for t in function.inputs}
    nodes = [node for depth in sorted(function._nodes_by_depth, reverse=True)
             for node in function._nodes_by_depth[depth]]
    made = {id(t): t for t in function.inputs}  # columns and features
    layers = []
    for node in nodes:
        if type(node.operation).__name__ in MAKE_IDS and all(id(x) in made for x in node.input_tensors):
            layers.append(node)
            made |= {id(x): x for x in node.outputs}
    if not layers:
        return None
    read = {id(x) for node in nodes if node not in layers for x in node.input_tensors} | {
        id(x) for x in function.outputs}
    file = File()
    names = _names(layers, columns, read)
    sources: dict[int, Source] = {}
    of = {id(column.tensor): [name] for name, column in columns.items()}
    for node in layers:
        name = names[id(node)]
        try:
            for x in node.input_tensors:
                if id(x) not in sources:
                    sources[id(x)] = column_in(file, x.name, columns[x.name])
            sources[id(node.outputs[0])] = feature_of(file, name, node.operation,
                                                      [sources[id(x)] for x in node.input_tensors])
        except Unsupported as problem:
            file.problems.add(f"layer '{node.operation.name}' ({type(node.operation).__name__})", *problem.args)
            sources[id(node.outputs[0])] = ("feature", name)
        of[id(node.outputs[0])] = list(dict.fromkeys(c for x in node.input_tensors for c in of[id(x)]))
    file.columns = {name: file.columns[name] for name in columns if name in file.columns}  # in the model's order
    return Preprocessing(
        file.finish(), columns, {names[id(n)]: n.outputs[0] for n in layers if id(n.outputs[0]) in read},
        {name: c.tensor for name, c in columns.items() if id(c.tensor) in read},
        {names[id(n)]: of[id(n.outputs[0])] for n in layers}, [n.operation for n in layers])


def _names(layers: list[Any], columns: Mapping[str, Column], read: set[int]) -> dict[int, str]:
    """A feature has the name of its column where nothing else is made of that, and else of its layer."""
    uses = [x.name for node in layers for x in node.input_tensors if x.name in columns]
    found: dict[int, str] = {}
    for node in layers:
        first = node.input_tensors[0]
        alone = len(node.input_tensors) == 1 and uses.count(first.name) == 1 and id(first) not in read
        name = first.name if alone and id(node.outputs[0]) in read else node.operation.name
        same = [n for n in found.values() if n.rpartition(".")[0] == name or n == name]  # a layer that is called again
        found[id(node)] = f"{name}.{len(same)}" if same else name
    return found


def column_in(file: File, name: str, column: Column) -> Source:
    """A column of the file, as the model has it."""
    shape = column.tensor.shape[1:]
    if column.is_ragged:
        dtype = column.tensor.dtype
        return file.column(name, "text" if dtype == "string" else "i64" if "int" in dtype else "f32", ragged=True)
    if not column.is_events:
        if shape not in ((), (1,)):
            raise Unsupported("an input [batch] or [batch, 1], or events ('user/history[]')",
                              f"shape {list(column.tensor.shape)} of '{name}'")
        return column_of(file, name, column.tensor)
    if len(shape) != 1:
        raise Unsupported("events [batch, events]", f"shape {list(column.tensor.shape)} of '{name}'")
    dtype = column.tensor.dtype
    return file.column(name, "text" if dtype == "string" else "i64" if "int" in dtype else "f32")


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def example_of(preprocessing: Preprocessing, rows: int, length: int) -> dict[str, Any]:
    """A batch of random values of which some are known; events have padding behind them where it is masked."""
    assert preprocessing.transforms is not None
    random = np.random.default_rng(1)
    document = preprocessing.transforms.document
    arrays: dict[str, Any] = {}
    for name, column in preprocessing.columns.items():
        settings = [f.get("settings", {}) for f in document["features"] if {"column": name} in f["of"]]
        shape = (rows, *(length if n is None else n for n in column.tensor.shape[1:]))
        dtype = column.tensor.dtype
        only_known = [s for s in settings
                      if {"texts", "integers"} & s.keys() and not {"default_id", "oov_buckets"} & s.keys()]
        if dtype == "string":
            known = [text for s in only_known or settings for text in s.get("texts", [])][:1000]
            known += [] if only_known else [f"text {i}" for i in range(8)]
            arrays[name] = np.array(known, object)[random.integers(0, len(known), shape)]
        elif "int" in dtype:
            known = [i for s in only_known or settings for i in s.get("integers", [])][:1000]
            most = min((s[n] for s in settings for n in ("buckets", "tokens") if n in s), default=8)
            known += [] if only_known else list(range(min(most, 8)))
            arrays[name] = np.array(known, dtype)[random.integers(0, len(known), shape)]
        else:
            bounds = [float(b) for s in settings for b in s.get("boundaries", [])] or [-1.0, 1.0]
            arrays[name] = random.uniform(min(bounds) - 1, max(bounds) + 1, shape).astype(dtype)
        masks = [s["mask"] for s in settings if s.get("mask", {}).get("id") == 0]
        if column.is_events and masks:
            padding = masks[0].get("text", masks[0].get("integer"))
            lengths = random.integers(1, shape[1] + 1, (rows, 1))
            arrays[name] = np.where(np.arange(shape[1]) < lengths, arrays[name], padding)
        if column.is_ragged:
            lengths = random.integers(0, shape[1] + 1, rows)
            arrays[name] = Ragged(arrays[name][np.arange(shape[1]) < lengths[:, None]], np.cumsum([0, *lengths]))
    return arrays
