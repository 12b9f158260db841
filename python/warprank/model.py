# SPDX-License-Identifier: Apache-2.0
"""Plans, tables, models and contexts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from . import _core
from .columns import Input, columns_of, inputs_of
from .errors import refuse
from .weights import Path, Weights
from .whole import write_text

Outputs = Mapping[str, _core.Tensor]
ModelFunction = Callable[[_core.Builder], Outputs]
Precision = Literal["fp32", "bf16", "int8_weights", "automatic"]


def build(model: ModelFunction) -> _core.Graph:
    """Runs a model function and returns its graph; raises every problem found, together."""
    builder = _core.Builder()
    return builder.finish(list(model(builder).items()))


class Plan(_core.Plan):
    """A compiled graph: what is computed in which order. ``compile`` makes one."""

    def svg(self, path: Path | None = None) -> str:
        """The executed graph drawn by Graphviz' ``dot``, as text, and in a file where a path is given."""
        dot = shutil.which("dot")
        if dot is None:
            raise RuntimeError("Plan.svg: expected Graphviz' program dot on PATH, got none (apt-get install graphviz); "
                               "Plan.dot() is the text that it draws")
        done = subprocess.run([dot, "-Tsvg"], input=self.dot(), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"Plan.svg: {dot} failed: {done.stderr.strip()}")
        if path is not None:
            write_text(path, done.stdout)
        return done.stdout


def compile(model: _core.Graph | ModelFunction, capacities: Iterable[_core.Capacity] = (),
            passes: Mapping[str, bool] = {}) -> Plan:
    """A plan of a graph, or of a model function.

    capacities: what contexts reserve memory for; larger batches run, too
    passes: switches, all of which are on unless given; ``pass_names`` has them
    """
    graph = model if isinstance(model, _core.Graph) else build(model)
    return Plan(graph, list(capacities), dict(passes))


class Tables:
    """The embedding tables of a plan on one device, shared by all models that are bound to them."""

    def __init__(self, core: _core.Tables):
        self._core = core

    @staticmethod
    def load(plan: _core.Plan, source: Path | Weights, device: str = "host", *, updatable: bool = False,
             spare: float = 0.25, capacity: Mapping[str, int] = {}) -> Tables:
        """From a safetensors file, a folder of them and of images of hashed tables, or from Weights.

        A direct table "film" is the tensor "film" [rows, dim]; a hashed table "user" is "user.keys" I64 [n] and
        "user.rows" [n, dim]. Rows are F32, F16, BF16, or I8 with "<table>.scale" and "<table>.offset".

        device: "host", or with CUDA "cuda" or "cuda:<n>"
        updatable: rows may be changed while models look them up
        spare, capacity: room for more keys of updatable hashed tables, as a share, or by table as their number
        """
        options = (device, updatable, spare, dict(capacity))
        if isinstance(source, Weights):
            return Tables(_core.Tables.from_weights(plan, source._core, *options))
        return Tables(_core.Tables.load(plan, os.fspath(source), *options))

    def update(self, delta: Weights) -> dict[str, dict[str, int]]:
        """Changes rows while models look them up: "<table>.keys", "<table>.rows", of hashed tables "<table>.erase".

        Returns by table how many keys were updated, inserted, erased, absent, or found no room ("full").
        """
        return self._core.update(delta._core)

    def memory(self) -> dict[str, int]:
        """Bytes by what they are for."""
        return self._core.memory()


class Scores(Mapping[str, np.ndarray]):
    """The scores of a batch: by output an array of the rows of all requests, one behind the other.

    An output of one column is [rows], of more [rows, width]. Rows ``offsets[name][r]`` to ``offsets[name][r + 1]`` are
    those of request r; a request that was not scored has none, and ``failed`` says why, by its number.
    """

    def __init__(self, values: dict[str, np.ndarray], offsets: dict[str, np.ndarray], failed: dict[int, str]):
        self._values = {name: v[:, 0] if v.shape[1] == 1 else v for name, v in values.items()}
        self.offsets = offsets
        self.failed = failed

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, name: str, request: int) -> np.ndarray:
        """The rows of one request."""
        begin, end = self.offsets[name][request:request + 2]
        return self._values[name][begin:end]


def _raise(failed: list[tuple[int, str]]) -> None:
    _core.raise_problems([_core.Problem(f"request {r}", "one that can be scored", why) for r, why in failed[:20]])


def _scores(result: tuple[Any, Any, Any], errors: str) -> Scores:
    if errors not in ("raise", "keep"):
        refuse("errors", "one of raise, keep", repr(errors))
    values, offsets, failed = result
    if errors == "raise":
        _raise(failed)
    return Scores(values, offsets, dict(failed))


class Context:
    """Memory to run one batch of a model at a time, on the thread that calls and, with ``threads``, others of its own;
    made by Model.context."""

    def __init__(self, core: _core.Context, plan: Plan, inputs: Mapping[str, Input]):
        self._core = core
        self._inputs = inputs
        self.plan = plan

    def score(self, data: Any, offsets: Mapping[str, Any] = {}, errors: Literal["raise", "keep"] = "raise") -> Scores:
        """As Model.score, in one batch."""
        return _scores(self._core.score(columns_of(self.plan, data, offsets, self._inputs)), errors)

    def score_on_device(self, data: Any, offsets: Mapping[str, Any] = {}) -> dict[str, Any]:
        """As score, of a model on a GPU: each output, [rows, width], in the card's memory, for ``torch.from_dlpack`` and
        others that read DLPack. It is complete when this returns, and stays as it is. All requests are within one of the
        plan's capacities."""
        values, failed = self._core.score_on_device(columns_of(self.plan, data, offsets, self._inputs))
        _raise(failed)
        return values

    def tap(self, node: str) -> np.ndarray:
        """The value of a node in the last run, [rows of its axis, width]; of a context with keep_intermediates."""
        return self._core.tap(node)

    def counters(self) -> dict[str, dict[str, int]]:
        """By feature, what its ids met since the context was made: ids, unknown, out_of_range, padding, empty_bags."""
        return self._core.counters()

    def memory(self) -> dict[str, int]:
        """Bytes by what they are for."""
        return self._core.memory()


class Model:
    """A plan with its weights on the device of its tables. ``bind`` makes one. Threads may use it side by side."""

    def __init__(self, plan: Plan, weights: Weights, tables: Tables, extra: Literal["refuse", "ignore"] = "refuse",
                 precision: Precision = "fp32"):
        if extra not in ("refuse", "ignore"):
            refuse("extra", "one of refuse, ignore", repr(extra))
        self._core = _core.Model(plan, weights._core, tables._core, extra == "ignore", precision)
        self._inputs = inputs_of(plan)
        self.plan = plan
        self.tables = tables

    def score(self, data: Any, offsets: Mapping[str, Any] = {}, *, threads: int = 1, rows_per_batch: int = 4096,
              errors: Literal["raise", "keep"] = "raise") -> Scores:
        """Scores many requests, in batches of about ``rows_per_batch`` rows on all axes together.

        data: by input a column, or a pandas DataFrame or PyArrow Table, of whose columns those that are inputs are
            read. An input of the outermost axis has one value, or ``width`` values, for each request. Others are
            ragged: (values, offsets), an Arrow list, a list or a pandas column of sequences, or an array with one
            dimension more for each axis in between. Contiguous ids of 64 bits and values of FP32 are read in place.
        offsets: by axis, for inputs that are given as values alone: where the rows of each row of its parent begin
        threads: 0 is one for each processor
        errors: "keep": requests that are wrong get no scores and are told by Scores.failed

        Inputs that are not given take their defaults. Other threads of Python go on meanwhile.
        """
        if threads < 0 or rows_per_batch < 1:
            refuse("Model.score", "threads of 0 or more and rows_per_batch of 1 or more",
                   f"{threads} and {rows_per_batch}")
        columns = columns_of(self.plan, data, offsets, self._inputs)
        return _scores(self._core.score(columns, threads or os.cpu_count() or 1, rows_per_batch), errors)

    def context(self, keep_intermediates: bool = False, threads: int = 1) -> Context:
        """A context of one's own: to see intermediate values (``tap``), or what features met (``counters``).

        threads: of one batch on the host, for the latency of large requests; no more than there are processors
        """
        return Context(self._core.context(keep_intermediates, threads), self.plan, self._inputs)

    def counters(self) -> dict[str, dict[str, int]]:
        """By feature what ids met in all calls of `score` that have ended: ids, unknown, out_of_range, padding,
        empty_bags."""
        return self._core.counters()

    def describe(self) -> str:
        """On the host the instruction set and the precision that binding took, and why."""
        return self._core.describe()

    def memory(self) -> dict[str, int]:
        """Bytes by what they are for, its tables' and its own."""
        return self._core.memory()


def bind(plan: Plan, weights: Weights, tables: Tables, extra: Literal["refuse", "ignore"] = "refuse",
         precision: Precision = "fp32") -> Model:
    """Packs the dense weights for the device that the tables are on.

    precision: of products on the host, in layers, attention and dots. "bf16" rounds both values to BF16, where the
        processor has AVX512_BF16; "automatic" is the faster one; "int8_weights" multiplies as that and keeps weights of
        layers in INT8, as a GPU does then, too. A GPU ignores the others.

    Raises every tensor that is missing, mis-shaped or not asked for; with ``extra="ignore"`` the last are left out.
    """
    return Model(plan, weights, tables, extra, precision)


def load(folder: Path, device: str = "host", precision: Precision = "fp32") -> Model:
    """The model of a folder: graph.json, dense.safetensors, and tables.safetensors or a folder tables."""
    path = os.fspath(folder)
    plan = compile(_core.Graph.load(os.path.join(path, "graph.json")))
    in_folder = os.path.join(path, "tables")
    tables = Tables.load(plan, in_folder if os.path.isdir(in_folder) else in_folder + ".safetensors", device)
    return bind(plan, Weights.open(os.path.join(path, "dense.safetensors")), tables, precision=precision)
