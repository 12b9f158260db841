# SPDX-License-Identifier: Apache-2.0
"""Constants beside batches: what an op that moves elements joins with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import constant_rows, is_constant
from .behind import parts_of
from .candidates import are_rows, as_rows
from .cells import Unsupported, Value
from .expressions import constant
from .places import of_positions

if TYPE_CHECKING:
    from .program import Program


def joined(p: Program, parts: Any, dim: int, is_new: bool) -> Any:
    """What is joined along a dimension, constants as batches. is_new: the dimension is another, as of stack"""
    likes = [x for x in parts if isinstance(x, Value) and not x.is_ids and x.cells.size]
    if not likes:
        return parts
    has_constants = not all(isinstance(x, Value) for x in parts)
    along = None if is_new else dim - likes[0].cells.ndim if dim >= 0 else dim  # where parts may be of other sizes
    behind = parts_of(likes)
    if behind is not None and behind[0] != along and (has_constants or any(are_rows(p, x) for x in likes)):
        parts = type(parts)(as_rows(p, x) for x in parts)
        likes = [x for x in parts if isinstance(x, Value) and not x.is_ids and x.cells.size]
    if not has_constants:
        return parts
    like = likes[0]
    return type(parts)(_batch_of(p, x, like, along) if is_constant(x) and x.shape else x for x in parts)


def _batch_of(p: Program, x: Any, like: Value, along: int | None) -> Value:
    """A constant in the shape of a batch, but along one dimension."""
    if like.inner != 1 or len(x.shape) != like.cells.ndim:
        raise Unsupported("constants of the batch's shape, with a dimension for its rows", f"{list(x.shape)}")
    place, cells = p.sources.split_events(like.cells)
    array = constant_rows(p, x, like)
    axis = p.sources.axis_of(cells)
    if place is None or place == along:
        if place is not None:
            axis = p.sources.sequences[axis].axis.rpartition("/")[0]
        return like.like(_cells(p, array, axis))
    one = array.take([0], place)
    made = (_cells(p, one, axis) if (array == one).all() else
            of_positions(p, _without_rows(x, like), place, [like]).cells)
    return like.like(p.sources.with_events(made, place, like.cells.shape[place]))


def _without_rows(x: Any, like: Value) -> Any:
    """One of all rows, which are alike."""
    return x[(slice(None),) * (len(x.shape) + like.batch) + (slice(0, 1),)]


def _cells(p: Program, array: np.ndarray, axis: str) -> np.ndarray:
    numbers = np.ascontiguousarray(array, np.float32)
    if (numbers == numbers.flat[0]).all():
        cell = constant(p, axis, float(numbers.flat[0]), float(numbers.flat[0]))
        return np.full(numbers.shape, cell)
    one = constant(p, axis, 1.0, 1.0)

    def make() -> Any:
        name = p.layer(None)
        p.weights[f"{name}.weight"] = numbers.reshape(-1, 1)
        return p.builder.linear(name, p.sources.gather(one, axis), numbers.size, bias=False)
    return p.sources.add(axis, numbers.size, "numbers", make).reshape(numbers.shape)
