# SPDX-License-Identifier: Apache-2.0
"""Loops over the events of a history, `h = cell(x[:, i], h)`, which a trace has step by step, as one GRU."""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from .gru_steps import Gru, Step
from .rows import rows_of
from .steps import Steps, picked

aten = torch.ops.aten


def join_loops(program: torch.export.ExportedProgram, inputs: Mapping[str, Any]) -> None:
    """The graph of a program with one op in the place of each such loop over events of inputs."""
    events = {name for name, given in inputs.items() if given.is_events}
    while events and any(loop.joined() for loop in _loops(program, inputs, events)):
        program.graph.eliminate_dead_code()


def _loops(program: torch.export.ExportedProgram, inputs: Container[str], events: Container[str]) -> list[_Loop]:
    """All chains of states h_0 .. h_n of which each is made of the one before and of an event's numbers alike."""
    graph = program.graph
    alike, _ = rows_of(graph, inputs)
    of_events: set[Node] = set()
    places: dict[tuple[int, int], dict[int, Node]] = {}  # by what events are picked of, and how many there are
    for node in graph.nodes:
        if node.name in events or any(x in of_events for x in node.all_input_nodes):
            of_events.add(node)
        found = picked(node)
        if found is not None and found[0] in of_events:
            places.setdefault((alike[found[0]], found[0].meta["val"].shape[1]), {})[found[1]] = node
    loops = []
    for length in sorted({length for _, length in places}):
        bases = [base for (base, n), nodes in places.items() if n == length and len(nodes) == length]
        steps = Steps(graph, alike, bases, length)
        loops += [_Loop(program, steps, states) for states in steps.chains()]
    return loops


class _Loop:
    """The states h_0 .. h_n of a loop."""

    def __init__(self, program: torch.export.ExportedProgram, steps: Steps, states: list[Node]):
        self._program, self._steps, self._states = program, steps, states

    def joined(self) -> bool:
        """Whether it is one of the GRUs, which takes its place."""
        first, second = self._states[:2]
        try:
            cell = Step(self._program, self._steps, second, first).gru()
        except Exception:  # of an op that takes no other numbers, or of a step that is made of more than events
            return False
        return cell is not None and self._is_replaced(cell)

    def _is_replaced(self, cell: Gru) -> bool:
        steps, states, graph = self._steps, self._states, self._program.graph
        bases = {steps.base_of(n): n.args[0] for n in graph.nodes if steps.is_event(n) and steps.of[n] == 0}
        share = cell.share
        if share is not None and any(user not in steps.nodes_of(after, state)
                                for state, after in zip(states, states[1:]) for user in state.users):
            return False  # of these the last state alone can be expressed
        with graph.inserting_before(states[0]):
            events = [bases[base] for base in cell.events]
            x = events[0] if len(events) == 1 else _call(states[0], aten.cat.default, events, -1)
            weights = [self._constant(f"{states[0].name}_weights_{i}", w) for i, w in enumerate(cell.weights)]
            if share is not None:
                made = _call(states[0], torch.ops.warprank.attending_gru.default, x, bases[share], None, weights,
                             [0, 1, 2], cell.updates)
                states[-1].replace_all_uses_with(made)
                return True
            mask = None if cell.mask is None else bases[cell.mask]
            both = _call(states[0], torch.ops.warprank.masked_gru.default, x, mask, weights)
            every, last = (_call(states[0], operator.getitem, both, i) for i in range(2))
            each = [_call(states[0], aten.select.int, every, 1, place) for place in range(len(states))]
        for user in list(states[-1].users):  # the last event's state, where all are put side by side
            joins = user.users if user.target == aten.unsqueeze.default else [user]
            if joins and all(_joins(node, states) for node in joins):
                user.replace_input_with(states[-1], each[-1])
        for state, made in zip(states, [*each[:-1], last]):
            state.replace_all_uses_with(made)
        return True

    def _constant(self, name: str, value: torch.Tensor) -> Node:
        node = self._program.graph.placeholder(name)
        node.meta["val"] = value
        return node


def _joins(node: Node, states: Sequence[Node]) -> bool:
    """Whether it puts the states of all events side by side."""
    parts = node.args[0] if node.target in (aten.stack.default, aten.cat.default) else []
    bare = [x.args[0] if x.target == aten.unsqueeze.default else x for x in parts]
    return bare == list(states)


def _call(like: Node, target: Any, *args: Any) -> Node:
    """A call in the module that another node is in."""
    node = like.graph.call_function(target, args)
    given = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
    with like.meta["val"].fake_mode as mode:
        def fake(x: torch.Tensor) -> torch.Tensor:
            return x if mode.is_our_fake(x) else mode.from_tensor(x, static_shapes=True)
        node.meta["val"] = target(*torch.utils._pytree.tree_map_only(torch.Tensor, fake, given))
    node.meta["nn_module_stack"] = like.meta.get("nn_module_stack")
    return node
