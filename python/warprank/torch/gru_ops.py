# SPDX-License-Identifier: Apache-2.0
"""Ops that a trace has in the place of loops over events, each a GRU of one layer that begins with zeros."""

from __future__ import annotations

from typing import Optional

import torch

TOLERANCE = 1e-9  # of states in FP64, which lie between -1 and 1, where a loop is recognised by its results


def step(x: torch.Tensor, state: torch.Tensor, share: torch.Tensor | None, weights: list[torch.Tensor], order: list[int],
         updates: bool) -> torch.Tensor:
    """The state behind one event [rows, ..], z * state + (1 - z) * n; with shares [rows] of attention the state moves
    by share * z * (n - state), or without z. weights: of inputs and states, with biases or without; order: where in them
    the gates r, z and n are; updates: z counts"""
    biases = weights[2:] or [x.new_zeros(len(weights[0]))] * 2
    given = (x @ weights[0].t() + biases[0]).chunk(3, 1)
    of_state = (state @ weights[1].t() + biases[1]).chunk(3, 1)
    r, z = ((given[gate] + of_state[gate]).sigmoid() for gate in order[:2])
    n = (given[order[2]] + r * of_state[order[2]]).tanh()
    if share is None:
        return n + z * (state - n)
    return state + (share[:, None] * z if updates else share[:, None]) * (n - state)


@torch.library.custom_op("warprank::attending_gru", mutates_args=())  # type: ignore[untyped-decorator, misc]
def attending_gru(x: torch.Tensor, shares: torch.Tensor, lengths: Optional[torch.Tensor], weights: list[torch.Tensor],
                  order: list[int], updates: bool) -> torch.Tensor:
    """[rows, hidden]: the last states of events [rows, events, ..] with their shares; 0 where there are none. lengths:
    of the rows; None: padding has shares of 0. Others as in a step"""
    state = x.new_zeros(len(x), weights[1].shape[1])
    shares = shares.reshape(*shares.shape[:2])
    for place in range(x.shape[1]):
        moved = step(x[:, place], state, shares[:, place], weights, order, updates)
        state = moved if lengths is None else torch.where((place < lengths)[:, None], moved, state)
    return state


@attending_gru.register_fake  # type: ignore[untyped-decorator, misc]
def _(x: torch.Tensor, shares: torch.Tensor, lengths: Optional[torch.Tensor], weights: list[torch.Tensor],
      order: list[int], updates: bool) -> torch.Tensor:
    return x.new_empty(x.shape[0], weights[1].shape[1])


@torch.library.custom_op("warprank::masked_gru", mutates_args=())  # type: ignore[untyped-decorator, misc]
def masked_gru(x: torch.Tensor, is_event: Optional[torch.Tensor],
               weights: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, events, hidden] and [rows, hidden]: the states behind events [rows, events, ..] and the last; one that is
    none leaves the state as it is"""
    states = [x.new_zeros(len(x), weights[1].shape[1])]
    for place in range(x.shape[1]):
        moved = step(x[:, place], states[-1], None, weights, [0, 1, 2], True)
        is_moved = None if is_event is None else is_event.reshape(*x.shape[:2])[:, place, None] != 0
        states.append(moved if is_moved is None else torch.where(is_moved, moved, states[-1]))
    return torch.stack(states[1:], 1), states[-1].clone()


@masked_gru.register_fake  # type: ignore[untyped-decorator, misc]
def _(x: torch.Tensor, is_event: Optional[torch.Tensor],
      weights: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = weights[1].shape[1]
    return x.new_empty(*x.shape[:2], hidden), x.new_empty(x.shape[0], hidden)


def cell(x: torch.Tensor, state: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
    """nn.GRUCell, as a step is written"""
    return step(x, state, None, [w for w in weights if w is not None], [0, 1, 2], True)


CELLS = {torch.ops.aten.gru_cell.default: cell}
