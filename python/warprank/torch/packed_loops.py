# SPDX-License-Identifier: Apache-2.0
"""Modules that loop over the steps of packed events themselves, as DIEN's: GRUs whose states follow shares of attention.

Which GRU a module is tell its results: it computes random packed events, with random weights and its own, as one formula
does, or it is none.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import rnn

from .exported import evaluating
from .gru_ops import TOLERANCE, attending_gru
from .packed import Packed


class _OtherStates:
    """The states of such a GRU but the last."""

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError("of a GRU with shares of attention the last state can be expressed, not the others")


class _States(_OtherStates):
    """All states, packed, of which the last may be picked when they are padded."""

    def __init__(self, last: torch.Tensor, of: Packed, lengths_differ: bool):
        self.last, self.events, self.lengths, self.lengths_differ = last, of.events, of.lengths, lengths_differ

    def padded(self, value: float) -> tuple[_PaddedStates, torch.Tensor]:
        return _PaddedStates(self.last, self.events.shape[1], self.lengths_differ), self.lengths


class _PaddedStates(_OtherStates):
    """states[is_last] is the last, of a mask of rows and events. Whether it is, check_branches asks the example, whose
    histories differ in length: at no place of all of them is then the last state."""

    def __init__(self, last: torch.Tensor, num_events: int, lengths_differ: bool):
        self.last, self.lengths_differ = last, lengths_differ
        self.shape = (last.shape[0], num_events, last.shape[1])

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __getitem__(self, index: Any) -> torch.Tensor:
        if isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.dim() == 2:
            if not self.lengths_differ:
                raise NotImplementedError("histories of one length do not tell whether a state picked by a mask is the "
                                          "last: give a batch with others")
            return self.last
        return self.__getattr__("__getitem__")  # type: ignore[no-any-return]


LAST, STATES, OTHERS = "last", "states", "others"  # what is at a place of a result: _States, _OtherStates


@dataclass
class Loop:
    """What such a module computes, and how it is called."""

    weights: list[str]  # names of parameters, as attending_gru has them
    order: list[int]
    updates: bool
    result: Any  # in the form of a result, at each place LAST, STATES or OTHERS
    lengths_differ: bool  # of the example's histories

    def of(self, module: nn.Module, given: list[Any]) -> Any:
        if len(given) != 2 or not all(isinstance(x, Packed) for x in given):
            raise NotImplementedError("a GRU with shares of attention that is given events and shares, no first state")
        x, shares = given
        weights = [module.get_parameter(name) for name in self.weights]
        last = attending_gru(x.events, shares.events, x.lengths, weights, self.order, self.updates)
        made = {LAST: last, STATES: _States(last, x, self.lengths_differ), OTHERS: _OtherStates()}
        return torch.utils._pytree.tree_map(made.__getitem__, self.result)


def loop_of(module: nn.Module, packed: list[Any]) -> Loop | None:
    """What a module is that takes packed events and their shares alone; None: it is none of these."""
    weights = dict(module.named_parameters(remove_duplicate=False))  # one may have two names
    matrices = [name for name, w in weights.items() if w.dim() == 2]
    biases = [name for name, w in weights.items() if w.dim() == 1]
    are_given = len(packed) == 2 and all(isinstance(x, rnn.PackedSequence) for x in packed)
    if not are_given or packed[0].data.dim() != 2 or packed[1].data.shape[1:] not in ((), (1,)) or \
            len(matrices) != 2 or len(biases) not in (0, 2) or len(weights) != len(matrices) + len(biases):
        return None
    sizes = packed[0].batch_sizes
    try:
        tests = [_Test(module, packed, seed, has_own_weights=seed == 2) for seed in range(3)]
    except Exception:  # whatever a module raises that is not for other rows, or for FP64
        return None
    for of_input, of_state in itertools.permutations(matrices):
        hidden = weights[of_state].shape[1]
        if weights[of_input].shape != (3 * hidden, packed[0].data.shape[1]) or len(weights[of_state]) != 3 * hidden or \
                any(len(weights[name]) != 3 * hidden for name in biases):
            continue
        for order, updates, names in itertools.product(itertools.permutations(range(3)), (True, False),
                                                        itertools.permutations(biases)):
            found = Loop([of_input, of_state, *names], list(order), updates, None, bool(sizes[0] != sizes[-1]))
            found.result = tests[0].result_of(found)
            if found.result is not None and all(test.result_of(found) == found.result for test in tests[1:]):
                return found
    return None


class _Test:
    """Random packed events and shares of a module, and what it makes of them in FP64."""

    def __init__(self, module: nn.Module, like: list[rnn.PackedSequence], seed: int, has_own_weights: bool):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of what the module makes itself, as the first state
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self._module = copy.deepcopy(module).double().eval()
                for weight in () if has_own_weights else self._module.parameters():
                    weight.normal_()
                self._lengths = torch.tensor([2, 5, 1, 4, 5, 3])
                self._x = torch.randn(6, 5, like[0].data.shape[1]) * torch.logspace(-1, 1, 6)[:, None, None]
                self._shares = torch.rand(6, 5, *like[1].data.shape[1:])
                made = self._module(*(rnn.pack_padded_sequence(x, self._lengths, True, False)
                                      for x in (self._x, self._shares)))
                self._leaves, self._form = torch.utils._pytree.tree_flatten(
                    made, is_leaf=lambda x: isinstance(x, rnn.PackedSequence))
        finally:
            torch.set_default_dtype(before)

    def result_of(self, loop: Loop) -> Any:
        """Where the module gives the last states of a loop, in the form of its results; None: nowhere."""
        weights = [self._module.get_parameter(name).detach() for name in loop.weights]
        last = attending_gru(self._x, self._shares, self._lengths, weights, loop.order, loop.updates)

        def is_last(x: Any) -> bool:
            return isinstance(x, torch.Tensor) and x.shape == last.shape and bool((x - last).abs().max() <= TOLERANCE)

        def kind(x: Any) -> str | None:
            if not isinstance(x, rnn.PackedSequence):
                return LAST if is_last(x) else None
            states, lengths = rnn.pad_packed_sequence(x, batch_first=True)
            return STATES if is_last(states[torch.arange(len(states)), lengths - 1]) else OTHERS

        kinds = [kind(x) for x in self._leaves]
        return torch.utils._pytree.tree_unflatten(kinds, self._form) if None not in kinds and {*kinds} != {OTHERS} else None


def loops_in(module: nn.Module, args: Any, kwargs: Any) -> tuple[dict[nn.Module, Loop], list[str]]:
    """The modules that are such loops, found by a call of the whole module, and what others are that take packed events;
    none where it cannot be called."""
    given: dict[nn.Module, list[Any]] = {}

    def note(part: nn.Module, args: Any, kwargs: Any) -> None:
        packed = [x for x in (*args, *kwargs.values()) if x is not None]
        if any(isinstance(x, rnn.PackedSequence) for x in packed) and not any(
                isinstance(m, nn.RNNBase) for m in part.modules()):
            given.setdefault(part, packed)
    hooks = [m.register_forward_pre_hook(note, with_kwargs=True) for m in module.modules() if m is not module]
    try:
        with torch.no_grad(), evaluating(module):
            module(*args, **kwargs)
    except Exception:  # whatever a module raises
        return {}, []
    finally:
        for hook in hooks:
            hook.remove()
    found: dict[nn.Module, Loop] = {}
    others = []
    for path, part in module.named_modules():
        if part in given:
            loop = loop_of(part, given[part])
            if loop is not None:
                found[part] = loop
            else:
                others.append(f"module '{path}' ({type(part).__name__})")
    return found, others


@contextmanager
def as_ops(loops: Mapping[nn.Module, Loop]) -> Iterator[None]:
    """Such modules take padded events, and give one op, as long as this lasts."""
    def forward(part: nn.Module, loop: Loop) -> Callable[..., Any]:
        return lambda *args, **kwargs: loop.of(part, [x for x in (*args, *kwargs.values()) if x is not None])
    for part, loop in loops.items():
        part.forward = forward(part, loop)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in loops:
            del part.forward
