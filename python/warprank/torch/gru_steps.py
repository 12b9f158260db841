# SPDX-License-Identifier: Apache-2.0
"""Which GRU a step of a loop is: in FP64 it computes random numbers as one formula does, or it is none.

Its weights are what the arguments of its sigmoids and its tanh make of unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from .gru_ops import TOLERANCE, step
from .steps import Steps

aten = torch.ops.aten
SHAPED = {aten.unsqueeze.default, aten.squeeze.dim, aten.view.default, aten.expand.default}
CONVERSIONS = {aten._to_copy.default, aten.to.dtype}


@dataclass
class Gru:
    """A step, in the order of gates r, z and n of attending_gru, and by number what its events are picked of."""

    weights: list[torch.Tensor]
    events: list[int]
    share: int | None
    mask: int | None
    updates: bool


class Step:
    """What a step computes, in FP64."""

    def __init__(self, program: torch.export.ExportedProgram, steps: Steps, state: Node, before: Node):
        self._program, self._state, self._before = program, state, before
        self._nodes = steps.nodes_of(state, before)
        self._alike = steps.alike
        self._batch, self._hidden = (int(x) for x in (_rows_of(program), before.meta["val"].shape[1]))
        self._outer: dict[Node, Any] = {}
        self._base_of = {n: steps.base_of(n) for n in self._nodes if steps.is_event(n)}
        self._leaves = {base: node for node, base in self._base_of.items()}
        self._sigmoids, self._tanhs = ([n for n in self._nodes if n.target == target]
                                       for target in (aten.sigmoid.default, aten.tanh.default))

    def gru(self) -> Gru | None:
        shapes = {base: node.meta["val"] for base, node in self._leaves.items()}
        events = [base for base, x in shapes.items() if x.dim() == 2 and x.shape[1] > 1]
        others = [base for base in shapes if base not in events]
        if not events or len(others) > 1 or not self._tanhs:
            return None
        self._events, self._other = events, others[0] if others else None
        self._widths = [shapes[base].shape[1] for base in events]
        gates, new = self._gates()
        if gates is None:
            return None
        is_masked = self._other is not None and _is_truth(self._leaves[self._other].args[0])
        is_attending = self._other is not None and not is_masked
        tests = [self._tested(seed, is_masked, is_attending) for seed in range(2)]
        for weights, updates in _candidates(gates, new, is_attending):
            if all(test(weights, updates) for test in tests):
                return Gru([w.float() for w in weights], events, self._other if is_attending else None,
                            self._other if is_masked else None, updates)
        return None

    def _tested(self, seed: int, is_masked: bool, is_attending: bool) -> Callable[[list[torch.Tensor], bool], bool]:
        """A function that tells whether weights give what a step gives for random numbers."""
        random = torch.Generator().manual_seed(seed)
        count = 4 * self._batch
        x = torch.randn(count, sum(self._widths), generator=random, dtype=torch.float64)
        x *= torch.logspace(-1, 1, count, dtype=torch.float64)[:, None]
        before = torch.rand(count, self._hidden, generator=random, dtype=torch.float64) * 2 - 1
        other = torch.rand(count, generator=random, dtype=torch.float64)
        other = other if is_attending else other.round()
        made = self.of(x, before, other)

        def is_same(weights: list[torch.Tensor], updates: bool) -> bool:
            state = step(x, before, other if is_attending else None, weights, [0, 1, 2], updates)
            state = torch.where(other[:, None] != 0, state, before) if is_masked else state
            return bool((state - made).abs().max() <= TOLERANCE)
        return is_same

    def _gates(self) -> tuple[Any, Any]:
        """Of the sigmoids, and of the tanh where those are 0 and 1, weights of events and states, and a bias."""
        inputs = sum(self._widths)
        zeros = torch.zeros(1 + inputs + self._hidden, inputs + self._hidden, dtype=torch.float64)
        zeros[1:] = torch.eye(inputs + self._hidden, dtype=torch.float64)
        x, state, ones = zeros[:, :inputs], zeros[:, inputs:], torch.ones(len(zeros), dtype=torch.float64)

        def affine(nodes: list[Node], of_sigmoids: float | None) -> tuple[torch.Tensor, ...]:
            made = torch.cat([self.of(x, state, ones, of_sigmoids, node.args[0]) for node in nodes], 1)
            each = (made[1:] - made[0]).t()
            return each[:, :inputs], each[:, inputs:], made[0]
        gates = affine(self._sigmoids, None)
        closed, opened = (affine(self._tanhs, number) for number in (0.0, 1.0))
        hidden = self._hidden
        if len(gates[2]) not in (hidden, 2 * hidden) or len(closed[2]) != hidden:
            return None, None
        return gates, (closed[0], opened[1] - closed[1], closed[2], opened[2] - closed[2])

    def of(self, x: torch.Tensor, state: torch.Tensor, other: torch.Tensor, of_sigmoids: float | None = None,
           wanted: Node | None = None) -> torch.Tensor:
        """What a node gives for rows of events, states and what is beside them, of which a step has self._batch at once.
        of_sigmoids: what they give instead"""
        made = []
        for begin in range(0, len(x), self._batch):
            rows = slice(begin, begin + self._batch)
            more = self._batch - len(x[rows])
            given = (torch.cat([t[rows], t.new_zeros(more, *t.shape[1:])]) for t in (x, state, other))
            made.append(self._of_batch(tuple(given), of_sigmoids, wanted or self._state)[:len(x[rows])])
        return torch.cat(made)

    def _of_batch(self, given: tuple[torch.Tensor, ...], of_sigmoids: float | None, wanted: Node) -> torch.Tensor:
        x, state, other = given
        parts = dict(zip(self._events, x.split(self._widths, 1)))
        values: dict[Node, Any] = {}

        def value(node: Node) -> Any:
            if self._alike[node] == self._alike[self._before]:
                return state
            return values[node] if node in values else self._of_outer(node)
        for node in self._nodes:
            if node in self._base_of:
                base, like = self._base_of[node], node.meta["val"]
                values[node] = parts[base] if base in parts else other.reshape(self._batch, *like.shape[1:]).to(
                    torch.bool if like.dtype == torch.bool else torch.float64)
            elif of_sigmoids is not None and node in self._sigmoids:
                values[node] = torch.full_like(value(node.args[0]), of_sigmoids)
            else:
                values[node] = _computed(node, value)
        return value(wanted)

    def _of_outer(self, node: Node) -> Any:
        """What is no input, and no event."""
        if node not in self._outer:
            like = node.meta["val"]
            if isinstance(like, torch.SymInt):
                self._outer[node] = self._batch
            elif node.op == "placeholder":
                self._outer[node] = self._parameter(node)
            else:
                self._outer[node] = _computed(node, self._of_outer)
        return self._outer[node]

    def _parameter(self, node: Node) -> torch.Tensor:
        program = self._program
        path = next(spec.target for spec in program.graph_signature.input_specs if spec.arg.name == node.name)
        kept = program.state_dict.get(path, program.constants.get(path))  # type: ignore[arg-type]
        if not isinstance(kept, torch.Tensor):
            raise LookupError("an input")
        return kept.detach().double() if kept.is_floating_point() else kept


def _is_truth(node: Any) -> bool:
    """Whether they are truth values, or such numbers."""
    while node.target in CONVERSIONS | SHAPED:
        node = node.args[0]
    return bool(node.meta["val"].dtype == torch.bool)


def _rows_of(program: torch.export.ExportedProgram) -> int:
    return next(n.meta["val"].shape[0] for n in program.graph.nodes if n.name in program.graph_signature.user_inputs)


def _computed(node: Node, value: Any) -> Any:
    """In FP64."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    if node.target in CONVERSIONS and node.meta["val"].is_floating_point():
        return args[0].double()
    made = node.target(*args, **kwargs)  # type: ignore[operator]
    return made.double() if isinstance(made, torch.Tensor) and made.is_floating_point() else made


def _candidates(gates: Any, new: Any, attends: bool) -> Iterator[tuple[list[torch.Tensor], bool]]:
    """Weights in the order that attending_gru has, and whether z counts; z keeps the state, or beside shares updates it."""
    of_input, of_state, bias = gates
    hidden = len(new[2])
    halves = [slice(0, hidden), slice(hidden, 2 * hidden)]
    if len(bias) == hidden:
        if attends:
            yield _weights([gates, gates], new), False
        return
    for order in (halves, halves[::-1]):
        r, z = ([x[part] for x in (of_input, of_state, bias)] for part in order)
        yield _weights([r, z], new), True
        if not attends:
            yield _weights([r, [-x for x in z]], new), True


def _weights(gates: Sequence[Sequence[torch.Tensor]], new: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    of_input, of_state, bias = (torch.cat([gate[i] for gate in gates]) for i in range(3))
    return [torch.cat([of_input, new[0]]), torch.cat([of_state, new[1]]), torch.cat([bias, new[2]]),
            torch.cat([torch.zeros_like(bias), new[3]])]
