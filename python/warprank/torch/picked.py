# SPDX-License-Identifier: Apache-2.0
"""The largest of a row's columns, by their places: topk, sort and gather."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..lowering.cells import Unsupported, Value, move
from ..lowering.lengths import at_last
from .composed import ops_of
from .handlers import handles
from .made import largest_in_order

if TYPE_CHECKING:
    from .program import Program


@dataclass
class Places:
    """Those of the largest along a dimension."""

    cells: np.ndarray  # of which
    dim: int
    count: int
    are_sorted: bool = False


@handles("topk", events=True)
def top_k(p: Program, x: Value, k: int, dim: int = -1, largest: bool = True, *others: Any) -> tuple[Value, Value]:
    values, places = p.made_of_others(x, k, dim, largest, *others)
    if largest:
        p.places[places.cells.tobytes()] = Places(x.cells, dim % x.cells.ndim, k)
    elif k == x.cells.shape[dim]:
        _note_sorted(p, x, values, dim)
    return values, places


@handles("sort", events=True)
def sort(p: Program, x: Value, dim: int = -1, descending: bool = False, **named: Any) -> tuple[Value, Value]:
    values, places = p.made_of_others(x, dim, descending, **named)
    if not descending:
        _note_sorted(p, x, values, dim)
    return values, places


def _note_sorted(p: Program, x: Value, values: Value, dim: int) -> None:
    before = p.places.get(x.cells.tobytes())
    if before is not None and before.dim == dim % x.cells.ndim:
        p.places[values.cells.tobytes()] = replace(before, are_sorted=True)


@handles("gather", events=True)
def gather(p: Program, x: Any, dim: int, places: Any, **_: Any) -> Value:
    if not isinstance(places, Value):
        return move(torch.ops.aten.gather.default, (x, dim, places), {}, p.batch, torch.from_numpy)
    last = at_last(p, x, dim, places, wraps=False)
    if last is not None:
        sizes = places.cells.shape
        if sizes[dim] != 1 or (places.batch, places.inner) != (x.batch, x.inner):
            raise Unsupported("an index of one event of each row, as lengths.view(-1, 1, 1).expand(-1, 1, dim)",
                              f"one of {sizes[dim]}" if sizes[dim] != 1 else "another")
        return last.like(last.cells[tuple(slice(size) for size in sizes)])
    found = p.places.get(places.cells.tobytes())
    if found is None or not found.are_sorted or not np.array_equal(found.cells, x.cells) or \
            found.dim != dim % x.cells.ndim:
        return p.made_of_others(x, dim, places)
    shape = list(x.cells.shape)
    shape[x.batch] *= p.batch
    return p.interpret(ops_of(lambda given: largest_in_order(given, found.count, dim), [torch.zeros(shape)]), [x])
