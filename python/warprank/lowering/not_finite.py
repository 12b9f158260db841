# SPDX-License-Identifier: Apache-2.0
"""What a mean and a maximum of no events are, and where a module looks for it: NaN and minus infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import Unsupported
from .expressions import at, elementwise, of_empty_maximum, reads, resolve
from .masks import count_of

if TYPE_CHECKING:
    from .program import Program


@dataclass
class BareMean:
    """A sum over events divided by their number, which may be none."""

    count: int  # its cell


def compared(p: Program, function: str, a: Any, b: Any, width: int) -> np.ndarray | None:
    """x != x, x == x and a comparison with infinity, where x is not finite in rows without events; None: all others."""
    if function not in ("equal", "not_equal"):
        return None
    x, other = (a, b) if isinstance(a, np.ndarray) else (b, a)
    if isinstance(other, np.ndarray):
        sought = math.nan if np.array_equal(x, other) else None
    else:
        sought = float(other) if math.isinf(other) else None
    if sought is None:
        return None
    counts = [_count_where(p, int(cell), sought) for cell in np.broadcast_to(x, width)]
    if all(count is None for count in counts):
        return None
    if None in counts:
        raise Unsupported("columns that are all of one pool over events", "some that are of others")
    is_sought = (function == "not_equal") == math.isnan(sought)  # x != x, x == -inf
    return elementwise(p, "equal" if is_sought else "not_equal", [np.array(counts), 0.0], width,
                       p.sources.axis_of(np.broadcast_to(x, width)))


def _count_where(p: Program, cell: int, sought: float) -> int | None:
    """The number of events of which there are none where a cell is what is sought; None: it is it nowhere for that."""
    cell = resolve(p, cell)
    source, column = p.sources.of(cell)
    if source.kind == "neg" and not math.isnan(sought):
        return _count_where(p, at(source.operands[0], column), -sought)
    if source.kind == "select" and not math.isnan(sought) and _is_nan_of_itself(p, at(source.operands[2], column)):
        return _count_where(p, at(source.operands[1], column), sought)
    if source.kind == "abs" and sought == math.inf:
        inner = at(source.operands[0], column)
        return _count_where(p, inner, -math.inf) or _count_where(p, inner, math.inf)
    if math.isnan(sought) and isinstance(source.data, BareMean):
        return source.data.count
    if source.kind == "pool_max" and not math.isnan(sought):
        cells, axis = source.data
        return int(count_of(p, axis)[0]) if of_empty_maximum(p, int(cells[column])) == sought else None
    if reads(p, cell, lambda other: _may_be(p, other, sought)):
        raise Unsupported("a test for NaN or infinity of a mean or a maximum over events itself, or a mean over "
                          "count.clamp(min=1)", "of what is made of one that may be of no events")
    return None


def _is_nan_of_itself(p: Program, cell: Any) -> bool:
    """Whether a cell is x != x, of what nan_to_num replaces first."""
    if not isinstance(cell, (int, np.integer)):
        return False
    source, column = p.sources.of(resolve(p, int(cell)))
    return source.kind == "not_equal" and at(source.operands[0], column) == at(source.operands[1], column)


def _may_be(p: Program, cell: int, sought: float) -> bool:
    source, column = p.sources.of(cell)
    if math.isnan(sought):
        return isinstance(source.data, BareMean)
    return source.kind == "pool_max" and of_empty_maximum(p, int(source.data[0][column])) == -math.inf
