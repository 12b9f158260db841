# SPDX-License-Identifier: Apache-2.0
"""Small linear layers that together are one: columns of several, and what is left of them without their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import num_runs, source_numbers
from .events import Layer
from .linears import linear_row

if TYPE_CHECKING:
    from .program import Program

MOST_NUMBERS, MOST_TIMES = 1 << 14, 16  # of a weight, and how many more those are than the layers' own


def without_mean(p: Program, a: Any, b: Any) -> np.ndarray | None:
    """The cells of a - b, columns of linear layers and means of such, as layers; None: they are others."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or len(a) != len(b):
        return None
    terms = []
    for cell in b.tolist():
        source, column = p.sources.of(cell)
        if source.kind != "mean":
            return None
        terms.append(source.data[column])
    if len({len(each) for each in terms}) > 1 or not _are_of_layers(p, a, *terms):
        return None
    made = np.empty_like(a)
    by_terms: dict[bytes, list[int]] = {}  # columns whose means are of the same layers
    for column, each in enumerate(terms):
        by_terms.setdefault(np.unique(source_numbers(each)).tobytes(), []).append(column)
    for columns in by_terms.values():
        subtracted = np.array([terms[c] for c in columns])
        composed = _composed(p, np.stack([a[columns], *subtracted.T]),
                             np.array([1.0] + [-1 / subtracted.shape[1]] * subtracted.shape[1]))
        if composed is None:
            return None
        made[columns] = linear_row(p, composed)
    return made


def side_by_side(p: Program, cells: np.ndarray) -> np.ndarray:
    """Columns that lie in several linear layers as those of one; others as they are."""
    if num_runs(cells) == 1 or not _are_of_layers(p, cells):
        return cells
    composed = _composed(p, cells[None], np.ones(1))
    return cells if composed is None else linear_row(p, composed)


def _are_of_layers(p: Program, *cells: np.ndarray) -> bool:
    return all(p.sources.all[number].kind == "linear" for number in np.unique(source_numbers(np.concatenate(cells))))


def _composed(p: Program, terms: np.ndarray, factors: np.ndarray) -> Layer | None:
    """The layer of sums of columns of layers [terms, out] times factors; None: it is so much larger that it would be
    slower."""
    parts = [[p.sources.of(cell) for cell in row] for row in terms.tolist()]
    layers = {id(source): source.data for row in parts for source, _ in row}.values()
    inputs, places = np.unique(np.concatenate([layer.cells for layer in layers]), return_inverse=True)
    own = sum(layer.weight.size for layer in layers)
    if terms.shape[1] * len(inputs) > min(MOST_NUMBERS, MOST_TIMES * own):
        return None
    ends = np.cumsum([len(layer.cells) for layer in layers])
    places_of = {id(layer): part for layer, part in zip(layers, np.split(places.ravel(), ends[:-1]))}
    weight, bias = np.zeros((terms.shape[1], len(inputs))), np.zeros(terms.shape[1])
    for row, factor in zip(parts, factors):
        for out, (source, column) in enumerate(row):
            layer = source.data
            np.add.at(weight[out], places_of[id(layer)], factor * layer.weight[column])
            bias[out] += factor * (0 if layer.bias is None else layer.bias[column])
    first = next(iter(layers))
    return Layer(inputs, weight.astype(np.float32), bias.astype(np.float32) if bias.any() else None, first.path)
