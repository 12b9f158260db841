# SPDX-License-Identifier: Apache-2.0
"""What an export makes: a graph, its weights and tables, and how the model's batches become columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import warprank as wr

from ..weights import Path
from .program import Input


@dataclass
class Difference:
    """Between the scores of the exported model and those of Keras, over one output."""

    largest: float
    mean: float


@dataclass
class Exported:
    """A model as a graph with weights and tables, each by the path of its layer."""

    graph: wr.Graph
    weights: dict[str, np.ndarray]
    tables: dict[str, np.ndarray]
    outputs: list[str]
    _inputs: list[Input]
    _model: Any
    _bound: wr.Model | None = field(default=None, repr=False)

    def save(self, folder: Path) -> None:
        """Writes graph.json, dense.safetensors and tables.safetensors, which warprank.load and servers read."""
        os.makedirs(folder, exist_ok=True)
        wr.write_safetensors(os.path.join(folder, "dense.safetensors"), self.weights)
        wr.write_safetensors(os.path.join(folder, "tables.safetensors"), self.tables)
        self.graph.save(os.path.join(folder, "graph.json"))  # last: with it the folder is whole

    def model(self, device: str = "host") -> wr.Model:
        """The model, bound to the trained weights."""
        plan = wr.compile(self.graph)
        tables = wr.Tables.load(plan, wr.Weights.from_arrays(self.tables), device)
        return wr.bind(plan, wr.Weights.from_arrays(self.weights), tables)

    def columns(self, batch: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A batch that the model takes, as columns and offsets for Model.score: one request for each row."""
        arrays = self._arrays(batch)
        rows = len(next(iter(arrays.values())))
        plan = wr.compile(self.graph)
        used = {i.name for i in plan.ids} | {i.name for i in plan.dense}
        data: dict[str, Any] = {}
        offsets: dict[str, np.ndarray] = {}
        kept: dict[str, np.ndarray] = {}  # by axis of a sequence, which steps are no padding
        for given in self._inputs:
            if given.is_sequence and given.padding is not None:
                kept[given.axis] = arrays[given.name] != given.padding
        for given in self._inputs:
            path = given.axis.split("/")
            for axis in path[1:-1] if given.is_sequence else path[1:]:
                offsets[axis] = np.arange(rows + 1, dtype=np.int64)
            array = arrays[given.name]
            if given.is_sequence:
                steps = kept.get(given.axis, np.ones(array.shape[:2], bool))
                if given.name in used:
                    data[given.name] = wr.Ragged(array[steps], np.concatenate([[0], np.cumsum(steps.sum(1))]))
            elif given.is_ids:
                columns = array.reshape(rows, -1)
                data |= {name: np.ascontiguousarray(columns[:, c]) for c, name in enumerate(given.column_names())
                         if name in used}
            elif given.name in used:
                data[given.name] = array.reshape(rows, -1)
        return data, offsets

    def score(self, batch: Any, threads: int = 1) -> wr.Scores:
        """The scores of a batch that the model takes."""
        if self._bound is None:
            self._bound = self.model()
        data, offsets = self.columns(batch)
        return self._bound.score(data, offsets, threads=threads)

    def check(self, batch: Any) -> dict[str, Difference]:
        """How far the scores of a batch are from those of Keras, by output."""
        import keras
        arrays = self._arrays(batch)
        wanted = keras.tree.flatten(self._model([arrays[i.name] for i in self._inputs], training=False))
        scores = self.score(batch)
        differences = {}
        for name, tensor in zip(self.outputs, wanted):
            array = np.asarray(keras.ops.convert_to_numpy(tensor), np.float64)
            difference = np.abs(scores[name].reshape(-1) - array.reshape(-1))
            differences[name] = Difference(float(difference.max(initial=0)), float(difference.mean()))
        return differences

    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        names = [i.name for i in self._inputs]
        if not isinstance(batch, Mapping):
            batch = dict(zip(names, batch if isinstance(batch, (tuple, list)) else [batch]))
        return {name: np.asarray(batch[name]) for name in names}
