# SPDX-License-Identifier: Apache-2.0
"""Events with others behind them along one dimension, as a candidate behind its history: each part by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .cells import POSITIONS, Value

Parts = tuple[int, list[tuple[int, int]]]  # a dimension, from the right, and where each begins and ends


def parts_of(values: Iterable[Value]) -> Parts | None:
    """Those of the first that has several."""
    for x in values:
        positions = x.cells & POSITIONS
        for d in range(x.cells.ndim) if positions.any() else ():
            found = _runs(np.moveaxis(positions, d, 0).reshape(x.cells.shape[d], -1).max(1))
            if len(found) > 1:
                return d - x.cells.ndim, found
    return None


def _runs(along: np.ndarray) -> list[tuple[int, int]]:
    """Where places 1, 2, .. of events begin and end, and what has none; none: they are picked or in another order."""
    begins = [i for i, place in enumerate(along) if place == 1 or (place == 0 and (i == 0 or along[i - 1] != 0))]
    ends = [*begins[1:], len(along)]
    is_known = begins[:1] == [0] and all(
        not along[b:e].any() or (along[b:e] == np.arange(1, e - b + 1)).all() for b, e in zip(begins, ends))
    return list(zip(begins, ends)) if is_known else []


def in_parts(call: Callable[..., Any], parts: Parts, args: Any, kwargs: Any, constants: bool, widens: bool) -> Value:
    """What a call gives for each part, one behind the other. constants, widens: as for by_event"""
    dimension, ranges = parts
    total = ranges[-1][1]

    def part(x: Any, begin: int, end: int) -> Any:
        shape = x.cells.shape if isinstance(x, Value) else getattr(x, "shape", ()) if constants else ()
        if len(shape) < -dimension or shape[dimension] != total:
            return x
        where = (slice(None),) * (len(shape) + dimension) + (slice(begin, end),)
        if not isinstance(x, Value):
            return x[where]
        return Value(x.cells[where], x.is_ids, x.batch, end - begin if x.batch == dimension else x.inner)
    made = [call(*(part(x, *r) for x in args), **{k: part(x, *r) for k, x in kwargs.items()}) for r in ranges]
    first = made[0]
    joined = np.concatenate([x.cells for x in made], dimension - widens)
    return Value(joined, first.is_ids, first.batch, total if first.batch == dimension - widens else first.inner)
