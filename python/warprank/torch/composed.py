# SPDX-License-Identifier: Apache-2.0
"""Ops that PyTorch makes of others, as the graphs of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from .handlers import HANDLERS, MOVES, SAME, name_of
from .made import MADE


@cache
def _decompositions() -> Mapping[Any, Any]:
    """How PyTorch makes ops that have no handler."""
    known = HANDLERS.keys() | MOVES | SAME
    given = {op: made for op, made in torch.export.default_decompositions().items() if name_of(op) not in known}
    return given | MADE


def ops_of(function: Callable[..., Any], examples: Sequence[torch.Tensor]) -> torch.fx.Graph:
    """Without ops that write into tensors."""
    made = make_fx(function, decomposition_table=_decompositions())(*examples)
    return make_fx(functionalize(made))(*examples).graph


def example_of(x: Any, node: torch.fx.Node, rows: int) -> torch.Tensor:
    """A constant, or for a batch a tensor of its shape and type, with so many rows where those are some of a batch."""
    like = node.meta["val"]
    shape = [rows if isinstance(size, torch.SymInt) else size for size in like.shape]
    return x.detach() if isinstance(x, torch.Tensor) else torch.zeros(shape, dtype=like.dtype)
