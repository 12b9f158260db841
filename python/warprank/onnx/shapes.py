# SPDX-License-Identifier: Apache-2.0
"""Of what shape batches are that a model of ONNX takes."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from ..errors import Problems
from ..lowering.examples import BATCH, LENGTH
from .reading import inputs_of


def shapes_of(model: onnx.ModelProto, events: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """By input; the model may leave the rows of all open, and how many events those of `events` have."""
    problems = Problems()
    found = {}
    for given in inputs_of(model):
        told = [d.dim_param or d.dim_value or "?" for d in given.type.tensor_type.shape.dim]
        sizes = [n if isinstance(n, int) and n > 0 else None for n in told]
        is_events = given.name in events
        if not told:
            problems.add(f"input '{given.name}'", "a number or more for each row", "one number")
        elif None in sizes[1 + is_events:]:
            problems.add(f"input '{given.name}'", "sizes that are known, but for rows and the events of an axis "
                         "('user/history[]')", f"shape [{', '.join(map(str, told))}]")
        elif sizes[:1] == [1]:
            problems.add(f"input '{given.name}'", "any number of rows, by an exporter's dynamic_shapes or dynamic_axes",
                         "one row")
        found[given.name] = tuple(n or (LENGTH if d else BATCH) for d, n in enumerate(sizes))
    problems.raise_if_any()
    return found
