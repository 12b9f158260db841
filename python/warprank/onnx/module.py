# SPDX-License-Identifier: Apache-2.0
"""A graph of ONNX as a module of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor
from torch._subclasses import FakeTensorMode

from ..errors import Problems
from ..lowering.cells import Unsupported
from . import elementwise, fourier, layers, moves, recurrent  # noqa: F401: they register what they compute
from .handlers import OPS, Op
from .loops import Told, add_loop, add_of_sequence
from .reading import OF_SEQUENCES, check_op, name_of
from .steps import Read, Step

NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
MADE_UP = ("onnx::", "val_")  # how PyTorch's exporters begin the names of what they computed


def tensor_of(given: onnx.TensorProto) -> Tensor:
    array = numpy_helper.to_array(given)
    known = array.dtype.kind in "biuf"  # others are small floats of ml_dtypes
    return torch.from_numpy(np.array(array if known else array.astype(np.float32)))


class Graph(torch.nn.Module):  # type: ignore[misc]
    """A model for one example: a dict of tensors, of which it makes a dict. What does not depend on their values, as
    their shapes, is computed when it is made; the steps are what is left.

    Raises everything that cannot be computed together.
    """

    def __init__(self, model: onnx.ModelProto, example: Mapping[str, Tensor]):
        super().__init__()
        self.names: dict[str, str] = {}  # by path in the module that in the model
        self._outputs = [output.name for output in model.graph.output]
        self.constants: dict[str, Tensor] = {t.name: tensor_of(t) for t in model.graph.initializer}
        self._paths = {id(x): "" if n.startswith(MADE_UP) else n for n, x in self.constants.items()}
        self._buffers_of: dict[int, str] = {}
        self._problems = Problems()
        self.steps_made: list[Step] = []
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.values: dict[str, Tensor | None] = {
            name: self._mode.from_tensor(tensor) for name, tensor in example.items()}
        self.sequences: dict[str, list[str]] = {}
        self.stacked: dict[str, str] = {}
        self.add_nodes(model.graph.node)
        self._problems.raise_if_any()
        steps = self._read_steps()
        read = {name for step in steps for name in step.reads} | set(self._outputs)
        self._kept = {name: self._buffer(x) for name, x in self.constants.items() if name in read}
        self.steps = torch.nn.ModuleList(steps)
        self.names |= {f"steps.{i}": step.called for i, step in enumerate(steps)}
        del self.constants, self.values, self.steps_made, self._mode

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        values = dict(batch)
        values |= {name: self.get_buffer(buffer) for name, buffer in self._kept.items()}
        for step in self.steps:
            values.update(zip(step.outputs, step(*(values[name] for name in step.reads))))
        return {name: values[name] for name in self._outputs}

    def _read_steps(self) -> list[Step]:
        read, kept = set(self._outputs), []
        for step in reversed(self.steps_made):
            if read & set(step.outputs):
                read |= set(step.reads)
                kept.append(step)
        return kept[::-1]

    def _buffer(self, tensor: Tensor) -> str:
        if id(tensor) not in self._buffers_of:
            name = self._buffers_of[id(tensor)] = f"constant_{len(self._buffers_of)}"
            self.register_buffer(name, tensor)
            self.names[name] = self._paths.get(id(tensor), "")
        return self._buffers_of[id(tensor)]

    def add_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            found = len(self._problems)
            check_op(node, self._problems)
            if any(name in self.values and self.values[name] is None for name in node.input) or \
                    len(self._problems) > found:
                self.values |= dict.fromkeys(node.output)
                continue
            try:
                self._add(node)
                continue
            except Told:
                self.values |= dict.fromkeys(node.output)
                continue
            except Unsupported as problem:
                expected, got = problem.args
            except Exception as error:  # of PyTorch, whose function does not take the tensors
                expected = "tensors that the op takes"
                got = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            self._problems.add(f"node '{name_of(node)}' ({node.op_type})", expected, got)
            self.values |= dict.fromkeys(node.output)

    def _add(self, node: onnx.NodeProto) -> None:
        if node.op_type == "If":
            self._add_branch(node)
        elif node.op_type == "Loop":
            add_loop(self, node)
        elif node.op_type in OF_SEQUENCES:
            add_of_sequence(self, node)
        else:
            self._add_node(node)

    def add_graph(self, graph: onnx.GraphProto) -> None:
        """That of a branch or a turn."""
        self.constants |= {t.name: tensor_of(t) for t in graph.initializer}
        self.add_nodes(graph.node)

    def add_step(self, step: Step) -> None:
        with self._mode:
            self.values |= zip(step.outputs, step(*(self.tensor(name) for name in step.reads)))
        self.steps_made.append(step)

    def tensor(self, name: str) -> Tensor:
        found = self.constants[name] if name in self.constants else self.values[name]
        assert found is not None
        return found

    def _add_branch(self, node: onnx.NodeProto) -> None:
        condition = self.constants.get(node.input[0])
        if condition is None:
            raise Unsupported("a condition that is known without a batch", "control flow by values")
        wanted = "then_branch" if bool(condition) else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == wanted)
        self.add_graph(branch)
        for made, output in zip(node.output, branch.output):
            self.add_nodes([onnx.helper.make_node("Identity", [output.name], [made])])

    def _add_node(self, node: onnx.NodeProto) -> None:
        """A step, or constants of constants."""
        same = self._unchanged(node)
        if same is not None:
            node = onnx.helper.make_node("Identity", [same], list(node.output), node.name)
        op = OPS[node.op_type]
        attributes = {a.name: _attribute(a) for a in node.attribute}
        arguments = [self._argument(op, i, name) for i, name in enumerate(node.input)]
        if node.op_type == "Split" and len(node.input) < 2:
            attributes.setdefault("num_outputs", len(node.output))
        step = Step.of(node, op, arguments, attributes, list(node.output))
        if node.op_type not in ("Shape", "Size") and not all(name in self.constants for name in step.reads):
            self.add_step(step)
            return
        made = step(*(self.tensor(name) for name in step.reads))
        self.constants |= zip(node.output, made)
        if op.is_move and step.reads:
            self._paths.setdefault(id(made[0]), self._paths.get(id(self.tensor(step.reads[0])), ""))

    def _unchanged(self, node: onnx.NodeProto) -> str | None:
        """The input that an op with a constant leaves as it is, as bags do without weights."""
        number = NEUTRAL.get(node.op_type)
        for x, other in (node.input, node.input[::-1]) if number is not None else ():
            constant = self.constants.get(other)
            if x in self.values and constant is not None and bool((constant == number).all()) and \
                    (x == node.input[0] or node.op_type in ("Add", "Mul")) and \
                    torch.broadcast_shapes(self.tensor(x).shape, constant.shape) == self.tensor(x).shape:
                return x
        return None

    def _argument(self, op: Op, place: int, name: str) -> Any:
        """What a step gets for an input: a tensor, numbers, or None for one that is left out."""
        if not name:
            return None
        parameter = op.inputs[place] if place < len(op.inputs) else ""
        if parameter in op.numbers | op.may_be_numbers and name in self.constants:
            return self.constants[name].tolist()
        if parameter in op.numbers:
            raise Unsupported(f"'{parameter}' that is known without a batch", f"'{name}', which is computed of one")
        return Read(name)


def _attribute(given: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(given)
    if isinstance(value, onnx.TensorProto):
        return tensor_of(value)
    return value.decode() if isinstance(value, bytes) else value
