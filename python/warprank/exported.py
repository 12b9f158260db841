# SPDX-License-Identifier: Apache-2.0
"""What an export of a framework's model makes: a graph, its weights and tables, and how batches become columns."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from . import _core
from .columns import Ragged
from .errors import refuse
from .folder import Samples, write_folder
from .lowering import inputs
from .lowering.cells import Sequence
from .lowering.inputs import Input
from .model import Model, Scores, Tables, bind, compile
from .raw import Requests
from .rows import RowError
from .transforms import Transforms
from .weights import Path, Weights


@dataclass
class Difference:
    """Between the scores of the exported model and those of the framework, over one output."""

    largest: float
    mean: float


@dataclass
class Exported(ABC):
    """A model as a graph with weights and tables, each by the model's names.

    ``row_errors`` says by table what its rows lost where they are not FP32. ``transforms``, where there are any, make
    inputs of the columns of logs; they may be set, so that a folder has them.
    """

    graph: _core.Graph
    weights: dict[str, np.ndarray]
    tables: dict[str, np.ndarray]
    row_errors: dict[str, RowError]
    outputs: list[str]
    _inputs: list[Input]
    _sequences: dict[str, Sequence]  # by axis
    _lookups: dict[str, dict[str, int]]  # by input the tables that it looks up, with their rows
    _trained: Any
    _example: Any  # None: there is none
    transforms: Transforms | None = field(default=None, kw_only=True)
    _bound: Model | None = field(default=None, repr=False, kw_only=True)

    def save(self, folder: Path, batch: Any = None) -> None:
        """Writes graph.json, dense.safetensors and tables.safetensors, which warprank.load and servers read, and of a
        batch (the example unless given) samples.safetensors, of which ``warprank check`` makes a comparison, and
        transforms.json. Where that fails, nothing is left behind, or what there was."""
        Requests(compile(self.graph), self.transforms)  # which tells what of the transforms does not fit
        samples = None if batch is None and self._example is None else self.samples(batch)
        write_folder(folder, self.graph, self.weights, self.tables, samples, self.transforms)

    def samples(self, batch: Any = None) -> Samples:
        """A batch as requests, with the framework's scores and its time."""
        batch = self._batch(batch)
        data, offsets = self.columns(batch)
        wanted, seconds = self._expected(batch)
        return Samples(data, offsets, wanted, seconds=seconds)

    def model(self, device: str = "host") -> Model:
        """The model, bound to the trained weights."""
        plan = compile(self.graph)
        tables = Tables.load(plan, Weights.from_arrays(self.tables), device)
        return bind(plan, Weights.from_arrays(self.weights), tables)

    def columns(self, batch: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A batch that the model takes, as columns and offsets for Model.score: one request for each row."""
        data, offsets = inputs.columns(self._inputs, self._sequences, self._lookups, self._arrays(batch))
        return {name: self._hashed_ids(name, column) for name, column in data.items() if name in self._used}, offsets

    @cached_property
    def _used(self) -> set[str]:
        """The inputs that the plan has."""
        plan = compile(self.graph)
        return {i.name for i in plan.ids} | {d.name for d in plan.dense}

    def score(self, batch: Any, threads: int = 1) -> Scores:
        """The scores of a batch that the model takes."""
        if self._bound is None:
            self._bound = self.model()
        data, offsets = self.columns(batch)
        return self._bound.score(data, offsets, threads=threads)

    def check(self, batch: Any = None) -> dict[str, Difference]:
        """How far the scores of a batch (the example unless given) are from the framework's, by output."""
        batch = self._batch(batch)
        self.columns(batch)  # which tells what of the batch does not fit
        wanted, _ = self._expected(batch)
        scores = self.score(batch)
        differences = {}
        for name, array in wanted.items():
            if scores[name].size != array.size:
                refuse(f"output '{name}'", "values of rows, which can be compared with the framework's",
                       f"{scores[name].size} values of events for {array.size}, of which some are of padding")
            difference = np.abs(scores[name].reshape(-1).astype(np.float64) - array.reshape(-1))
            differences[name] = Difference(float(difference.max(initial=0)), float(difference.mean()))
        return differences

    def _batch(self, batch: Any) -> Any:
        if batch is None and self._example is None:
            refuse("batch", "one, since the export had no example", "none")
        return self._example if batch is None else batch

    def _expected(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        try:
            return self._wanted(batch)
        except Exception as error:  # whatever the framework raises, of an id beyond a table for one
            text = str(error).strip().splitlines()
            refuse("batch", "one that the framework's model takes",
                   f"{type(error).__name__}: {text[0] if text else ''}")

    def _hashed_ids(self, name: str, column: Any) -> Any:
        """Rows of a hashed table as its ids."""
        table = next((t for t in self._lookups.get(name, ()) if f"{t}.keys" in self.tables), None)
        if table is None:
            return column
        keys = self.tables[f"{table}.keys"]
        return Ragged(keys[column.values], column.offsets) if isinstance(column, Ragged) else keys[column]

    @abstractmethod
    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        """A batch by input."""

    @abstractmethod
    def _wanted(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        """The framework's scores by output, and the seconds that it took."""


class ExportedModel(Exported):
    """Of a trained model that has a batch's `arrays` by input, and its `scores` in the order of the outputs."""

    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        return self._trained.arrays(batch)

    def _wanted(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        self._trained.scores(batch)
        begin = time.perf_counter()
        made = self._trained.scores(batch)
        seconds = time.perf_counter() - begin
        return dict(zip(self.outputs, made)), seconds
