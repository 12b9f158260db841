# SPDX-License-Identifier: Apache-2.0
"""Of which rows of a batch the values of a PyTorch program are: of all, or of those that a mask picks."""

from __future__ import annotations

from collections.abc import Container

import torch

EVERY, MIXED = -1, -2  # of no mask, and of several


def rows_of(graph: torch.fx.Graph, inputs: Container[str]) -> tuple[dict[torch.fx.Node, int],
                                                                    dict[torch.fx.Node, int | None]]:
    """By node a number, which is the same for those that are written alike, and the number of the mask that picks its
    rows; None: it is the same for all rows."""
    numbers: dict[str, int] = {}
    alike: dict[torch.fx.Node, int] = {}
    rows: dict[torch.fx.Node, int | None] = {}
    for node in graph.nodes:
        written = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"%{alike[n]}")
        alike[node] = numbers.setdefault(repr((node.target, written)), len(numbers))
        is_changed = node.target == torch.ops.aten.index_put.default  # in some of its rows
        read = [x for x in (node.args[:1] if is_changed else node.all_input_nodes) if rows[x] is not None]
        masks = {rows[x] for x in read}
        rows[node] = masks.pop() if len(masks) == 1 else MIXED if masks else EVERY if node.name in inputs else None
        if node.target == torch.ops.aten.index.Tensor:
            picks = node.args[1][0]
            if picks in read and picks.meta["val"].dtype == torch.bool and rows[node] != MIXED:
                rows[node] = alike[picks]
    return alike, rows
