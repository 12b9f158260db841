# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools of windows of a TensorFlow graph, and the largest of a row's columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..lowering.arithmetic import apply, refused_if_read
from ..lowering.cells import Unsupported, Value, numbers
from ..lowering.limits import MOST_OF_CONVOLUTION, MOST_SORTED
from ..lowering.linears import linear
from ..lowering.places import by_event
from ..lowering.reductions import reduce
from .handlers import handles
from .walk import executed

if TYPE_CHECKING:
    from .program import Program


@handles("Conv2D", events=True)
def convolution(p: Program, op: Any, x: Any, weight: Any) -> Value:
    """A linear layer over channels and the dimensions along which it is more than that, for each place of others."""
    if isinstance(weight, Value) or op.get_attr("data_format") != b"NHWC":
        raise Unsupported("a convolution of [batch, height, width, channels] with a parameter", "another")
    strides = op.get_attr("strides")
    mixed = [d for d in (1, 2) if (weight.shape[d - 1], strides[d]) != (1, 1)]
    place, _ = p.sources.split_events(numbers(x).cells)
    if place is not None and place % 4 in (0, *mixed):
        raise Unsupported("a convolution over channels and columns", "one over events")
    return by_event(p, lambda p, x: _convolved(p, op, x, weight, mixed), (x,), {})


def _convolved(p: Program, op: Any, x: Value, weight: np.ndarray, mixed: list[int]) -> Value:
    """mixed: of the dimensions those that it adds over, or has other places of"""
    sizes = [x.cells.shape[d] if d in mixed else 1 for d in (1, 2)]
    inputs = math.prod(sizes) * x.cells.shape[3]
    if inputs * math.prod(sizes) * weight.shape[3] > MOST_OF_CONVOLUTION:
        raise Unsupported(f"a convolution that is a layer of at most {MOST_OF_CONVOLUTION} numbers", "a larger one")
    each_input = np.eye(inputs, dtype=np.float32).reshape(inputs, *sizes, -1)
    of_each = executed(op, [each_input, weight.astype(np.float32)])  # what it adds to the outputs
    matrix = np.ascontiguousarray(of_each.reshape(inputs, -1).T)
    kept = [d for d in (1, 2) if d not in mixed]
    order = [0, *kept, *mixed, 3]
    given = x.cells.transpose(order)
    flat = Value(given.reshape(*given.shape[:1 + len(kept)], -1), False, -2 - len(kept), x.inner)
    made = linear(p, flat, matrix, None, p.path_of(weight, "") if not mixed else None).cells
    apart = made.reshape(*given.shape[:1 + len(kept)], *(of_each.shape[d] for d in mixed), of_each.shape[3])
    return x.like(apart.transpose(np.argsort(order)))


def _windows(op: Any, x: Value) -> np.ndarray:
    """[.., kernel] of each place; beyond the ends a window has one of its others once more."""
    sizes, strides, cells = op.get_attr("ksize"), op.get_attr("strides"), x.cells
    if op.get_attr("data_format") != b"NHWC" or sizes[0] != 1 or sizes[3] != 1:
        raise Unsupported("a pool over height and width, [batch, height, width, channels]", "another")
    for d in (1, 2):
        size, step, length = sizes[d], strides[d], cells.shape[d]
        if op.get_attr("padding") == b"SAME":
            beyond = max((math.ceil(length / step) - 1) * step + size - length, 0)
            ends = [(0, 0)] * cells.ndim
            ends[d] = beyond // 2, beyond - beyond // 2
            cells = np.pad(cells, ends, constant_values=-1)
        windows = np.lib.stride_tricks.sliding_window_view(cells, size, d)
        cells = windows.take(range(0, windows.shape[d], step), d)
    windows = cells.reshape(*cells.shape[:4], -1)
    return np.where(windows < 0, windows.max(-1, keepdims=True), windows)


@handles("MaxPool", events=True)
def max_pool(p: Program, op: Any, x: Any) -> Value:
    pooled = [d for d in (1, 2) if (op.get_attr("ksize")[d], op.get_attr("strides")[d]) != (1, 1)]
    place, _ = p.sources.split_events(numbers(x).cells)
    if place is not None and place % 4 in pooled:
        raise Unsupported("a pool of windows of columns", "one of events")

    def largest(p: Program, x: Value) -> Value:
        return reduce(p, Value(_windows(op, x), False, x.batch - 1, x.inner), 4, False, "max", "max")
    return by_event(p, largest, (x,), {})


@handles("TopKV2", events=True)
def top_k(p: Program, op: Any, x: Any, count: Any) -> list[Any]:
    """The largest of the last dimension in their order, by exchanges; not where they are."""
    if p.sources.split_events(numbers(x).cells)[0] == -1:
        raise Unsupported("top_k of columns", "of events")
    return by_event(p, _largest, (x, count), {})


def _largest(p: Program, x: Value, count: Any) -> list[Any]:
    columns = [Value(c, False, x.batch, x.inner) for c in np.split(x.cells, x.cells.shape[-1], -1)]
    if len(columns) > MOST_SORTED:
        raise Unsupported(f"top_k of at most {MOST_SORTED} columns", str(len(columns)))
    found = []
    for _ in range(int(count)):
        best = columns.pop()
        for i in reversed(range(len(columns))):
            best, columns[i] = apply(p, "max", columns[i], best), apply(p, "min", columns[i], best)
        found.append(best.cells)
    made = x.like(np.concatenate(found, -1))
    return [made, refused_if_read(p, made, "top_k", "the numbers of top_k", "their places")]
