# SPDX-License-Identifier: Apache-2.0
"""Runs a program of torch.export: batches become cells, all else is computed at once."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import warprank as wr

from ..lowering.candidates import of_candidates
from ..lowering.cells import Unsupported, Value, move
from ..lowering.constants import joined
from ..lowering.inputs import Input
from ..lowering.lengths import tells_events
from ..lowering.placeholders import placeholder
from ..lowering.places import by_event
from ..lowering.program import Failed
from ..lowering.program import Program as LoweredProgram
from .composed import example_of, ops_of
from .fourier import Complex, of_complex
from .handlers import HANDLERS, MOVES, OF_CONSTANTS, OF_EVENTS, SAME, looks_up, name_of
from .made import MADE
from .rows import EVERY, rows_of


class Program(LoweredProgram):
    """names: by path of a parameter, buffer or part of the module what messages, weights and tables call it, where that
    is another; nothing is no name"""

    def __init__(self, exported: torch.export.ExportedProgram, inputs: Mapping[str, Input], batch: int,
                 hashed: Mapping[str, Any], names: Mapping[str, str] = {}):
        super().__init__(inputs, batch, hashed)
        self.places: dict[bytes, Any] = {}  # by the cells of places of the largest, of which
        self.alike, self.rows = rows_of(exported.graph, inputs)
        self.picks: dict[int, int] = {}  # by number of a mask that picks rows its cell
        self._exported = exported
        self._names = names

    def run(self, output_names: list[str]) -> wr.Graph:
        """Raises InvalidArgument with everything that cannot be expressed."""
        values = self._placeholders()
        results: list[Any] = []
        for node in self._exported.graph.nodes:
            self._node = node
            if node.op == "call_function":
                values[node] = self._call(node, values)
            elif node.op == "output":
                results = torch.fx.node.map_arg(node.args[0], lambda n: values[n])
                if any(isinstance(n, torch.fx.Node) and self.rows[n] not in (None, EVERY) for n in node.args[0]):
                    self.problems.add("outputs", "scores of each row", "of some rows")
                if any(isinstance(x, Complex) for x in results):
                    self.problems.add("outputs", "real numbers", "complex ones; use view_as_real")
        return self.finish(output_names, results)

    def has_events(self, axis: str) -> bool:
        rows = self.rows.get(self._node)
        return rows in self.picks and tells_events(self, self.picks[rows], axis)

    def array(self, tensor: Any) -> np.ndarray:
        if isinstance(tensor, np.ndarray):
            return np.ascontiguousarray(tensor, np.float32)
        return tensor.detach().to(torch.float32).contiguous().numpy()

    def path_of(self, tensor: torch.Tensor, suffix: str) -> str | None:
        """The layer that a parameter belongs to; None: it is computed, or not named so."""
        path = self._paths.get(id(tensor), "")
        return path.removesuffix(suffix) if path.endswith(suffix) else path or None

    def module_path(self) -> str:
        return self._module()[0]

    def default_name(self) -> str:
        assert self._node is not None
        return ".".join(filter(None, [self.module_path(), self._node.name]))

    def unsupported(self, expected: str, got: str) -> None:
        if self._node is None:
            self.problems.add("inputs", expected, got)
            return
        path, kind = self._module()
        where = f"module '{path}' ({kind}): " if path else ""
        self.problems.add(f"{where}{self._node.target}", expected, got)

    def _placeholders(self) -> dict[torch.fx.Node, Any]:
        exported = self._exported
        targets = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs if spec.target}
        values: dict[torch.fx.Node, Any] = {}
        for node in exported.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in self.inputs:
                values[node] = placeholder(self, self.inputs[node.name])
            elif node.name in targets:
                path = targets[node.name]
                name = self._names.get(path, path)
                kept = exported.state_dict.get(path, exported.constants.get(path))
                if isinstance(kept, torch.Tensor) and kept.is_floating_point():
                    self.check_finite(name or path, self.array(kept), path in exported.graph_signature.parameters)
                values[node] = kept
                self._paths[id(kept)] = name
            else:
                values[node] = node.meta.get("val")
        return values

    def _call(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
        found: list[Any] = []
        torch.fx.node.map_aggregate((args, kwargs), lambda x: found.append(x))
        if any(isinstance(x, Failed) for x in found):
            return Failed()
        try:
            return self._computed(node, args, kwargs)
        except Unsupported as problem:
            expected, got = problem.args
        except Exception as error:  # of an op of PyTorch, or a shape that a handler did not foresee
            expected, got = "an op that can be expressed", f"{type(error).__name__}: {error}"
        self.unsupported(expected, got)
        return Failed()

    def interpret(self, graph: torch.fx.Graph, inputs: Any) -> Any:
        """What a part of the program gives, which the current op is in."""
        before, given = self._node, iter(inputs)
        assert before is not None
        inside = {"nn_module_stack": before.meta.get("nn_module_stack")}
        values: dict[torch.fx.Node, Any] = {}
        try:
            for node in graph.nodes:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
                if node.op == "output":
                    return args[0]
                if node.op == "placeholder":
                    values[node] = next(given)
                    continue
                node.meta |= inside
                self._node = node
                values[node] = self._computed(node, args, kwargs)
        except Unsupported as problem:
            raise Unsupported(problem.args[0], f"{problem.args[1]} in {node.target}") from None
        finally:
            self._node = before

    def _computed(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if node.target is operator.getitem:
            return args[0][args[1]]
        found: list[Any] = []
        torch.fx.node.map_aggregate((args, kwargs), lambda x: found.append(x))
        if any(isinstance(x, Complex) for x in found):
            return of_complex(self, name_of(node.target), args, kwargs)
        return (self._apply if any(isinstance(x, Value) for x in found) else self._constant)(node, args, kwargs)

    def _constant(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Unsupported("numbers that are the same in each call", "random ones")
        with torch.no_grad():
            result = node.target(*args, **kwargs)  # type: ignore[operator]
        if node.target == torch.ops.aten.embedding.default:  # of the places of events
            self._paths[id(result)] = self._paths.get(id(args[0]), "")
        return result

    def _apply(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        name = name_of(node.target)
        if name in ("cat", "stack"):
            dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
            args = (joined(self, args[0], dim, name == "stack"), *args[1:])
        if name in MOVES and not looks_up(name, args):
            moved = move(node.target, args, kwargs, self.batch, torch.from_numpy)  # type: ignore[arg-type]
            return torch.utils._pytree.tree_map(lambda x: of_candidates(self, x), moved)
        if name in SAME:
            return args[0]
        if name not in HANDLERS:
            return self.made_of_others(*args, **kwargs)
        if name in OF_EVENTS:
            return HANDLERS[name](self, *args, **kwargs)
        return by_event(self, HANDLERS[name], args, kwargs, constants=name in OF_CONSTANTS,
                        widens=name in ("embedding", "one_hot"))

    def made_of_others(self, *args: Any, **kwargs: Any) -> Any:
        """The current op as PyTorch, or `made`, makes it of others."""
        node = self._node
        assert node is not None
        leaves, form = torch.utils._pytree.tree_flatten((args, kwargs))
        nodes = torch.utils._pytree.tree_leaves((node.args, node.kwargs))
        places = [i for i, n in enumerate(nodes) if isinstance(n, torch.fx.Node)]

        def call(*tensors: torch.Tensor) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors):
                filled[place] = tensor
            given, named = torch.utils._pytree.tree_unflatten(filled, form)
            return MADE.get(node.target, node.target)(*given, **named)  # type: ignore[operator, arg-type]
        graph = ops_of(call, [example_of(leaves[i], nodes[i], self.batch) for i in places])
        if any(n.target == node.target for n in graph.nodes):
            raise Unsupported("an op of the model language", "none that does this")
        return self.interpret(graph, [leaves[i] for i in places])

    def _module(self) -> tuple[str, str]:
        """Of the module that the current op is in: its path and type."""
        assert self._node is not None
        stack = list((self._node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1] if stack else ("", "")
        return self._names.get(str(path), str(path)), (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
