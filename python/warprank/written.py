# SPDX-License-Identifier: Apache-2.0
"""Weights and tables of a trained model, of whichever framework, for a graph that is written by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from . import _core
from .errors import Problems, refuse
from .model import Model, ModelFunction, Plan, Tables, bind, compile
from .rows import RowError, RowType, convert_tables, hashed_keys
from .weights import Path, Weights, check_finite, write_safetensors
from .whole import replacing

FILES = ("dense.safetensors", "tables.safetensors")


@dataclass
class NamedWeights:
    """What a graph reads, by its names, as a model learned it. ``row_errors`` says by table what its rows lost where
    they are not FP32."""

    plan: Plan
    weights: dict[str, np.ndarray]
    tables: dict[str, np.ndarray]
    row_errors: dict[str, RowError]

    def save(self, folder: Path) -> None:
        """Writes dense.safetensors and tables.safetensors into a folder, all at once; its other files stay. What fails
        leaves nothing behind, or what there was."""
        with replacing(folder, FILES) as partial:
            for name, arrays in zip(FILES, (self.weights, self.tables)):
                write_safetensors(os.path.join(partial, name), arrays)

    def model(self, device: str = "host") -> Model:
        """The graph, bound to them."""
        tables = Tables.load(self.plan, Weights.from_arrays(self.tables), device)
        return bind(self.plan, Weights.from_arrays(self.weights), tables)


@dataclass
class Framework:
    """How a framework names and stores what it learns."""

    tensor: str  # what messages call one, "tensor"
    model: str  # and what has them, "module"
    array: Callable[[Any], np.ndarray]  # a copy in FP32
    names: Callable[[str], list[str]]  # of what a graph has by a name, where that is another
    is_in_out: bool  # matrices are [in, out]


def named_weights(learned: Mapping[str, Any], framework: Framework, graph: Plan | _core.Graph | ModelFunction, *,
                  names: Mapping[str, str], hashed: Mapping[str, Any], rows: RowType | Mapping[str, RowType],
                  extra: Literal["refuse", "ignore"]) -> NamedWeights:
    """What a graph reads of the floating-point tensors that a model learned, which are given by the model's names."""
    if extra not in ("refuse", "ignore"):
        refuse("extra", "one of refuse, ignore", repr(extra))
    plan = graph if isinstance(graph, Plan) else compile(graph)
    found = _Learned(learned, framework, names)
    weights = {p.name: found.parameter(p) for p in plan.parameters}
    tables: dict[str, np.ndarray] = {}
    for table in plan.tables:
        array = found.array(table.name, [table.rows or None, table.dim])
        keys = found.keys(table.name, hashed, array) if table.hashed else None
        if array is not None and not table.hashed:
            tables[table.name] = array
        if array is not None and keys is not None:
            tables |= {f"{table.name}.keys": keys, f"{table.name}.rows": array}
    table_names = [t.name for t in plan.tables]
    found.check_names(names, [*weights, *table_names], "a parameter or a table of the graph")
    found.check_names(hashed, [t.name for t in plan.tables if t.hashed], "a hashed table of the graph")
    if not isinstance(rows, str):
        found.check_names(rows, table_names, "a table of the graph, whose rows have a type")
        rows = {name: type for name, type in rows.items() if {name, f"{name}.rows"} & tables.keys()}
    if extra == "refuse":
        found.check_all_are_read()
    tables, errors = convert_tables(tables, rows, found.problems)
    found.problems.raise_if_any()
    return NamedWeights(plan, {n: a for n, a in weights.items() if a is not None}, tables, errors)


class _Learned:
    """What a model learned, and which of it was read."""

    def __init__(self, tensors: Mapping[str, Any], framework: Framework, names: Mapping[str, str]):
        self.problems = Problems()
        self._tensors = tensors
        self._framework = framework
        self._names = names
        self._read: set[str] = set()

    def parameter(self, wanted: Any) -> np.ndarray | None:
        """None: there is none, or a problem."""
        if wanted.optional and self._path(wanted.name) not in self._tensors and wanted.name not in self._names:
            return None
        shape = list(wanted.shape)
        is_swapped = wanted.is_matrix and len(shape) > 1 and self._framework.is_in_out
        if is_swapped:
            shape[-2:] = shape[:-3:-1]
        array = self.array(wanted.name, shape)
        return np.ascontiguousarray(array.swapaxes(-1, -2)) if is_swapped and array is not None else array

    def array(self, name: str, shape: list[int | None]) -> np.ndarray | None:
        """What the graph calls `name`; None: there is a problem."""
        kind, path = self._framework.tensor, self._path(name)
        if path not in self._tensors:
            near = get_close_matches(path, self._tensors, 1)
            self.problems.add(f"'{name}'", f"a {kind} '{path}' of the {self._framework.model}",
                              "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
            return None
        self._read.add(path)
        tensor = self._tensors[path]
        if len(tensor.shape) != len(shape) or any(n is not None and n != m for n, m in zip(shape, tensor.shape)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            self.problems.add(f"'{name}': {kind} '{path}'", f"shape [{wanted}]", str(list(tensor.shape)))
            return None
        array = self._framework.array(tensor)
        check_finite(f"'{name}': {kind} '{path}'", array, self.problems)
        return array

    def _path(self, name: str) -> str:
        """The model's name of what the graph calls `name`."""
        if name in self._names:
            return self._names[name]
        return next((n for n in (name, *self._framework.names(name)) if n in self._tensors), name)

    def keys(self, name: str, hashed: Mapping[str, Any], rows: np.ndarray | None) -> np.ndarray | None:
        if name not in hashed:
            self.problems.add(f"hashed: '{name}'", "the ids of its rows", "none")
            return None
        return hashed_keys(name, hashed[name], None if rows is None else len(rows), self.problems)

    def check_names(self, given: Mapping[str, Any], known: list[str], what: str) -> None:
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                self.problems.add(f"'{name}'", what,
                                  "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))

    def check_all_are_read(self) -> None:
        kind, model = self._framework.tensor, self._framework.model
        for path in self._tensors:
            if path not in self._read:
                self.problems.add(f"{kind} '{path}' of the {model}", "one that the graph reads, or extra='ignore'",
                                  "one that it does not")
