# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of ONNX as functions of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..lowering.cells import Unsupported
from .handlers import computes

EXPECTED = "a GRU of one direction, of sigmoid and tanh, with linear_before_reset, as PyTorch has it"


@computes("GRU")
def gru(x: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
        state: Tensor | None = None, *, activation_alpha: Any = None, activation_beta: Any = None,
        activations: Any = None, clip: float | None = None, direction: str = "forward", hidden_size: int = 0,
        layout: int = 0, linear_before_reset: int = 0) -> tuple[Tensor, Tensor]:
    kinds = [kind.decode() if isinstance(kind, bytes) else kind for kind in activations or ("Sigmoid", "Tanh")]
    if direction != "forward" or not linear_before_reset or clip is not None or kinds != ["Sigmoid", "Tanh"]:
        raise Unsupported(EXPECTED, f"direction {direction}, linear_before_reset {linear_before_reset}, clip {clip}, "
                          f"activations {', '.join(kinds)}")
    if lengths is not None:
        raise Unsupported("a GRU of padded events, without sequence_lens", "one with them")

    def in_order(gates: Tensor) -> Tensor:
        """PyTorch's, r, z and n, of ONNX's."""
        z, r, n = gates.chunk(3)
        return torch.cat([r, z, n])
    hidden = recurrence.shape[2]
    zeros = torch.zeros(6 * hidden) if bias is None else bias[0]
    parameters = [in_order(each) for each in (weight[0], recurrence[0], *zeros.chunk(2))]
    events = x.transpose(0, 1) if layout else x  # [events, batch, ..]
    given = state.transpose(0, 1) if layout and state is not None else state
    first = events.new_zeros(1, events.shape[1], hidden) if given is None else given
    made, last = torch.gru(events, first, parameters, True, 1, 0.0, False, False, False)
    if layout:
        return made.transpose(0, 1)[:, :, None], last.transpose(0, 1)
    return made[:, None], last
