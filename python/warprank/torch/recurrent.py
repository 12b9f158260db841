# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of a PyTorch program in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..lowering.arithmetic import scalar_of
from ..lowering.cells import Unsupported, Value, move, numbers
from ..lowering.places import by_event
from ..lowering.recurrent import Gru, attended_state, final_state, state_behind
from ..lowering.recurrent import gru as gru_of
from .handlers import HANDLERS, handles

if TYPE_CHECKING:
    from .program import Program

EXPECTED = "a recurrent layer of one direction that begins with zeros, nn.GRU"


@handles("gru", events=True)
def gru(p: Program, x: Any, state: Any, parameters: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool) -> Any:
    given = x, state, parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first
    x = numbers(x)
    if batch_first and x.cells.ndim == 3:
        x = move(torch.ops.aten.transpose.int, (x, 0, 1), {}, p.batch, torch.from_numpy)
    place, cells = p.sources.split_events(x.cells)
    if place is None:  # over columns: its steps
        return p.made_of_others(*given)
    if place != -3 or x.batch != -2 or x.inner != 1:
        raise Unsupported("a GRU over the events of each row, [batch, events, ..]", "another")
    if bidirectional:
        raise Unsupported(EXPECTED, "nn.GRU of both directions; use bidirectional=False")
    if isinstance(state, Value) or scalar_of(state) != 0:
        raise Unsupported(EXPECTED, "nn.GRU with a state that is given; give none")
    row, last, length = cells.ravel(), [], x.cells.shape[0]
    for layer in range(num_layers):
        row = gru_of(p, _layer(p, row, parameters[layer * (4 if has_biases else 2):], has_biases))
        last.append(final_state(p, row))
    states = Value(p.sources.with_events(row.reshape(1, 1, -1), -3, length), False, -2)
    if batch_first:
        states = move(torch.ops.aten.transpose.int, (states, 0, 1), {}, p.batch, torch.from_numpy)
    return states, Value(np.stack(last)[:, None], False, -2)


def _layer(p: Program, cells: np.ndarray, parameters: Sequence[Any], has_biases: bool) -> Gru:
    """Of cells of an event, with the first of the parameters."""
    of_input, of_state = (p.array(x) for x in parameters[:2])
    biases = [p.array(x) for x in parameters[2:4]] if has_biases else [np.zeros(len(of_input), np.float32)] * 2
    path, _, number = (p.path_of(parameters[0], "") or "").partition(".weight_ih_l")
    return Gru(cells, of_input, biases[0], of_state, biases[1], f"{path}.{number}" if number > "0" else path or None)


@handles("attending_gru", events=True)
def attending_gru(p: Program, x: Any, shares: Any, lengths: Any, weights: Sequence[Any], order: Sequence[int],
                  updates: bool) -> Value:
    (place, cells), (of_share, share) = (p.sources.split_events(numbers(each).cells) for each in (x, shares))
    if place != -2 or of_share is None or of_share + shares.cells.ndim != 1 or (x.batch, x.inner) != (-3, 1):
        raise Unsupported("a GRU over the events of each row, [batch, events, ..]", "another")
    of_input, of_state, *biases = (p.array(w).reshape(3, -1, *w.shape[1:])[list(order)].reshape(w.shape) for w in weights)
    biases = biases or [np.zeros(len(of_input), np.float32)] * 2
    layer = Gru(cells.ravel(), of_input, biases[0], of_state, biases[1], None)
    given = None if lengths is None else numbers(lengths)
    return Value(attended_state(p, layer, int(share.flat[0]), given, updates)[None])


@handles("masked_gru", events=True)
def masked_gru(p: Program, x: Any, is_event: Any, weights: Sequence[torch.Tensor]) -> Any:
    states, last = gru(p, x, torch.zeros(1), weights, True, 1, 0.0, False, False, True)
    if is_event is None:
        return states, Value(last.cells[0])
    _, cells = p.sources.split_events(states.cells)
    _, mask = p.sources.split_events(is_event.cells)
    behind = state_behind(p, cells.ravel(), mask.ravel()).reshape(cells.shape)
    kept = Value(is_event.cells.reshape(1, -1, 1))
    return by_event(p, HANDLERS["where"], (kept, states, Value(behind)), {}, constants=True), Value(behind[:, 0])


@handles("lstm", "rnn_tanh", "rnn_relu", events=True)
def others(p: Program, x: Any, *more: Any) -> Any:
    place, _ = p.sources.split_events(numbers(x).cells)
    if place is None:
        return p.made_of_others(x, *more)
    raise Unsupported(EXPECTED, f"{p.current().target._schema.name.partition('::')[2]}; use nn.GRU")
