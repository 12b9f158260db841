# SPDX-License-Identifier: Apache-2.0
"""Batches for models that come without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from . import cells
from .inputs import Input, events_of

BATCH, LENGTH = 11, 7  # rows, and events of sequences that may have any number


def example_of(inputs: Sequence[Input], sequences: Mapping[str, cells.Sequence],
               lookups: Mapping[str, Mapping[str, int]],
               shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """A batch of random numbers and of ids that there are, histories with padding behind them."""
    random = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {}
    for given in inputs:
        shape, sequence = shapes[given.name], sequences.get(given.axis)
        tables = [lookups.get(given.column_name(c), {}) for c in range(given.width)]
        rows = min([rows for of in tables for rows in of.values()], default=1)
        if given.kind == "mask":
            arrays[given.name] = np.arange(shape[1]) < random.integers(1, shape[1] + 1, (shape[0], 1))
        elif not given.is_ids:
            arrays[given.name] = random.normal(size=shape).astype(np.float32)
            for column in given.ids_columns:
                arrays[given.name].reshape(shape[0], -1)[:, column] = random.integers(
                    0, min(tables[column].values()), shape[0])
        elif given.is_lengths and sequence is not None:
            arrays[given.name] = random.integers(1, sequence.length + 1, shape)
        else:
            arrays[given.name] = random.integers(0, rows, shape)
        if sequence is not None and sequence.mask is not None:
            name, padding = sequence.mask
            if name == given.name and padding is not None:
                lengths = random.integers(1, shape[1] + 1, (shape[0], 1))
                other = next((i for i in range(rows) if i != padding), padding)
                kept = np.where(arrays[name] == padding, other, arrays[name])
                arrays[name] = np.where(np.arange(shape[1]) < lengths, kept, padding)
    for given in inputs:
        sequence = sequences.get(given.axis)
        if given.is_lengths and sequence is not None and sequence.mask is not None and sequence.mask[0] != given.name:
            shape = shapes[given.name]
            arrays[given.name] = events_of(sequence, sequence.length, arrays, shape[0]).sum(1).reshape(shape)
    return arrays
