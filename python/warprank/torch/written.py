# SPDX-License-Identifier: Apache-2.0
"""Weights and tables of a module for a graph that is written by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
import torch

import warprank as wr

from ..errors import Problems, refuse
from ..rows import RowError, RowType, convert_tables
from ..weights import Path
from ..whole import replacing

FILES = ("dense.safetensors", "tables.safetensors")


@dataclass
class NamedWeights:
    """What a graph reads, by its names, as a module learned it. ``row_errors`` says by table what its rows lost where
    they are not FP32."""

    plan: wr.Plan
    weights: dict[str, np.ndarray]
    tables: dict[str, np.ndarray]
    row_errors: dict[str, RowError]

    def save(self, folder: Path) -> None:
        """Writes dense.safetensors and tables.safetensors into a folder, all at once; its other files stay. What fails
        leaves nothing behind, or what there was."""
        with replacing(folder, FILES) as partial:
            for name, arrays in zip(FILES, (self.weights, self.tables)):
                wr.write_safetensors(os.path.join(partial, name), arrays)

    def model(self, device: str = "host") -> wr.Model:
        """The graph, bound to them."""
        tables = wr.Tables.load(self.plan, wr.Weights.from_arrays(self.tables), device)
        return wr.bind(self.plan, wr.Weights.from_arrays(self.weights), tables)


def weights_of(module: torch.nn.Module, graph: wr.Plan | wr.Graph | Callable[[wr.Builder], Any], *,
               names: Mapping[str, str] = {}, hashed: Mapping[str, Any] = {},
               rows: RowType | Mapping[str, RowType] = "f32",
               extra: Literal["refuse", "ignore"] = "refuse") -> NamedWeights:
    """What a graph that is written by hand reads, of the parameters and buffers of a module.

    graph: a plan, a graph or the function that makes it
    names: by the name of a parameter or a table of the graph the module's, "head.weight": "top.4.weight"; where they
        are the same, nothing. A table "film" is the module's "film", or its "film.weight".
    hashed: by hashed table the 64-bit ids of its rows, in their order
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    extra: "ignore": the module may have floating-point tensors that the graph does not read

    Raises everything that is missing, mis-shaped, not finite or not read together, by its path in the module.
    """
    if extra not in ("refuse", "ignore"):
        refuse("extra", "one of refuse, ignore", repr(extra))
    plan = graph if isinstance(graph, wr.Plan) else wr.compile(graph)
    found = _Learned(module, names)
    weights = {p.name: found.array(p.name, list(p.shape)) for p in plan.parameters}
    tables: dict[str, np.ndarray] = {}
    for table in plan.tables:
        array = found.array(table.name, [table.rows or None, table.dim], f"{table.name}.weight")
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
    """The floating-point parameters and buffers of a module, and which of them were read."""

    def __init__(self, module: torch.nn.Module, names: Mapping[str, str]):
        self.problems = Problems()
        self._tensors = {name: t.detach().cpu() for name, t in module.state_dict().items() if t.is_floating_point()}
        self._names = names
        self._read: set[str] = set()

    def array(self, name: str, shape: list[int | None], otherwise: str = "") -> np.ndarray | None:
        """What the graph calls `name`; None: there is a problem."""
        path = self._names.get(name, name if name in self._tensors or otherwise not in self._tensors else otherwise)
        if path not in self._tensors:
            near = get_close_matches(path, self._tensors, 1)
            self.problems.add(f"'{name}'", f"a tensor '{path}' of the module",
                              "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
            return None
        self._read.add(path)
        tensor = self._tensors[path]
        if len(tensor.shape) != len(shape) or any(n is not None and n != m for n, m in zip(shape, tensor.shape)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            self.problems.add(f"'{name}': tensor '{path}'", f"shape [{wanted}]", str(list(tensor.shape)))
            return None
        array = tensor.to(torch.float32).numpy().copy()
        wrong = np.flatnonzero(~np.isfinite(array))
        if len(wrong):
            self.problems.add(f"'{name}': tensor '{path}', element {wrong[0]}", "a finite number",
                              str(array.flat[wrong[0]]))
        return array

    def keys(self, name: str, hashed: Mapping[str, Any], rows: np.ndarray | None) -> np.ndarray | None:
        if name not in hashed:
            self.problems.add(f"hashed: '{name}'", "the ids of its rows", "none")
            return None
        keys = np.asarray(hashed[name])
        values, counts = np.unique(keys, return_counts=True)
        if keys.ndim != 1 or keys.dtype.kind not in "iu" or (counts > 1).any():
            self.problems.add(f"hashed: '{name}'", "a list of ids, each once",
                              f"{values[counts > 1][0]} twice" if (counts > 1).any() else
                              f"{keys.dtype} values of shape {list(keys.shape)}")
        elif rows is not None and len(keys) != len(rows):
            self.problems.add(f"hashed: '{name}'", f"{len(rows)} ids, one for each row of the table", str(len(keys)))
        return keys.astype(np.int64)

    def check_names(self, given: Mapping[str, Any], known: list[str], what: str) -> None:
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                self.problems.add(f"'{name}'", what,
                                  "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))

    def check_all_are_read(self) -> None:
        for path in self._tensors:
            if path not in self._read:
                self.problems.add(f"tensor '{path}' of the module", "one that the graph reads, or extra='ignore'",
                                  "one that it does not")
