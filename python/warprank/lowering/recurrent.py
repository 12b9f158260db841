# SPDX-License-Identifier: Apache-2.0
"""GRUs over the events of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import PAIR, Unsupported, Value, pooled_axis
from .din import unscaled
from .expressions import EMPTY, at, constant, constant_of, masked_value, resolve
from .lengths import check_lengths, last_of
from .masks import check_weight

if TYPE_CHECKING:
    from .program import Program


@dataclass
class Gru:
    """A layer with the gates r, z and n, whose product of states has a bias of its own: PyTorch's."""

    cells: np.ndarray  # of an event
    input_weight: np.ndarray  # [3 hidden, in]
    input_bias: np.ndarray  # [3 hidden]
    hidden_weight: np.ndarray  # [3 hidden, hidden]
    hidden_bias: np.ndarray  # [3 hidden]
    path: str | None

    @property
    def hidden(self) -> int:
        return self.hidden_weight.shape[1]

    def weights(self, name: str) -> dict[str, np.ndarray]:
        return {f"{name}.input.weight": self.input_weight, f"{name}.input.bias": self.input_bias,
                f"{name}.hidden.weight": self.hidden_weight, f"{name}.hidden.bias": self.hidden_bias}

    def of_first(self, x: np.ndarray) -> np.ndarray:
        """The state behind the numbers of a first event."""
        r, z, n = np.split(self.input_weight.astype(np.float64) @ x + self.input_bias, 3)
        of_r, of_z, of_n = np.split(self.hidden_bias.astype(np.float64), 3)
        opens, keeps = 1 / (1 + np.exp(-(r + of_r))), 1 / (1 + np.exp(-(z + of_z)))
        return (1 - keeps) * np.tanh(n + opens * of_n)


def gru(p: Program, layer: Gru) -> np.ndarray:
    """[hidden]: the state behind each event."""
    axis = p.sources.axis_of(layer.cells)

    def make() -> Any:
        if PAIR in axis:
            raise Unsupported("a GRU over events by themselves", "one of their pairs with a query")
        if p.sequences[axis].events is not None:
            raise Unsupported("a GRU over events by themselves", "one of a candidate behind them, and behind padding")
        name = p.layer(layer.path)
        p.weights |= layer.weights(name)
        return p.builder.gru(name, p.sources.gather(layer.cells, axis), layer.hidden)
    p.sequences[axis.rpartition(PAIR)[2]].is_ordered = True
    return p.sources.add(axis, layer.hidden, "gru", make, data=layer)


def attended_state(p: Program, layer: Gru, share: int, given: Value | None, updates: bool) -> np.ndarray:
    """[hidden]: the last state of a GRU whose states follow the events' shares of attention. updates: as of builder.augru

    share: a cell of the events; given: how many events rows have; None: padding has shares of 0
    """
    source, column = p.sources.of(resolve(p, share))
    if source.kind != "event_softmax":
        raise Unsupported("a GRU with shares that are a softmax over all events", f"'{source.kind}'")
    if given is not None:
        check_lengths(p, given, p.sources.axis_of(layer.cells))
    elif masked_value(p, share, EMPTY) != 0 and not p.has_events(p.sources.axis_of(layer.cells)):
        raise Unsupported("a GRU with shares of attention that are 0 in rows without events, or one of rows that have some, "
                          "x[mask.any(1)]", "one in which padding moves the states of rows without events")
    score, factor = unscaled(p, at(source.operands[0], column))
    axis, (of_score, _) = source.axis, p.sources.of(score)
    result, events = pooled_axis(axis), axis.rpartition(PAIR)[2]
    queries, keys = of_score.data if of_score.kind == "scores" else (constant(p, result, 1.0, 1.0), np.array([score]))

    def make() -> Any:
        check_weight(p, resolve(p, share))
        name = p.layer(p.module_path() or None)
        p.weights.update(layer.weights(name))
        return p.builder.augru(name, p.sources.gather(queries, result), p.sources.gather(keys, events),
                               p.sources.gather(layer.cells, events), layer.hidden, update_gate=updates, scale=factor)
    return p.sources.add(result, layer.hidden, "augru", make)


def state_behind(p: Program, states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[hidden]: the state behind the last event that a mask [1] leaves, which must be that of padding; 0 where there are
    none."""
    if len(mask) != 1 or constant_of(p, int(mask[0])) != 1 or masked_value(p, int(mask[0])) != 0:
        raise Unsupported("a GRU that leaves its state as it is where events are padding: torch.where(is_event, new, state)",
                          "one with another mask")
    return last_of(p, states, p.sources.axis_of(states))


def final_state(p: Program, states: np.ndarray) -> np.ndarray:
    """[hidden]: the state behind all events that the module has, which must not be padding."""
    axis = p.sources.axis_of(states)

    def make() -> Any:
        if p.sequences[axis].mask is not None:
            raise Unsupported("the outputs of a GRU at lengths.clamp(min=1) - 1, or its h_n behind "
                              "pack_padded_sequence", "h_n of padded events, a state behind padding")
        return p.sources.gather(last_of(p, states, axis), pooled_axis(axis))
    return p.sources.add(pooled_axis(axis), len(states), "final_state", make)
