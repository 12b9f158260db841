# SPDX-License-Identifier: Apache-2.0
"""The steps of a loop over events, as a trace has them one behind the other."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
ZEROS = {aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default}


def picked(node: Node) -> tuple[Node, int] | None:
    """Of which events, [rows, events, ..], it picks one, and its place: x[:, place], x[:, place:place + 1], or the last of
    a GRU's states; None: it is another op."""
    if node.target == operator.getitem and node.args[0].target == torch.ops.warprank.masked_gru.default:
        every = next((n for n in node.args[0].users if n.args[1] == 0), None)
        return None if every is None or every is node else (every, every.meta["val"].shape[1] - 1)
    if node.target not in (aten.select.int, aten.slice.Tensor) or node.args[1] != 1:
        return None
    length, (place, *end) = node.args[0].meta["val"].shape[1], node.args[2:]
    if not isinstance(length, int) or (node.target == aten.slice.Tensor and (place is None or end != [place + 1])):
        return None
    return node.args[0], int(place) % length


class Steps:
    """By node the step that it is of, the place of the last event that it is made of; -1: of all or none."""

    def __init__(self, graph: Graph, alike: Mapping[Node, int], bases: Sequence[int], length: int):
        self.alike, self._bases, self._length = alike, bases, length
        self.of: dict[Node, int] = {}
        self._numbers: dict[str, int] = {}
        self._by_step: list[list[Node]] = [[] for _ in range(length)]
        for node in graph.nodes:
            found = picked(node) if self.is_event(node) else None
            self.of[node] = found[1] if found else max((self.of[x] for x in node.all_input_nodes), default=-1)
            if self.of[node] >= 0:
                self._by_step[self.of[node]].append(node)

    def is_event(self, node: Node) -> bool:
        return self.base_of(node) in self._bases

    def base_of(self, node: Node) -> int:
        """The number of the events that it picks one of; -1: it picks none."""
        found = picked(node)
        return -1 if found is None else self.alike[found[0]]

    def chains(self) -> list[list[Node]]:
        found = []
        if self._length < 3:
            return []
        crossing = {self.alike[x]: x for node in self._by_step[1] for x in node.all_input_nodes if self.of[x] == 0}
        for first in crossing.values():
            for second in self._by_step[1]:
                states = self._chain(first, second) if second.target == first.target else None
                if states is not None:
                    found.append(states)
                    break
        return found

    def _chain(self, first: Node, second: Node) -> list[Node] | None:
        written = self.written(second, first)
        if written is None or self.written(first, None) != written:
            return None
        states = [first, second]
        for nodes in self._by_step[2:]:
            same = next((n for n in nodes if n.target == first.target and self.written(n, states[-1]) == written), None)
            if same is None:
                return None
            states.append(same)
        return states

    def written(self, state: Node, before: Node | None) -> int | None:
        """A step as a number, the same for those that are written alike; None: it is made of other steps, too. before:
        None of the first, whose state before is zeros"""
        step, known = self.of[state], {}
        first = self._first_states(state) if before is None else set()

        def number(node: Node) -> int:
            if node not in known:
                known[node] = self._numbers.setdefault(text(node), len(self._numbers))
            return known[node]

        def text(node: Node) -> str:
            if before is not None and self.alike[node] == self.alike[before] or \
                    node in first and node.target in ZEROS:
                return "state"
            if self.is_event(node):
                if self.of[node] != step:
                    raise LookupError
                return f"event of {self.base_of(node)}"
            if self.of[node] < 0 and node not in first:
                return f"%{self.alike[node]}"
            return repr((node.target, torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"#{number(n)}")))
        try:
            return number(state)
        except LookupError:
            return None

    def _first_states(self, state: Node) -> set[Node]:
        """Zeros in the shape of a state, and what is made of them alone."""
        found: set[Node] = set()
        for node, step in self.of.items():
            is_zeros = node.target in ZEROS and str(node.meta["val"].shape) == str(state.meta["val"].shape)
            if step < 0 and (is_zeros or any(x in found for x in node.all_input_nodes)):
                found.add(node)
        return found

    def nodes_of(self, state: Node, before: Node) -> list[Node]:
        """What a step is made of, in order, with the events that it picks."""
        found: dict[Node, None] = {}

        def visit(node: Node) -> None:
            if node in found or self.alike[node] == self.alike[before] or self.of[node] < 0:
                return
            for x in () if self.is_event(node) else node.all_input_nodes:
                visit(x)
            found[node] = None
        visit(state)
        return list(found)
