# SPDX-License-Identifier: Apache-2.0
"""AutoInt's layers, recognised by what they compute: act(softmax(Wq x (Wk x)^T) Wv x + Wr x), x the fields of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from .cells import PAIR, POSITIONS, columns_of
from .din import of_one, unscaled
from .events import projection

if TYPE_CHECKING:
    from .program import Program

MOST_FIELDS, MOST_COLUMNS = 128, 160  # the library has kernels for any fewer


@dataclass
class FieldAttention:
    """A layer over fields, whose result is [fields, heads * head_dim]."""

    cells: np.ndarray  # [fields, dim]
    weights: dict[str, np.ndarray]  # by part [heads * head_dim, dim]
    heads: int
    scale: float
    activation: wr.Activation = wr.Activation("identity")

    def make(self, p: Program) -> Any:
        name = p.layer(p.module_path() or None)
        p.weights.update({f"{name}.{part}.weight": weight for part, weight in self.weights.items()})
        x = p.sources.gather(self.cells, p.sources.axis_of(self.cells))
        return p.builder.field_attention(
            name, x, self.cells.shape[1], heads=self.heads, head_dim=len(self.weights["value"]) // self.heads,
            residual="residual" in self.weights, activation=self.activation, scale=self.scale)

    def activate(self, p: Program, cell: int, activation: wr.Activation) -> None:
        """Makes the source of the cell, the activation of all columns, as a part of the layer."""
        layer = replace(self, activation=activation)
        p.sources.make_otherwise(cell, lambda: layer.make(p))


def attended(p: Program, weights: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """[heads, fields, head_dim]: weights [heads, fields, fields] times values, where they are such a layer's."""
    heads, fields, columns = values.shape
    scores = None if any((x & POSITIONS).any() for x in (weights, values)) else _scores(p, weights)
    if scores is None or scores[0].tobytes() not in p.products or scores[1] == 0 or fields > MOST_FIELDS:
        return None
    queries, keys = p.products[scores[0].tobytes()]
    parts = {"query": queries, "key": keys.swapaxes(1, 2), "value": values}
    if any(cells.shape != values.shape for cells in parts.values()):
        return None
    found = {part: shared_projection(p, cells.swapaxes(0, 1).reshape(fields, -1)) for part, cells in parts.items()}
    inputs = [projected[0] for projected in found.values() if projected is not None]
    if len(inputs) != len(parts) or any(not np.array_equal(x, inputs[0]) for x in inputs):
        return None
    if inputs[0].shape[1] > MOST_COLUMNS or PAIR in p.sources.axis_of(inputs[0]):
        return None
    projections = {part: projected[1] for part, projected in found.items() if projected is not None}
    made = _added(p, FieldAttention(inputs[0], projections, heads, scores[1]))
    return made.reshape(fields, heads, columns).swapaxes(0, 1)


def _added(p: Program, layer: FieldAttention) -> np.ndarray:
    width = len(layer.cells) * len(layer.weights["value"])
    return p.sources.add(p.sources.axis_of(layer.cells), width, "field_attention", lambda: layer.make(p), data=layer)


def _scores(p: Program, weights: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Of softmaxes along the last dimension the scores without the number that they are multiplied with, and that."""
    scores, factors = [], set()
    for row in weights.reshape(-1, weights.shape[-1]):
        source = of_one(p, row)
        if source is None or source.kind != "softmax":
            return None
        for cell in source.operands[0].tolist():
            score, factor = unscaled(p, cell)
            scores.append(score)
            factors.add(factor)
    return (np.array(scores).reshape(weights.shape), factors.pop()) if len(factors) == 1 else None


def shared_projection(p: Program, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The inputs [fields, dim] and the weight [columns, dim] of a linear layer without a bias, the same for all fields,
    of which cells are [fields, columns]; at least the cells themselves."""
    layers = [projection(p, row) for row in cells]
    if any(each.bias is not None and each.bias.any() for each in layers):
        return None
    if any(not np.array_equal(each.weight, layers[0].weight) for each in layers):
        return None
    return np.stack([each.cells for each in layers]), layers[0].weight


def with_residual(p: Program, a: Any, b: Any, width: int) -> np.ndarray | None:
    """The cells of a + b, where they are such a layer and a projection of its fields."""
    for attention, residual in ((a, b), (b, a)):
        found = _with_residual(p, attention, residual, width)
        if found is not None:
            return found
    return None


def _with_residual(p: Program, attention: Any, residual: Any, width: int) -> np.ndarray | None:
    if not all(isinstance(x, np.ndarray) and len(x) == width for x in (attention, residual)):
        return None
    source, _ = p.sources.of(int(attention[0]))
    if source.kind != "field_attention" or source.width != width or "residual" in source.data.weights:
        return None
    order = np.argsort(attention)  # of its columns
    if of_one(p, attention[order]) is not source:
        return None
    layer = source.data
    projected = shared_projection(p, residual[order].reshape(len(layer.cells), -1))
    if projected is None or not np.array_equal(projected[0], layer.cells):
        return None
    made = _added(p, replace(layer, weights=layer.weights | {"residual": projected[1]}))
    return made[columns_of(attention)]
