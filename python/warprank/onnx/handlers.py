# SPDX-License-Identifier: Apache-2.0
"""Which function of tensors computes which op of ONNX."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from onnx.helper import tensor_dtype_to_np_dtype


def element_type(of_onnx: int) -> torch.dtype:
    """Of a tensor whose elements have this type of ONNX."""
    return getattr(torch, tensor_dtype_to_np_dtype(of_onnx).name)


@dataclass
class Op:
    """A function of an op's inputs by place, None for those that are left out, and of its attributes by name."""

    compute: Callable[..., Any]
    numbers: frozenset[str] = frozenset()  # inputs that have to be known without a batch, and come as Python's numbers
    may_be_numbers: frozenset[str] = frozenset()  # inputs that come so where they are known
    is_move: bool = False  # of a constant it makes the same constant in another place, which keeps its name
    inputs: list[str] = field(init=False)
    attributes: set[str] = field(init=False)

    def __post_init__(self) -> None:
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        try:
            taken = list(inspect.signature(self.compute).parameters.values())
        except ValueError:  # of PyTorch's own functions: none has an attribute
            taken = []
        self.inputs = [p.name for p in taken if p.kind in by_place]
        self.attributes = {p.name for p in taken if p.default is not p.empty}


OPS: dict[str, Op] = {}


def computes(*names: str, numbers: str = "", may_be_numbers: str = "", is_move: bool = False) -> Callable[..., Any]:
    """Registers a function as what computes ops."""
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            OPS[name] = Op(function, frozenset(numbers.split()), frozenset(may_be_numbers.split()), is_move)
        return function
    return register
