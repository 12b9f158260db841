# SPDX-License-Identifier: Apache-2.0
"""An export of a model of TensorFlow or Keras."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..exported import Exported
from ..lowering import cells
from ..lowering.inputs import Input


class ExportedModel(Exported):
    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        return self._trained.arrays(batch)

    def _wanted(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        self._trained.scores(batch)
        begin = time.perf_counter()
        made = self._trained.scores(batch)
        seconds = time.perf_counter() - begin
        return dict(zip(self.outputs, made)), seconds


def example_of(inputs: Sequence[Input], sequences: Mapping[str, cells.Sequence],
               lookups: Mapping[str, Mapping[str, int]],
               shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """A batch of random numbers and of ids that there are, histories with padding behind them."""
    random = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {}
    for given in inputs:
        shape = shapes[given.name]
        if given.kind == "mask":
            arrays[given.name] = np.arange(shape[1]) < random.integers(1, shape[1] + 1, (shape[0], 1))
            continue
        if not given.is_ids:
            arrays[given.name] = random.normal(size=shape).astype(np.float32)
            continue
        tables = [lookups.get(given.column_name(c), {}) for c in range(given.width)]
        rows = min([rows for of in tables for rows in of.values()], default=1)
        arrays[given.name] = random.integers(0, rows, shape)
        sequence = sequences.get(given.axis)
        if sequence is not None and sequence.mask is not None:
            name, padding = sequence.mask
            if name == given.name and padding is not None:
                lengths = random.integers(1, shape[1] + 1, (shape[0], 1))
                other = next((i for i in range(rows) if i != padding), padding)
                kept = np.where(arrays[name] == padding, other, arrays[name])
                arrays[name] = np.where(np.arange(shape[1]) < lengths, kept, padding)
    return arrays
