# SPDX-License-Identifier: Apache-2.0
"""Modules of torchrec: each key of a KeyedJaggedTensor is an input of its own, ids with offsets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from keyword import iskeyword
from typing import Any

import numpy as np
import torch

from ..errors import Problems
from ..lowering.inputs import Input
from .exported import ExportedModule, arguments, bound, check_arguments, evaluating
from .sequences import Ids, Lengths, Sequences


def is_jagged(x: Any) -> bool:
    """Whether it is a KeyedJaggedTensor, without torchrec being imported."""
    return any(f"{t.__module__}.{t.__name__}" == "torchrec.sparse.jagged_tensor.KeyedJaggedTensor"
               for t in type(x).__mro__)


def has_jagged(batch: Any) -> bool:
    args, kwargs = arguments(batch)
    return any(is_jagged(x) for x in (*args, *kwargs.values()))


class Jagged:
    """How the arguments of a module with KeyedJaggedTensors are tensors, by name: "key", "key.weights" and
    "key.offsets" [rows + 1], which has the end of the last row."""

    def __init__(self, module: torch.nn.Module, batch: Any, axes: Mapping[str, str] | None):
        self._signature = inspect.signature(module.forward)
        given = self._bind(batch)
        self._given = list(given)
        self._keys = {name: list(x.keys()) for name, x in given.items() if is_jagged(x)}
        self._weighted = {name for name in self._keys if given[name].weights_or_none() is not None}
        self.rows = next(x.stride() for x in given.values() if is_jagged(x))
        self._sequences = Sequences(module)
        # By sequence the first on its axis, which has the lengths.
        self._lengths_of = {key: key for keys in self._keys.values() for key in keys if key in self._sequences.keys}
        self._has_dense = any(isinstance(x, torch.Tensor) for x in given.values())
        self._check(given)
        self._name(batch)
        self._measure(module, batch)
        self._name(batch)
        self.axes = dict(zip(self._arguments, self._axes(given, axes)))

    def _name(self, batch: Any) -> None:
        self.names = list(self.flat(batch))
        self._arguments = _arguments_of(self.names)

    def _bind(self, batch: Any) -> dict[str, Any]:
        return bound(self._signature, batch)

    def _check(self, given: Mapping[str, Any]) -> None:
        problems = Problems()
        taken = [name for name in given if name not in self._keys]
        for name, value in given.items():
            if name in self._keys:
                if value.stride() != self.rows:
                    problems.add(f"input '{name}'", f"{self.rows} rows, as the first keys have", str(value.stride()))
                taken += self._keys[name]
            elif not isinstance(value, torch.Tensor):
                problems.add(f"input '{name}'", "a tensor or a KeyedJaggedTensor", type(value).__name__)
            elif list(value.shape[:1]) != [self.rows]:
                problems.add(f"input '{name}'", f"{self.rows} rows, as the keys have", f"shape {list(value.shape)}")
        for name in {name for name in taken if taken.count(name) > 1}:
            problems.add(f"key '{name}'", "names that are not those of others", "one of them twice")
        problems.raise_if_any()

    def _axes(self, given: Mapping[str, Any], axes: Mapping[str, str] | None) -> list[str]:
        """Of each tensor. A KeyedJaggedTensor's keys are where it is, or where they are said to be themselves."""
        made: dict[str, str] = {}
        problems = Problems()
        axes = dict.fromkeys(given, "row") if axes is None else axes
        for name in given:
            for key in self._keys.get(name, [name]):
                axis = axes.get(key, axes.get(name, ""))
                if not axis:
                    problems.add(f"axes: input '{key}'", "its axis", "none")
                if name not in self._keys:
                    made[name] = axis
                    continue
                if key in self._sequences.single:
                    made[key] = axis
                    continue
                if key in self._sequences.keys:
                    events = axis if axis.endswith("[]") else f"{axis}/{key}[]"
                    self._lengths_of[key] = next((k for k in self._lengths_of if made.get(k) == events), key)
                    made |= {key: events, f"{key}.lengths": events}
                    continue
                made |= {key: f"{axis}/{key}[]", f"{key}.weights": f"{axis}/{key}[]", f"{key}.offsets": axis}
        known = [*given, *(key for keys in self._keys.values() for key in keys)]
        for name in axes:
            if name not in known:
                near = get_close_matches(name, known, 1)
                problems.add(f"axes: '{name}'", "an input of the module, or a key",
                             "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
        problems.raise_if_any()
        if not self._has_dense:
            made[""] = next(iter(made.values())).partition("/")[0]
        return [made[name] for name in self.names]

    def flat(self, batch: Any) -> dict[str, torch.Tensor]:
        """A batch as tensors. Those with a row for each row of the batch come first: "" where there are none."""
        given = self._bind(batch)
        self._check_batch(given)
        made = {name: given[name] for name in self._given if name not in self._keys}
        if not self._has_dense:
            made[""] = torch.zeros(next(x.stride() for x in given.values() if is_jagged(x)), 1)
        for name, keys in self._keys.items():
            by_key = given[name].to_dict()
            for key in keys:
                if key in self._sequences.keys:
                    made[key], lengths = self._sequences.padded(key, by_key[key])
                    if key not in self._sequences.single:
                        made[f"{key}.lengths"] = lengths
                    continue
                made[key] = by_key[key].values().to(torch.int64)
                if name in self._weighted:
                    made[f"{key}.weights"] = by_key[key].weights()
                made[f"{key}.offsets"] = by_key[key].offsets().to(torch.int64)
        return made

    def _check_batch(self, given: Mapping[str, Any]) -> None:
        """That a batch has what the example has: as many keys, in its order, as the columns of what a collection makes
        of them."""
        problems = Problems()
        check_arguments(given, self._given, problems)
        for name in given.keys() & set(self._given):
            kind = type(given[name]).__name__
            if name not in self._keys and not isinstance(given[name], torch.Tensor):
                problems.add(f"batch: input '{name}'", "a tensor", kind)
            elif name in self._keys and not is_jagged(given[name]):
                problems.add(f"batch: input '{name}'", "a KeyedJaggedTensor", kind)
            elif name in self._keys and list(given[name].keys()) != self._keys[name]:
                problems.add(f"batch: input '{name}'", "keys " + ", ".join(self._keys[name]),
                             ", ".join(given[name].keys()))
            elif is_jagged(given[name]):
                self._sequences.check_batch({key: given[name][key].lengths() for key in self._keys[name]},
                                            self._lengths_of, problems)
            if name in self._weighted and is_jagged(given[name]) and given[name].weights_or_none() is None:
                problems.add(f"batch: input '{name}'", "ids with weights", "none")
        problems.raise_if_any()

    def example(self, batch: Any) -> tuple[torch.Tensor, ...]:
        """A batch as tensors for tracing, where no key has just as many ids as there are rows."""
        made = self.flat(batch)
        for name, tensor in made.items():
            if name.endswith(".offsets") and name in self.names:
                end = self.rows + 2
                made[name] = torch.from_numpy(np.linspace(0, end, self.rows + 1).astype(np.int64))
                for part in (name.removesuffix(".offsets"), name.removesuffix(".offsets") + ".weights"):
                    if part in made:
                        made[part] = torch.zeros(end, dtype=made[part].dtype)
        return tuple(made.values())

    @contextmanager
    def taking_tensors(self, module: torch.nn.Module, batch: Any) -> Iterator[None]:
        """A module that takes the tensors of a batch one after the other, as long as this lasts."""
        args, kwargs = arguments(batch)
        forward = module.forward

        def of_tensors(*tensors: torch.Tensor) -> Any:
            made = dict(zip(self.names, tensors))

            def whole(name: str, x: Any) -> Any:
                if not is_jagged(x):
                    return made[name]
                return _Keyed(x, self.rows, {
                    key: (made[key], made[f"{key}.offsets"], made.get(f"{key}.weights")) for key in self._keys[name]
                    if key not in self._lengths_of}, {
                    key: Ids(made[key], Lengths(made.get(f"{self._lengths_of[key]}.lengths"), key, self._sequences))
                    for key in self._keys[name] if key in self._lengths_of})
            given = {name: whole(name, x) for name, x in self._bind(batch).items()}
            values = iter(given.values())
            return forward(*(next(values) for _ in args), **{name: given[name] for name in kwargs})
        of_tensors.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self._arguments])
        module.forward = of_tensors  # type: ignore[method-assign]
        try:
            with self._sequences.traced():
                yield
        finally:
            del module.forward

    def _measure(self, module: torch.nn.Module, batch: Any) -> None:
        """Finds out how many events of sequences the module takes."""
        if self._lengths_of:
            with self.taking_tensors(module, batch), torch.no_grad(), evaluating(module):
                try:
                    module(*self.example(batch))
                except Exception:  # which tracing tells, in its words
                    return
            self._sequences.check()

    def named(self, inputs: Mapping[str, Input]) -> dict[str, Input]:
        """Inputs by the arguments of the module that takes tensors, with their own names."""
        return {argument: replace(inputs[argument], name=name) for argument, name in zip(self._arguments, self.names)}


def _arguments_of(names: list[str]) -> list[str]:
    """As Python and torch.export can name them."""
    made: list[str] = []
    for name in names:
        argument = re.sub(r"\W", "_", name) or "no_dense"
        is_free = argument not in made and argument.isidentifier() and not iskeyword(argument)
        made.append(argument if is_free else f"input_{len(made)}")
    return made


class _Keyed:
    """What modules of torchrec ask a KeyedJaggedTensor for, of tensors by key."""

    def __init__(self, like: Any, rows: int, tensors: Mapping[str, tuple[Any, Any, Any]], sequences: Mapping[str, Ids]):
        jagged = inspect.getmodule(type(like).to_dict).JaggedTensor  # type: ignore[union-attr]
        self._rows = rows
        self._by_key: dict[str, Any] = {key: jagged(values=values, offsets=offsets, weights=weights)
                                        for key, (values, offsets, weights) in tensors.items()}
        self._by_key |= sequences

    def to_dict(self) -> dict[str, Any]:
        return self._by_key

    def __getitem__(self, key: str) -> Any:
        return self._by_key[key]

    def keys(self) -> list[str]:
        return list(self._by_key)

    def stride(self) -> int:
        return self._rows

    def inverse_indices_or_none(self) -> None:
        return None


class ExportedJagged(ExportedModule):
    """An export of a module that takes KeyedJaggedTensors."""

    _jagged: Jagged

    @classmethod
    def of(cls, jagged: Jagged, *fields: Any) -> ExportedJagged:
        made = cls(*fields)
        made._jagged = jagged
        return made

    def _tensors(self, batch: Any) -> list[torch.Tensor]:
        return list(self._jagged.flat(batch).values())
