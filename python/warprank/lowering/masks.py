# SPDX-License-Identifier: Apache-2.0
"""That what is computed over events leaves padding out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import PAIR, Source, Unsupported, pooled_axis
from .expressions import EMPTY, PADDING, at, constant, masked_value, masked_with, reads, resolve

if TYPE_CHECKING:
    from .program import Program


def check_masks(p: Program, cells: np.ndarray) -> np.ndarray | None:
    """That the events which are padding add nothing to a sum. Gives what the sum is in rows without events, behind a
    softmax what padding is; None: 0."""
    axis = p.sources.axis_of(cells)
    sequence = p.sources.sequence_of(axis)
    if sequence is None or sequence.mask is None:
        return None
    for cell in cells.ravel():
        if masked_with(p, int(cell)) != 0:
            raise Unsupported("a sum in which padding counts nothing, as behind a mask", "one of padding, too")
    if sequence.events is not None or axis == sequence.axis + PAIR + sequence.axis:
        return None  # there are no such rows
    of_empty = [_sum_of_empty(p, int(cell)) for cell in cells.ravel()]
    if None in of_empty:
        raise Unsupported("a sum in which rows without events have 0, as behind a mask of ids or arange < lengths, also of "
                          "a softmax, softmax(..) * is_event", "one in which they have an event of padding, as of "
                          "lengths.clamp(min=1) or of a softmax masked by a number, that is not known")
    return np.array(of_empty, np.float32) if any(of_empty) else None


def _sum_of_empty(p: Program, cell: int) -> float | None:
    """What the sum of a cell over events is in rows without any; None: not known. A softmax that a number masks has a
    sum of 1 over padding, which is all alike."""
    value = masked_value(p, cell, EMPTY)
    if value and (masked_value(p, cell) != 0 or reads(p, cell, lambda number: number in p.of_nan)):
        return None  # so may be what each of them adds
    source, column = p.sources.of(resolve(p, cell))
    if value is not None or source.kind == "event_softmax":
        return 1.0 if value is None else value
    operands = [at(x, column) for x in source.operands] if source.kind == "mul" else []
    for weight, other in (operands, operands[::-1]) if operands else ():
        if isinstance(weight, int) and p.sources.of(resolve(p, weight))[0].kind == "event_softmax":
            each = [masked_value(p, other, state) for state in (PADDING, EMPTY)]
            return each[0] if each[0] == each[1] else None
    return None


def or_of_empty(p: Program, made: Any, of_empty: np.ndarray | None, axis: str, result: str) -> Any:
    """What is made of the events of an axis for each row of another; in rows without events other numbers."""
    if of_empty is None:
        return made
    b = p.builder
    count = p.sources.gather(count_of(p, axis), result)
    if (of_empty == of_empty[0]).all():
        return b.apply("select", [made, float(of_empty[0]), count])
    name = p.layer(None)
    p.weights[f"{name}.weight"] = of_empty.astype(np.float32)[:, None]
    others = b.linear(name, b.apply("equal", [count, 0.0]), len(of_empty), bias=False)
    return b.apply("select", [made, others, count])


def count_of(p: Program, axis: str) -> np.ndarray:
    """The cell that has the number of events of an axis."""
    events = axis.rpartition(PAIR)[2]
    if ("count", events) not in p.expressions:
        ones = constant(p, events, 1.0, 0.0)
        p.expressions["count", events] = p.sources.add(
            pooled_axis(events), 1, "count", lambda: p.builder.pool(p.sources.gather(ones, events), "sum"), (ones,))
    return p.expressions["count", events]


def is_nan(p: Program, cells: np.ndarray) -> np.ndarray | None:
    """Where shares of softmaxes over events are no numbers: all of a row without events; None: they are others."""
    made = np.empty_like(cells)
    for place, cell in np.ndenumerate(cells):
        source, column = p.sources.of(resolve(p, int(cell)))
        if source.kind != "event_softmax":
            return None
        is_masked = masked_with(p, at(source.operands[0], column), EMPTY) == -math.inf
        made[place] = constant(p, source.axis, 0.0, 0.0, empty=float(is_masked))[0]
        p.of_nan.add(int(made[place]))
    return made


def check_count(p: Program, count: Source) -> None:
    """That events are counted of which something tells padding, where an input says how many there are."""
    sequence = p.sources.sequence_of(p.sources.axis_of(count.operands[0]))
    if count.data is not None and sequence is not None and sequence.mask is None:
        raise Unsupported(f"lengths '{count.data.name}' that tell events from padding: x * (torch.arange(events) < "
                          "lengths.unsqueeze(-1)).unsqueeze(-1) ahead of a sum over events",
                          "lengths that are a number alone")


def check_weight(p: Program, weight: int) -> None:
    """That of a softmax over events padding has no part."""
    axis = p.sources.of(weight)[0].axis
    sequence = p.sources.sequence_of(axis)
    if p.sources.of(weight)[0].kind == "event_softmax" and sequence is not None and sequence.mask is not None and \
            masked_with(p, weight) != 0:
        raise Unsupported("a softmax in which padding is masked", "one of padding, too")
