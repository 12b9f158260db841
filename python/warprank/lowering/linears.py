# SPDX-License-Identifier: Apache-2.0
"""Linear layers of a batch, in the order in which they read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import cin, events
from .cells import Unsupported, Value, num_runs, numbers, source_numbers
from .expressions import constant_of

if TYPE_CHECKING:
    from .program import Program


def linear(p: Program, x: Any, weight: np.ndarray, bias: np.ndarray | None = None, path: str | None = None) -> Value:
    """weight: [out, in], of the layer `path`"""
    out, width = weight.shape
    if numbers(x).cells.shape[-1] != width:
        raise Unsupported(f"[.., {width}] of a row", "a layer over events")
    if x.batch == -1:
        raise Unsupported("each row by itself", "a layer over the batch")
    given = x.cells.reshape(-1, width)
    rows = cin.over_fields(p, given, weight, bias, path)
    if rows is None:  # the same layer for each field
        rows = np.stack([linear_row(p, events.Layer(cells, weight, bias, path)) for cells in given])
    return x.like(rows.reshape(*x.cells.shape[:-1], out))


def linear_row(p: Program, layer: events.Layer) -> np.ndarray:
    cells = layer.cells
    axis = p.sources.axis_of(cells)
    attention = events.attention_layer(p, layer)
    if attention is not None:
        return attention

    def make() -> Any:
        order = _order_of_reading(p, cells)
        name = p.layer(layer.path)
        p.layer_names[int(made[0])] = name
        p.weights[f"{name}.weight"] = layer.weight[:, order]
        if layer.bias is not None:
            p.weights[f"{name}.bias"] = layer.bias
        x = p.sources.gather(cells[order], axis)
        return p.builder.linear(name, x, len(layer.weight), bias=layer.bias is not None)
    made = p.sources.add(axis, len(layer.weight), "linear", make, data=layer)
    return made


def _order_of_reading(p: Program, cells: np.ndarray) -> np.ndarray:
    """The cells that a layer reads, in the order that it has its weights in: without zeros, as they lie in memory where
    that saves moving them, products of fields as the library has them, and as the first layer that reads the same."""
    order = np.flatnonzero([constant_of(p, int(c)) != 0 for c in cells])
    if not len(order):
        return np.arange(len(cells))
    breaks = np.flatnonzero(np.diff(source_numbers(cells[order]))) + 1
    for run in np.split(np.arange(len(order)), breaks):
        if p.sources.of(int(cells[order[run[0]]]))[0].kind == "dots":
            order[run] = order[run][np.argsort(cells[order[run]], kind="stable")]
    in_memory = order[np.argsort(cells[order], kind="stable")]
    if num_runs(cells[in_memory]) < num_runs(cells[order]):
        order = in_memory
    first = p.read_orders.setdefault(cells[in_memory].tobytes(), cells[order])
    if (np.diff(cells[in_memory]) > 0).all() and num_runs(first) <= num_runs(cells[order]):
        order = in_memory[np.searchsorted(cells[in_memory], first)]
    return order
