# SPDX-License-Identifier: Apache-2.0
"""A node of ONNX as a module of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from torch import Tensor

from .handlers import Op
from .reading import name_of


@dataclass(frozen=True)
class Read:
    """A tensor among a step's arguments, by its name."""

    name: str


class Step(torch.nn.Module):  # type: ignore[misc]
    """What a node computes of tensors; a class of its op's name, which messages tell."""

    def __init__(self, called: str, op: Op, arguments: list[Any], attributes: Mapping[str, Any], outputs: list[str]):
        super().__init__()
        self.called, self.op, self.arguments, self.attributes, self.outputs = called, op, arguments, attributes, outputs
        self.kind = type(self).__name__
        self.reads = [x.name for x in arguments if isinstance(x, Read)]

    @classmethod
    def of(cls, node: onnx.NodeProto, op: Op, arguments: list[Any], attributes: Mapping[str, Any],
           outputs: list[str]) -> Step:
        return type(node.op_type, (cls,), {})(name_of(node).strip("/"), op, arguments, attributes, outputs)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        made = self.op.compute(*(next(given) if isinstance(x, Read) else x for x in self.arguments), **self.attributes)
        return made if isinstance(made, tuple) else (made,)
