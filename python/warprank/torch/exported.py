# SPDX-License-Identifier: Apache-2.0
"""What an export makes: a graph, its weights and tables, and how the module's batches become columns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import warprank as wr

from ..folder import Samples, write_folder
from ..weights import Path
from .cells import Sequence
from .program import Input, position_name
from .rows import RowError


@dataclass
class Difference:
    """Between the scores of the exported model and those of the module, over one output."""

    largest: float
    mean: float


@dataclass
class Exported:
    """A module as a graph with weights and tables, each by the module's names.

    ``row_errors`` says by table what its rows lost where they are not FP32.
    """

    graph: wr.Graph
    weights: dict[str, np.ndarray]
    tables: dict[str, np.ndarray]
    row_errors: dict[str, RowError]
    outputs: list[str]
    _inputs: list[Input]
    _sequences: dict[str, Sequence]  # by axis
    _hashed: dict[str, set[str | None]]  # by input the hashed tables that it looks up
    _module: torch.nn.Module
    _example: Any
    _model: wr.Model | None = field(default=None, repr=False)

    def save(self, folder: Path, batch: Any = None) -> None:
        """Writes graph.json, dense.safetensors and tables.safetensors, which warprank.load and servers read, and of a
        batch (the example unless given) samples.safetensors, of which ``warprank check`` makes a comparison."""
        write_folder(folder, self.graph, self.weights, self.tables, self.samples(batch))

    def samples(self, batch: Any = None) -> Samples:
        """A batch as requests, with the module's scores and its time."""
        batch = self._example if batch is None else batch
        data, offsets = self.columns(batch)
        wanted, seconds = self._wanted(batch)
        return Samples(data, offsets, wanted, seconds=seconds)

    def model(self, device: str = "host") -> wr.Model:
        """The model, bound to the trained weights."""
        plan = wr.compile(self.graph)
        tables = wr.Tables.load(plan, wr.Weights.from_arrays(self.tables), device)
        return wr.bind(plan, wr.Weights.from_arrays(self.weights), tables)

    def columns(self, batch: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A batch that the module takes, as columns and offsets for Model.score: one request for each row."""
        arrays = {given.name: tensor.detach().cpu().numpy() for given, tensor in zip(self._inputs, leaves(batch))}
        rows = len(next(a for i, a in zip(self._inputs, arrays.values()) if not i.is_flat))
        plan = wr.compile(self.graph)
        used = {i.name for i in plan.ids} | {d.name for d in plan.dense}
        kept = {axis: self._events(sequence, arrays, rows) for axis, sequence in self._sequences.items()}
        data: dict[str, Any] = {}
        offsets: dict[str, np.ndarray] = {}
        for given in self._inputs:
            array = arrays[given.name]
            axes = given.axis.split("/")[1:]
            for axis in axes[:-1] if given.is_events else axes:
                offsets[axis] = np.arange(rows + 1, dtype=np.int64)
            if given.is_events:
                data |= self._of_events(given, array, kept, arrays)
            elif given.is_bag:
                array = array.reshape(rows, -1)
                in_bag = np.ones(array.shape, bool) if given.padding is None else array != given.padding
                data[given.name] = _ragged(array, in_bag)
            elif given.is_split:
                columns = array.reshape(rows, -1)
                data |= {given.column_name(c): np.ascontiguousarray(columns[:, c]) for c in range(given.width)}
            elif not given.is_ids:
                data[given.name] = array.reshape(rows, given.width)
        for axis, events in kept.items():
            places = np.broadcast_to(np.arange(events.shape[1]), events.shape)
            data[position_name(axis)] = _ragged(places, events)
        return {name: self._hashed_ids(name, column) for name, column in data.items() if name in used}, offsets

    @staticmethod
    def _events(sequence: Sequence, arrays: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """[rows, length]: which of them are events, and not padding."""
        if sequence.mask is None:
            return np.ones((rows, sequence.length), bool)
        name, padding = sequence.mask
        array = arrays[name]
        if padding is not None:
            return array != padding
        return array if array.dtype == bool else np.arange(sequence.length) < array[:, None]

    @staticmethod
    def _of_events(given: Input, array: np.ndarray, kept: Mapping[str, np.ndarray],
                   arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        if given.is_flat:
            offsets = arrays[given.offsets] if given.offsets is not None else np.zeros(0, np.int64)
            return {given.name: wr.Ragged(array, offsets if given.has_end else np.append(offsets, len(array)))}
        if given.is_lengths or array.dtype == bool:
            return {}
        events = kept[given.axis]
        columns = array.reshape(*events.shape, -1)
        if not given.is_ids:
            return {given.name: _ragged(columns, events)}
        return {given.column_name(c): _ragged(columns[:, :, c], events) for c in range(given.width)}

    def _hashed_ids(self, name: str, column: Any) -> Any:
        """Rows of a hashed table as its ids."""
        table = next(iter(self._hashed.get(name, {None})))
        if table is None:
            return column
        keys = self.tables[f"{table}.keys"]
        return wr.Ragged(keys[column.values], column.offsets) if isinstance(column, wr.Ragged) else keys[column]

    def score(self, batch: Any, threads: int = 1) -> wr.Scores:
        """The scores of a batch that the module takes."""
        if self._model is None:
            self._model = self.model()
        data, offsets = self.columns(batch)
        return self._model.score(data, offsets, threads=threads)

    def check(self, batch: Any = None) -> dict[str, Difference]:
        """How far the scores of a batch (the example unless given) are from the module's, by output."""
        batch = self._example if batch is None else batch
        wanted, _ = self._wanted(batch)
        scores = self.score(batch)
        differences = {}
        for name, array in wanted.items():
            difference = np.abs(scores[name].reshape(-1).astype(np.float64) - array.reshape(-1))
            differences[name] = Difference(float(difference.max(initial=0)), float(difference.mean()))
        return differences

    def _wanted(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        """The module's scores by output, and the seconds that it took."""
        args, kwargs = arguments(batch)
        with torch.no_grad(), evaluating(self._module):
            self._module(*args, **kwargs)
            begin = time.perf_counter()
            made = self._module(*args, **kwargs)
            seconds = time.perf_counter() - begin
        tensors = torch.utils._pytree.tree_leaves(made)
        return {name: t.to(torch.float64).numpy() for name, t in zip(self.outputs, tensors)}, seconds


def _ragged(array: np.ndarray, kept: np.ndarray) -> wr.Ragged:
    """Of [rows, length, ..] those elements that are kept."""
    return wr.Ragged(np.ascontiguousarray(array[kept]), np.concatenate([[0], np.cumsum(kept.sum(1))]))


class evaluating:
    """A module in evaluation, and afterwards each part of it as it was."""

    def __init__(self, module: torch.nn.Module):
        self._module = module

    def __enter__(self) -> None:
        self._training: Mapping[torch.nn.Module, bool] = {m: m.training for m in self._module.modules()}
        for module in self._training:
            module.training = False

    def __exit__(self, *_: Any) -> None:
        for module, training in self._training.items():
            module.training = training


def arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a module is called with: a tensor, a tuple of arguments, or arguments by name."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}


def leaves(batch: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(arguments(batch)) if isinstance(x, torch.Tensor)]
