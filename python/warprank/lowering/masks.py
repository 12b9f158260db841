# SPDX-License-Identifier: Apache-2.0
"""That what is computed over events leaves padding out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .cells import Source, Unsupported
from .expressions import EMPTY, masked_value

if TYPE_CHECKING:
    from .program import Program


def check_masks(p: Program, cells: np.ndarray) -> None:
    """That the events which are padding add nothing."""
    sequence = p.sources.sequence_of(p.sources.axis_of(cells))
    if sequence is None or sequence.mask is None:
        return
    for cell in cells.ravel():
        if masked_value(p, int(cell)) != 0:
            raise Unsupported("a sum in which padding counts nothing, as behind a mask", "one of padding, too")
        if masked_value(p, int(cell), EMPTY) != 0:
            raise Unsupported("a sum in which rows without events have 0, as behind a mask of ids or arange < lengths",
                              "one in which they have an event of padding, as of lengths.clamp(min=1)")


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
            masked_value(p, weight) != 0:
        raise Unsupported("a softmax in which padding is masked", "one of padding, too")
