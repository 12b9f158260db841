# SPDX-License-Identifier: Apache-2.0
"""Packed sequences, which a trace has as padded events with their lengths: that has no shape that depends on values."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.utils import rnn


class Packed:
    """What pack_padded_sequence gives, in the place of a PackedSequence."""

    def __init__(self, events: torch.Tensor, lengths: torch.Tensor):
        self.events, self.lengths = events, lengths  # [rows, events, ..], [rows]

    def padded(self, value: float) -> tuple[torch.Tensor, torch.Tensor]:
        """With what is behind the lengths."""
        is_event = torch.arange(self.events.shape[1])[None, :] < self.lengths[:, None]
        return torch.where(is_event[:, :, None], self.events, value), self.lengths

    def through(self, layer: nn.GRU, state: torch.Tensor | None) -> tuple[Packed, torch.Tensor]:
        """What a layer makes of them, and its last states."""
        if state is not None or layer.bidirectional:
            raise NotImplementedError("of packed sequences nn.GRU of one direction without a state can be expressed")
        events, last = self.events, []
        place = (self.lengths - 1)[:, None, None].expand(-1, 1, layer.hidden_size)
        zeros = events.new_zeros(1, events.shape[0], layer.hidden_size)
        for weights in layer.all_weights:
            events, _ = torch.gru(events, zeros, weights, layer.bias, 1, 0.0, False, False, True)
            last.append(events.gather(1, place)[:, 0])
        return Packed(events, self.lengths), torch.stack(last)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError("of a packed sequence nn.GRU and pad_packed_sequence can be expressed, not "
                                  f"'{name}'; compute padded events behind a mask")


def _pack(input: torch.Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> Packed:
    return Packed(input if batch_first else input.transpose(0, 1), torch.as_tensor(lengths).long())


def _pad(sequence: Packed, batch_first: bool = False, padding_value: float = 0.0,
         total_length: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    events, lengths = sequence.padded(padding_value)
    if total_length != events.shape[1]:
        raise NotImplementedError("pad_packed_sequence gives as many events as the longest of a batch has: use "
                                  f"total_length={events.shape[1]}, as many as histories have")
    return events if batch_first else events.transpose(0, 1), lengths


_forward = nn.GRU.forward


def _gru(self: nn.GRU, input: Any, hx: torch.Tensor | None = None) -> Any:
    return input.through(self, hx) if isinstance(input, Packed) else _forward(self, input, hx)


@contextmanager
def padded_sequences(module: nn.Module) -> Iterator[None]:
    """Modules pack events in this way as long as this lasts."""
    replaced = {rnn.pack_padded_sequence: _pack, rnn.pad_packed_sequence: _pad}
    owners = {rnn, *(inspect.getmodule(type(m).forward) for m in module.modules())}
    before = [(owner, name, value) for owner in owners if owner is not None for name, value in vars(owner).items()
              if inspect.isfunction(value) and value in replaced]
    for owner, name, value in before:
        setattr(owner, name, replaced[value])
    nn.GRU.forward = _gru  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.GRU.forward = _forward  # type: ignore[method-assign]
        for owner, name, value in before:
            setattr(owner, name, value)
