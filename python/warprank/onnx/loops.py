# SPDX-License-Identifier: Apache-2.0
"""Loops whose every turn computes the same of rows of its own, as PyTorch's exporters write an EmbeddingBag: all turns
at once. Other loops are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
import torch
from onnx import helper
from torch import Tensor

from ..lowering.cells import MOST_ROWS, Unsupported
from .handlers import Op
from .steps import Read, Step

EXPECTED, OTHER = "a loop whose every turn computes the same of rows of its own", "control flow"


class Told(Exception):
    """What is wrong within a turn has been told."""


class Graph(Protocol):
    """What a loop asks of the graph that it is in."""

    constants: dict[str, Tensor]
    values: dict[str, Tensor | None]  # None: there was a problem
    sequences: dict[str, list[str]]  # by name those of their tensors
    stacked: dict[str, str]  # of a sequence that a loop made the tensor that has all
    steps_made: list[Step]

    def add_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None: ...

    def add_graph(self, graph: onnx.GraphProto) -> None: ...

    def add_step(self, step: Step) -> None: ...

    def tensor(self, name: str) -> Tensor: ...


@dataclass
class Turn:
    """What is left of a turn when what is known without a batch has been computed."""

    steps: list[Step]
    constants: dict[str, Tensor]  # that it computed, and reads
    adds: list[str]  # what it adds to each sequence, and to each of the loop's own outputs


def add_loop(graph: Graph, node: onnx.NodeProto) -> None:
    """Makes one step of all turns. What a turn hands to the next is known, or a sequence that it adds to."""
    turns, handed = _turns(graph, node)
    first = turns[0]
    rows = {_rows(graph, turn, place, len(turns)) for place, turn in enumerate(turns)}
    whole = rows.pop()
    if rows or whole is None:
        raise Unsupported(EXPECTED, OTHER)
    size = graph.tensor(whole).shape[0] // len(turns)
    if any(_told(turn, size) != _told(first, size) for turn in turns):
        raise Unsupported(EXPECTED, OTHER)
    graph.constants |= first.constants
    inside = {name for step in first.steps for name in step.outputs}
    reads = list(dict.fromkeys(n for step in first.steps for n in step.reads if n not in inside))

    def all_turns(*tensors: Tensor) -> Any:
        values = dict(zip(reads, tensors))

        def one(part: Tensor) -> tuple[Tensor, ...]:
            own = dict(values)
            for step in first.steps:
                is_part = step.kind == "Slice" and step.reads == [whole]
                own.update(zip(step.outputs, (part,) if is_part else step.forward(*(own[n] for n in step.reads))))
            return tuple(own[name] for name in first.adds)
        return torch.vmap(one)(values[whole].unflatten(0, (len(turns), -1)))
    outputs = [f"{node.output[0]}/{name}" for name in first.adds]
    graph.add_step(Step.of(node, Op(all_turns), [Read(name) for name in reads], {}, outputs))
    stacked = iter(outputs)
    for output, value in zip(node.output, handed):
        if isinstance(value, list):
            graph.stacked[output] = next(stacked)
        else:
            graph.constants[output] = value
    for output, made in zip(node.output[len(handed):], stacked):
        graph.add_nodes([helper.make_node("Identity", [made], [output])])


def add_of_sequence(graph: Graph, node: onnx.NodeProto) -> None:
    """A sequence that begins, is added to by a turn, or ends as one tensor."""
    if node.op_type == "SequenceEmpty":
        graph.sequences[node.output[0]] = []
    elif node.op_type == "SequenceInsert" and len(node.input) == 2 and node.input[0] in graph.sequences:
        graph.sequences[node.output[0]] = [*graph.sequences[node.input[0]], node.input[1]]
    elif node.op_type == "ConcatFromSequence" and node.input[0] in graph.stacked and all(
            a.i == 0 for a in node.attribute):
        joined = Op(lambda x: x.flatten(0, 1))
        graph.add_step(Step.of(node, joined, [Read(graph.stacked[node.input[0]])], {}, list(node.output)))
    else:
        raise Unsupported("a sequence of what the turns of a loop make", "another")


def _turns(graph: Graph, node: onnx.NodeProto) -> tuple[list[Turn], list[Any]]:
    """Each turn by itself, and what the last hands on: constants, and sequences."""
    body = next(a.g for a in node.attribute if a.name == "body")
    names = set(_names(body))
    handed = [graph.sequences.get(name, graph.constants.get(name)) for name in node.input[2:]]
    limit, goes_on = (graph.constants.get(name, torch.tensor(0 if name else MOST_ROWS)) for name in node.input[:2])
    turns: list[Turn] = []
    before = graph.steps_made
    while goes_on and len(turns) < limit and all(x is not None for x in handed):
        for values in (graph.constants, graph.values, graph.sequences):
            for name in names & values.keys():
                del values[name]  # type: ignore[attr-defined]
        given = [torch.tensor(len(turns)), torch.tensor(True), *handed]
        for place, value in zip(body.input, given):
            (graph.sequences if isinstance(value, list) else graph.constants)[place.name] = value
        graph.steps_made = []
        graph.add_graph(body)
        if any(name in graph.values and graph.values[name] is None for name in names):
            graph.steps_made = before
            raise Told
        ends, *made = [output.name for output in body.output]
        handed = [graph.sequences.get(name, graph.constants.get(name)) for name in made[:len(handed)]]
        sequences = [x for x in handed if isinstance(x, list)]
        grow = all(len(x) == len(turns) + 1 for x in sequences)
        if ends not in graph.constants or any(x is None for x in handed) or not grow:
            graph.steps_made = before
            raise Unsupported(EXPECTED, OTHER)
        goes_on = graph.constants[ends]
        adds = [x[-1] for x in sequences] + made[len(handed):]
        read = {name for step in graph.steps_made for name in step.reads} & names & graph.constants.keys()
        turns.append(Turn(graph.steps_made, {name: graph.constants[name] for name in read}, adds))
    graph.steps_made = before
    if not turns:
        raise Unsupported(EXPECTED, OTHER)
    return turns, handed


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """All that a graph makes, and what is within its nodes."""
    yield from (x.name for x in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names(attribute.g)


def _rows(graph: Graph, turn: Turn, place: int, count: int) -> str | None:
    """Of what tensor a turn takes the rows at its place of as many, all of them the same number; None: of none."""
    found = set()
    for step in (step for step in turn.steps if step.kind == "Slice"):
        whole = graph.values.get(step.reads[0])
        size = 0 if whole is None else len(whole) // count
        is_own = step.arguments[1:] in ([[place * size], [(place + 1) * size], *axes] for axes in ([], [[0]]))
        found.add(step.reads[0] if whole is not None and size * count == len(whole) and is_own else None)
    return found.pop() if len(found) == 1 else None


def _told(turn: Turn, size: int) -> tuple[Any, ...]:
    """What a turn computes of its rows, whatever names it has; a mean as a sum that is divided by their number."""
    places: dict[str, Any] = {}

    def told(x: Any) -> Any:
        if not isinstance(x, Read):
            return x
        return turn.constants[x.name].flatten().tolist() if x.name in turn.constants else places.get(x.name, x.name)
    found: list[Any] = []
    for step in turn.steps:
        given = [told(x) for x in step.arguments]
        if step.kind == "Slice":
            given = given[:1]
        if step.kind == "ReduceMean" and given[1:] == [[0]]:
            found.append(("ReduceSum", step.attributes, given))
            found.append(("Div", {}, [len(found) - 1, [float(size)]]))
        elif step.kind != "Identity":
            found.append((step.kind, step.attributes, given))
        places |= {name: given[0] if step.kind == "Identity" else (len(found) - 1, i) if i else len(found) - 1
                   for i, name in enumerate(step.outputs)}
    return found, [places.get(name, name) for name in turn.adds]
