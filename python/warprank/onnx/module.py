# SPDX-License-Identifier: Apache-2.0
"""A graph of ONNX as a module of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor
from torch._subclasses import FakeTensorMode

from ..errors import Problems
from ..lowering.cells import Unsupported
from . import elementwise, layers, moves  # noqa: F401: they register what they compute
from .handlers import OPS, Op
from .reading import check_op, name_of

MADE_UP = ("onnx::", "val_")  # how PyTorch's exporters begin the names of what they computed


def tensor_of(given: onnx.TensorProto) -> Tensor:
    array = numpy_helper.to_array(given)
    known = array.dtype.kind in "biuf"  # others are small floats of ml_dtypes
    return torch.from_numpy(np.array(array if known else array.astype(np.float32)))


@dataclass(frozen=True)
class Read:
    """A tensor among a step's arguments, by its name."""

    name: str


class Step(torch.nn.Module):  # type: ignore[misc]
    """A node, as a module whose class has its op's name, which messages tell."""

    def __init__(self, called: str, op: Op, arguments: list[Any], attributes: Mapping[str, Any], outputs: list[str]):
        super().__init__()
        self.called, self.op, self.arguments, self.attributes, self.outputs = called, op, arguments, attributes, outputs
        self.reads = [x.name for x in arguments if isinstance(x, Read)]

    @classmethod
    def of(cls, node: onnx.NodeProto, arguments: list[Any], attributes: Mapping[str, Any]) -> Step:
        kind = type(node.op_type, (cls,), {})
        return kind(name_of(node).strip("/"), OPS[node.op_type], arguments, attributes, list(node.output))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        made = self.op.compute(*(next(given) if isinstance(x, Read) else x for x in self.arguments), **self.attributes)
        return made if isinstance(made, tuple) else (made,)


class Graph(torch.nn.Module):  # type: ignore[misc]
    """A model for one example: a dict of tensors, of which it makes a dict. What does not depend on their values, as
    their shapes, is computed when it is made; the steps are what is left.

    Raises everything that cannot be computed together.
    """

    def __init__(self, model: onnx.ModelProto, example: Mapping[str, Tensor]):
        super().__init__()
        self.names: dict[str, str] = {}  # by path in the module that in the model
        self._outputs = [output.name for output in model.graph.output]
        self._constants: dict[str, Tensor] = {t.name: tensor_of(t) for t in model.graph.initializer}
        self._paths = {id(x): "" if n.startswith(MADE_UP) else n for n, x in self._constants.items()}
        self._buffers_of: dict[int, str] = {}
        self._problems = Problems()
        self._steps: list[Step] = []
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._values: dict[str, Tensor | None] = {  # None: there was a problem
            name: self._mode.from_tensor(tensor) for name, tensor in example.items()}
        self._add(model.graph.node)
        self._problems.raise_if_any()
        self._leave_out_unread()
        read = {name for step in self._steps for name in step.reads} | set(self._outputs)
        self._kept = {name: self._buffer(x) for name, x in self._constants.items() if name in read}
        self.steps = torch.nn.ModuleList(self._steps)
        self.names |= {f"steps.{i}": step.called for i, step in enumerate(self._steps)}
        del self._constants, self._values, self._mode

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        values = dict(batch)
        values |= {name: self.get_buffer(buffer) for name, buffer in self._kept.items()}
        for step in self._steps:
            values.update(zip(step.outputs, step(*(values[name] for name in step.reads))))
        return {name: values[name] for name in self._outputs}

    def _leave_out_unread(self) -> None:
        read, kept = set(self._outputs), []
        for step in reversed(self._steps):
            if read & set(step.outputs):
                read |= set(step.reads)
                kept.append(step)
        self._steps = kept[::-1]

    def _buffer(self, tensor: Tensor) -> str:
        if id(tensor) not in self._buffers_of:
            name = self._buffers_of[id(tensor)] = f"constant_{len(self._buffers_of)}"
            self.register_buffer(name, tensor)
            self.names[name] = self._paths.get(id(tensor), "")
        return self._buffers_of[id(tensor)]

    def _add(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            found = len(self._problems)
            check_op(node, self._problems)
            try:
                if len(self._problems) == found:
                    self._add_branch(node) if node.op_type == "If" else self._add_node(node)
                    continue
            except Unsupported as problem:
                expected, got = problem.args
                self._problems.add(f"node '{name_of(node)}' ({node.op_type})", expected, got)
            except Exception as error:  # of PyTorch, whose function does not take the tensors
                self._problems.add(f"node '{name_of(node)}' ({node.op_type})", "tensors that the op takes",
                                   f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
            self._values |= dict.fromkeys(node.output)

    def _add_branch(self, node: onnx.NodeProto) -> None:
        condition = self._constants.get(node.input[0])
        if condition is None:
            raise Unsupported("a condition that is known without a batch", "control flow by values")
        wanted = "then_branch" if bool(condition) else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == wanted)
        self._constants |= {t.name: tensor_of(t) for t in branch.initializer}
        self._add(branch.node)
        for made, output in zip(node.output, branch.output):
            of = self._constants if output.name in self._constants else self._values
            of[made] = of[output.name]  # type: ignore[assignment]
            if of is self._values:
                same = onnx.helper.make_node("Identity", [output.name], [made])
                self._steps.append(Step.of(same, [Read(output.name)], {}))

    def _add_node(self, node: onnx.NodeProto) -> None:
        """A step, or constants of constants."""
        if any(name in self._values and self._values[name] is None for name in node.input):
            self._values |= dict.fromkeys(node.output)
            return
        op = OPS[node.op_type]
        attributes = {a.name: _attribute(a) for a in node.attribute}
        arguments = [self._argument(op, i, name) for i, name in enumerate(node.input)]
        if node.op_type == "Split" and len(node.input) < 2:
            attributes.setdefault("num_outputs", len(node.output))
        step = Step.of(node, arguments, attributes)
        known = all(name in self._constants for name in step.reads)
        if known or node.op_type in ("Shape", "Size"):
            made = step(*(self._tensor(name) for name in step.reads))
            self._constants |= zip(node.output, made)
            if op.is_move and step.reads:
                self._paths.setdefault(id(made[0]), self._paths.get(id(self._tensor(step.reads[0])), ""))
            return
        with self._mode:
            made = step(*(self._tensor(name) for name in step.reads))
        self._values |= zip(node.output, made)
        self._steps.append(step)

    def _tensor(self, name: str) -> Tensor:
        found = self._constants[name] if name in self._constants else self._values[name]
        assert found is not None
        return found

    def _argument(self, op: Op, place: int, name: str) -> Any:
        """What a step gets for an input: a tensor, numbers, or None for one that is left out."""
        if not name:
            return None
        parameter = op.inputs[place] if place < len(op.inputs) else ""
        if parameter in op.numbers | op.may_be_numbers and name in self._constants:
            return self._constants[name].tolist()
        if parameter in op.numbers:
            raise Unsupported(f"'{parameter}' that is known without a batch", f"'{name}', which is computed of one")
        return Read(name)


def _attribute(given: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(given)
    if isinstance(value, onnx.TensorProto):
        return tensor_of(value)
    return value.decode() if isinstance(value, bytes) else value
