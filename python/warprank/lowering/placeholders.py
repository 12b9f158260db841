# SPDX-License-Identifier: Apache-2.0
"""The inputs of a program, as the batches that its ops take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import warprank as wr

from .cells import Value, source_numbers
from .expressions import constant
from .ids import no_numbers
from .inputs import Input
from .masks import check_count

if TYPE_CHECKING:
    from .program import Program


def placeholder(p: Program, given: Input) -> Value:
    """What a program is given, as a batch of it."""
    def make() -> wr.Tensor:
        if given.is_ids:
            no_numbers()
        return p.builder.dense(given.name, p.axis(given.axis), given.width - len(given.ids_columns))

    is_mask = given.kind == "mask"
    if is_mask and not (given.is_events and len(given.shape) == 1):
        p.problems.add(f"input '{given.name}'", "numbers or ids; truth values for the events of a sequence",
                       f"truth values {list(given.shape)} on axis '{given.axis}'")
    if is_mask and given.axis in p.sequences:
        p.mask(given.axis, given.name, None)
        cells = constant(p, given.axis, 1.0, 0.0)
    elif given.is_lengths:
        ones = constant(p, given.axis, 1.0, 0.0)
        parent = given.axis.rpartition("/")[0]

        def counted() -> wr.Tensor:
            check_count(p, p.sources.of(int(cells[0]))[0])
            return p.builder.pool(p.sources.gather(ones, given.axis), "sum")
        cells = p.sources.add(parent, 1, "count", counted, (ones,), given)
    else:
        cells = p.sources.add(given.axis, given.width, "ids" if given.is_ids else "dense", make, data=given)
    number = int(source_numbers(cells)[0])
    p.input_of_source[number] = given
    p.sources.all[number].left_out = given.ids_columns
    if given.is_flat or given.is_lengths or not given.is_events:
        return Value(cells.reshape(1, *(() if given.is_flat else given.shape)), given.is_ids and not given.is_lengths)
    each = cells.reshape(1, 1, *given.shape[1:])
    return Value(p.sources.with_events(each, 1 - each.ndim, given.shape[0]), given.is_ids)
