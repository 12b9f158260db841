# SPDX-License-Identifier: Apache-2.0
"""Keys that torchrec's EmbeddingCollections look up: histories, whose events a module pads (`to_padded_dense`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import Problems


def _collections(module: torch.nn.Module, kind: str) -> list[Any]:
    """Without torchrec being imported."""
    name = f"torchrec.modules.embedding_modules.{kind}"
    return [m for m in module.modules() if any(f"{t.__module__}.{t.__name__}" == name for t in type(m).__mro__)]


def _keys(configs: Iterable[Any]) -> set[str]:
    return {key for config in configs for key in config.feature_names}


class Sequences:
    """The keys that are histories, and how many events of each a module takes."""

    def __init__(self, module: torch.nn.Module):
        self._collections = _collections(module, "EmbeddingCollection")
        self.keys = _keys(c for m in self._collections for c in m.embedding_configs())
        self.length: dict[str, int] = {}  # of those that a module cuts or pads to one
        self._problems = Problems()
        bags = _collections(module, "EmbeddingBagCollection")
        for key in sorted(self.keys & _keys(c for m in bags for c in m.embedding_bag_configs())):
            self._problems.add(f"key '{key}'", "a key of EmbeddingBagCollections or of EmbeddingCollections; of both "
                               "under two names", "one of both")
        self.check()

    def padded(self, key: str, ids: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Of a JaggedTensor of ids [rows, events] with zeros behind them, and how many events each row has."""
        lengths = ids.lengths().to(torch.int64)
        most = self.length.get(key, max(2, int(lengths.max()) if len(lengths) else 0))
        kept = lengths.clamp(max=most)
        made = torch.zeros(len(lengths), most, dtype=torch.int64)
        for row, (begin, count) in enumerate(zip(ids.offsets().tolist(), kept.tolist())):
            made[row, :count] = ids.values()[begin:begin + count]
        return made, kept

    def wants(self, key: str, length: int) -> None:
        """What to_padded_dense is asked for."""
        if self.length.setdefault(key, length) != length:
            self._problems.add(f"key '{key}'", f"one desired_length, {self.length[key]}", str(length))

    @property
    def single(self) -> set[str]:
        """Those of which a module takes one id of each row, which is no history."""
        return {key for key, length in self.length.items() if length == 1}

    def check(self) -> None:
        self._problems.raise_if_any()

    def check_batch(self, lengths: Mapping[str, torch.Tensor], lengths_of: Mapping[str, str],
                    problems: Problems) -> None:
        """That rows have one id where one is taken, and all keys of an axis as many."""
        for key in lengths.keys() & self.keys:
            wrong = (lengths[key] != 1).nonzero() if key in self.single else torch.zeros(0)
            if len(wrong):
                row = int(wrong[0])
                problems.add(f"batch: input '{key}'", "one id for each row", f"{int(lengths[key][row])} in row {row}")
            first = lengths_of[key]
            if first in lengths and not torch.equal(lengths[key], lengths[first]):
                problems.add(f"batch: input '{key}'", f"as many events in each row as '{first}' has", "others")

    @contextmanager
    def traced(self) -> Iterator[None]:
        """EmbeddingCollections give padded events as long as this lasts."""
        modules = {inspect.getmodule(type(m).forward) for m in self._collections}
        before = {m: m.JaggedTensor for m in modules}  # type: ignore[union-attr]
        for m in modules:
            m.JaggedTensor = Events  # type: ignore[union-attr]
        try:
            yield
        finally:
            for m, kept in before.items():
                m.JaggedTensor = kept  # type: ignore[union-attr]


class Lengths:
    """How many events rows have, of which key."""

    def __init__(self, tensor: torch.Tensor | None, key: str, sequences: Sequences):
        self.tensor, self.key, self.sequences = tensor, key, sequences  # None: each has one


class Ids:
    """What an EmbeddingCollection asks a JaggedTensor of ids for."""

    def __init__(self, values: torch.Tensor, lengths: Lengths):
        self._values, self._lengths = values, lengths

    def values(self) -> torch.Tensor:
        return self._values  # [rows, events]

    def lengths(self) -> Lengths:
        return self._lengths


class Events:
    """What an EmbeddingCollection gives, in the place of a JaggedTensor."""

    def __init__(self, values: torch.Tensor, lengths: Lengths, weights: Any = None):
        self._values, self._lengths = values, lengths  # [rows, events, dim]

    def lengths(self) -> torch.Tensor:
        tensor = self._lengths.tensor
        return tensor if tensor is not None else torch.ones(len(self._values), dtype=torch.int64)

    def to_padded_dense(self, desired_length: int | None = None, padding_value: float = 0.0) -> torch.Tensor:
        events = self._values.shape[1]
        if desired_length is not None:
            self._lengths.sequences.wants(self._lengths.key, desired_length)
            if desired_length != events:  # before it was known
                return self._values.new_zeros(len(self._values), desired_length, self._values.shape[2])
        if self._lengths.tensor is None:
            return self._values
        is_event = torch.arange(events)[None, :] < self._lengths.tensor[:, None]
        return torch.where(is_event[:, :, None], self._values, padding_value)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError("of what an EmbeddingCollection gives, to_padded_dense and lengths can be expressed, "
                                  f"but not {name}")
