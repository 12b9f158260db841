# SPDX-License-Identifier: Apache-2.0
"""DCN-v2's layers, recognised by what they compute: x0 * (W x + b) + x, also with W V in the place of W."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .din import layer_of
from .expressions import at, resolve

if TYPE_CHECKING:
    from .program import Program


@dataclass
class CrossLayer:
    weight: np.ndarray  # [D, D or rank]
    bias: np.ndarray
    inner: np.ndarray | None = None  # [rank, D]


def cross(p: Program, a: Any, b: Any, width: int) -> np.ndarray | None:
    """The cells of a + b, where they are a layer of crosses; those that follow one another are one op."""
    for product, residual in ((a, b), (b, a)):
        found = _cross(p, product, residual, width)
        if found is not None:
            return found
    return None


def _cross(p: Program, product: Any, residual: Any, width: int) -> np.ndarray | None:
    if not all(isinstance(x, np.ndarray) and len(x) == width for x in (product, residual)):
        return None
    x = np.array([resolve(p, int(c)) for c in residual])
    for first in (0, 1):
        factors = []
        for cell in product:
            source, column = p.sources.of(resolve(p, int(cell)))
            operands = [at(o, column) for o in source.operands] if source.kind == "mul" else []
            if len(operands) != 2 or not all(isinstance(o, int) for o in operands):
                return None
            factors.append([resolve(p, operands[first]), resolve(p, operands[1 - first])])
        x0, inner = np.array(factors).T
        layer = _layer(p, inner, x)
        if layer is None:
            continue
        before, _ = p.sources.of(int(x[0]))
        if np.array_equal(x, x0):
            return _made(p, x0, [layer])
        if before.kind == "cross" and before.width == width and np.array_equal(before.data[0], x0) and \
                np.array_equal(x, x[0] + (np.arange(width) << 12)):
            ranks = {None if each.inner is None else len(each.inner) for each in (before.data[1][0], layer)}
            return _made(p, x0, [*before.data[1], layer]) if len(ranks) == 1 else None
    return None


def _layer(p: Program, cells: np.ndarray, x: np.ndarray) -> CrossLayer | None:
    """W x + b, or W (V x + c) + b."""
    outer = layer_of(p, cells)
    if outer is None:
        return None
    weight, bias, inputs = outer
    if _same(p, inputs, x):
        return CrossLayer(weight, bias)
    inner = layer_of(p, inputs)
    if inner is None or not _same(p, inner[2], x):
        return None
    return CrossLayer(weight, bias + weight @ inner[1], inner[0])


def _same(p: Program, cells: np.ndarray, x: np.ndarray) -> bool:
    return len(cells) == len(x) and all(resolve(p, int(c)) == each for c, each in zip(cells, x))


def _made(p: Program, x0: np.ndarray, layers: list[CrossLayer]) -> np.ndarray:
    axis = p.sources.axis_of(x0)

    def make() -> Any:
        name = p.layer(p.module_path() or None)
        for i, layer in enumerate(layers):
            path = f"{name}.{i}" if layer.inner is None else f"{name}.{i}.w"
            p.weights[f"{path}.weight"], p.weights[f"{path}.bias"] = layer.weight, layer.bias.astype(np.float32)
            if layer.inner is not None:
                p.weights[f"{name}.{i}.v.weight"] = layer.inner
        rank = 0 if layers[0].inner is None else len(layers[0].inner)
        return p.builder.cross(name, p.sources.gather(x0, axis), layers=len(layers), rank=rank)
    return p.sources.add(axis, len(x0), "cross", make, data=(x0, layers))
