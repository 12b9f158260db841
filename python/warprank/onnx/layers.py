# SPDX-License-Identifier: Apache-2.0
"""Layers, products of matrices and reductions of ONNX as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..lowering.cells import Unsupported
from .handlers import computes


@computes("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@computes("Gemm")
def gemm(a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
         transB: int = 0) -> Tensor:
    a, b = a.t() if transA else a, b if transB else b.t()
    if c is not None and c.dim() == 2 and c.shape[0] == 1:
        c = c.squeeze(0)
    if alpha == beta == 1 and (c is None or c.shape == b.shape[:1]):
        return functional.linear(a, b, c)
    made = functional.linear(a, b) * alpha
    return made if c is None else made + c * beta


@computes("Einsum")
def einsum(*given: Tensor, equation: str = "") -> Tensor:
    return torch.einsum(equation, *given)


@computes("Conv")
def convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
                dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Sequence[int] = (),
                strides: Any = None) -> Tensor:
    if auto_pad == "SAME_LOWER" and any(size != 1 for size in weight.shape[2:]):
        raise Unsupported("auto_pad SAME_UPPER, or pads that are numbers", "auto_pad SAME_LOWER")
    if any(pads):
        x = functional.pad(x, _of_pads(pads))
    function = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}[x.dim()]
    return function(x, weight, bias, strides or 1, "same" if auto_pad.startswith("SAME") else 0, dilations or 1, group)


@computes("MaxPool")
def max_pool(x: Tensor, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None,
             kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), storage_order: int = 0,
             strides: Any = None) -> Tensor:
    _refuse_auto_pad(auto_pad)
    if any(pads):  # with what no maximum is
        x = functional.pad(x, _of_pads(pads), value=torch.finfo(x.dtype).min)
    function = {3: functional.max_pool1d, 4: functional.max_pool2d}[x.dim()]
    return function(x, kernel_shape, strides or 1, 0, dilations or 1, bool(ceil_mode))


@computes("AveragePool")
def average_pool(x: Tensor, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
                 dilations: Any = None, kernel_shape: Sequence[int] = (), pads: Sequence[int] = (),
                 strides: Any = None) -> Tensor:
    _refuse_auto_pad(auto_pad)
    if any(pads) or ceil_mode or any(d != 1 for d in dilations or ()):
        raise Unsupported("a mean without padding, dilations and ceil_mode, behind Pad", "one with them")
    function = {3: functional.avg_pool1d, 4: functional.avg_pool2d}[x.dim()]
    return function(x, kernel_shape, strides or 1)


@computes("GlobalMaxPool")
def max_of_channels(x: Tensor) -> Tensor:
    return torch.amax(x, tuple(range(2, x.dim())), True)


@computes("GlobalAveragePool")
def mean_of_channels(x: Tensor) -> Tensor:
    return torch.mean(x, tuple(range(2, x.dim())), True)


def _of_pads(pads: Sequence[int]) -> list[int]:
    """PyTorch's, of the last dimension first, of ONNX's, all begins before all ends."""
    half = len(pads) // 2
    return [p for pair in reversed(list(zip(pads[:half], pads[half:]))) for p in pair]


def _refuse_auto_pad(auto_pad: str) -> None:
    if auto_pad not in ("NOTSET", "VALID"):
        raise Unsupported("pads that are numbers", f"auto_pad '{auto_pad}'")


@computes("BatchNormalization")
def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5,
               momentum: float = 0.9, training_mode: int = 0) -> Tensor:
    if training_mode:
        raise Unsupported("a model in evaluation", "one in training")
    return functional.batch_norm(x, mean, variance, weight, bias, eps=epsilon)


@computes("LayerNormalization")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5,
               stash_type: int = 1) -> Tensor:
    shape = x.shape[axis:]
    if weight.shape == shape and (bias is None or bias.shape == shape):
        return functional.layer_norm(x, shape, weight, bias, epsilon)
    made = functional.layer_norm(x, shape, eps=epsilon) * weight
    return made if bias is None else made + bias


@computes("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


@computes("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x - torch.logsumexp(x, axis, keepdim=True)


@computes("CumSum", numbers="axis")
def cumulated(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    x = x.movedim(int(axis), -1)
    x = x.flip(-1) if reverse else x
    x = torch.cumsum(functional.pad(x[..., :-1], (1, 0)) if exclusive else x, -1, dtype=x.dtype)
    return (x.flip(-1) if reverse else x).movedim(-1, int(axis))


# --- reductions: axes are an attribute before opset 13 to 18, and an input from then on


def product(x: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    for d in sorted((a % x.dim() for a in axes), reverse=True):
        x = reduce(torch.mul, x.split(1, d))
        x = x if keepdim else x.squeeze(d)
    return x


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def made(x: Tensor, axes: Sequence[int] | None = None, *, keepdims: int = 1,
             noop_with_empty_axes: int = 0) -> Tensor:
        if not axes and noop_with_empty_axes:
            return x
        return function(x, tuple(axes or range(x.dim())), bool(keepdims))
    return made


for _name, _function in {
        "ReduceSum": torch.sum, "ReduceMean": torch.mean, "ReduceMax": torch.amax, "ReduceMin": torch.amin,
        "ReduceProd": product,
        "ReduceL1": lambda x, axes, keep: torch.sum(torch.abs(x), axes, keep),
        "ReduceL2": lambda x, axes, keep: torch.sqrt(torch.sum(torch.square(x), axes, keep)),
        "ReduceSumSquare": lambda x, axes, keep: torch.sum(torch.square(x), axes, keep),
        "ReduceLogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keep)),
        "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keep)}.items():
    computes(_name, numbers="axes")(_reduction(_function))
