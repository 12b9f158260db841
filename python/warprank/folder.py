# SPDX-License-Identifier: Apache-2.0
"""Folders of models: written whole or not at all, with requests and the scores that they are to have.

graph.json, dense.safetensors, tables.safetensors: what warprank.load and servers read. samples.safetensors, where it is
there, has requests as "input.<input>" with "input.<input>.offsets" or "axis.<axis>.offsets", and what the trained
framework made of them as "expected.<output>"; "label.<output>" where there are labels; "seconds" that it took.
transforms.json, where it is there, makes inputs of the columns of logs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core, metrics
from .columns import Ragged
from .errors import Problems, refuse
from .model import Model, Scores
from .transforms import Transforms
from .weights import Path, Weights, check_finite, write_safetensors
from .whole import replacing

SAMPLES, TRANSFORMS = "samples.safetensors", "transforms.json"
FILES = ("graph.json", "dense.safetensors", "tables.safetensors", SAMPLES, TRANSFORMS)


@dataclass
class Samples:
    """Requests, and the scores that the framework gives them."""

    data: dict[str, Any]
    offsets: dict[str, np.ndarray] = field(default_factory=dict)
    expected: dict[str, np.ndarray] = field(default_factory=dict)  # [rows] or [rows, width] by output
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float | None = None  # that the framework took

    def save(self, path: Path) -> None:
        arrays: dict[str, np.ndarray] = {}
        for name, column in self.data.items():
            values = column.values if isinstance(column, Ragged) else column
            arrays[f"input.{name}"] = np.ascontiguousarray(
                values, np.int64 if np.asarray(values).dtype.kind in "iu" else np.float32)
            if isinstance(column, Ragged):
                arrays[f"input.{name}.offsets"] = np.ascontiguousarray(column.offsets, np.int64)
        arrays |= {f"axis.{axis}.offsets": np.ascontiguousarray(o, np.int64) for axis, o in self.offsets.items()}
        arrays |= {f"expected.{name}": np.ascontiguousarray(a, np.float32) for name, a in self.expected.items()}
        arrays |= {f"label.{name}": np.ascontiguousarray(a, np.float32) for name, a in self.labels.items()}
        if self.seconds is not None:
            arrays["seconds"] = np.array([self.seconds], np.float32)
        write_safetensors(path, arrays)

    @staticmethod
    def open(path: Path) -> Samples:
        weights = Weights.open(path)
        names = set(weights.names)

        def of(kind: str) -> dict[str, np.ndarray]:
            return {n.removeprefix(kind): weights[n] for n in sorted(names) if n.startswith(kind)}
        inputs = of("input.")
        data = {name: Ragged(array, inputs[f"{name}.offsets"]) if f"{name}.offsets" in inputs else array
                for name, array in inputs.items() if not name.endswith(".offsets")}
        offsets = {axis.removesuffix(".offsets"): array for axis, array in of("axis.").items()}
        seconds = float(weights["seconds"][0]) if "seconds" in names else None
        return Samples(data, offsets, of("expected."), of("label."), seconds)


def write_folder(folder: Path, graph: _core.Graph, weights: Mapping[str, Any], tables: Mapping[str, Any],
                 samples: Samples | None = None, transforms: Transforms | None = None) -> None:
    """Writes a folder of a model; of one that is there, the model is replaced, all at once, and other files stay."""
    images = os.path.join(os.fspath(folder), "tables")
    if os.path.exists(images):
        refuse(f"folder '{os.fspath(folder)}'", "one without 'tables', which would be read in the place of the new "
               "tables.safetensors", "one that has it")
    with replacing(folder, FILES) as partial:
        write_safetensors(os.path.join(partial, "dense.safetensors"), weights)
        write_safetensors(os.path.join(partial, "tables.safetensors"), tables)
        if samples is not None:
            samples.save(os.path.join(partial, SAMPLES))
        if transforms is not None:
            transforms.save(os.path.join(partial, TRANSFORMS))
        graph.save(os.path.join(partial, "graph.json"))


@dataclass
class Checked:
    """Of one output: how far scores are from the expected ones, and how good both are."""

    rows: int
    not_finite: int = 0  # scores
    largest: float | None = None  # None: nothing was expected
    mean: float | None = None
    auc: float | None = None
    expected_auc: float | None = None


def check(model: Model, samples: Samples) -> dict[str, Checked]:
    """Compares the scores of samples with the expected ones, by output."""
    scores = model.score(samples.data, samples.offsets)
    _check_fit(scores, samples)
    found = {}
    for name in scores:
        values = scores[name].reshape(-1).astype(np.float64)
        result = found[name] = Checked(len(scores[name]), int(np.count_nonzero(~np.isfinite(values))))
        expected = samples.expected.get(name)
        if expected is not None:
            difference = np.abs(values - expected.reshape(-1))
            result.largest, result.mean = float(difference.max(initial=0)), float(difference.mean())
        labels = samples.labels.get(name)
        if labels is not None:
            result.auc = metrics.auc(labels, values)
            result.expected_auc = None if expected is None else metrics.auc(labels, expected.reshape(-1))
    return found


def _check_fit(scores: Scores, samples: Samples) -> None:
    """That what is expected, and labels, are of outputs, as many as there are scores, and finite."""
    problems = Problems()
    for kind, arrays in (("expected scores", samples.expected), ("labels", samples.labels)):
        for name, array in arrays.items():
            if name not in scores:
                problems.add(f"{kind} '{name}'", "those of an output, " + ", ".join(sorted(scores)),
                             "none of that name")
            elif array.size != scores[name].size:
                problems.add(f"{kind} '{name}'", f"{scores[name].size}, as there are scores", str(array.size))
            else:
                check_finite(f"{kind} '{name}'", array, problems)
    problems.raise_if_any()


def seconds_to_score(model: Model, samples: Samples, threads: int = 1, times: int = 5) -> float:
    """The least time of several."""
    def once() -> float:
        begin = time.perf_counter()
        model.score(samples.data, samples.offsets, threads=threads)
        return time.perf_counter() - begin
    return min(once() for _ in range(times))


__all__ = ["Checked", "Samples", "Scores", "check", "seconds_to_score", "write_folder"]
