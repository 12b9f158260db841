# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of ONNX as functions of tensors."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .handlers import computes, element_type

for _name, _function in {
        "Abs": torch.abs, "Add": torch.add, "And": torch.logical_and, "Atan": torch.atan, "Ceil": torch.ceil,
        "Cos": torch.cos, "Equal": torch.eq, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor,
        "Greater": torch.gt, "GreaterOrEqual": torch.ge, "HardSwish": functional.hardswish, "IsNaN": torch.isnan,
        "Less": torch.lt, "LessOrEqual": torch.le, "Log": torch.log, "Mish": functional.mish, "Mul": torch.mul,
        "Neg": torch.neg, "Not": torch.logical_not, "Or": torch.logical_or, "Reciprocal": torch.reciprocal,
        "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin,
        "Softplus": functional.softplus, "Sqrt": torch.sqrt, "Sub": torch.sub, "Tanh": torch.tanh, "Where": torch.where,
        "Xor": torch.logical_xor}.items():
    computes(_name)(_function)


@computes("Div")
def div(a: Tensor, b: Tensor) -> Tensor:
    is_whole = not a.is_floating_point()
    return torch.div(a, b, rounding_mode="trunc") if is_whole else torch.div(a, b)


@computes("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return torch.isinf(x)
    if not detect_negative and not detect_positive:
        return torch.zeros_like(x, dtype=torch.bool)
    return x == (math.inf if detect_positive else -math.inf)


@computes("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@computes("Pow")
def power(x: Tensor, exponent: Tensor) -> Tensor:
    made = torch.pow(x, exponent)
    return made if made.dtype == x.dtype else made.to(x.dtype)


@computes("Min")
def minimum(*given: Tensor) -> Tensor:
    return reduce(torch.minimum, given)


@computes("Max")
def maximum(*given: Tensor) -> Tensor:
    return reduce(torch.maximum, given)


@computes("Sum")
def total(*given: Tensor) -> Tensor:
    return reduce(torch.add, given)


@computes("Mean")
def mean(*given: Tensor) -> Tensor:
    return total(*given) / len(given)


@computes("Clip", numbers="least most")
def clip(x: Tensor, least: Any = None, most: Any = None) -> Tensor:
    return x if least is None and most is None else torch.clamp(x, least, most)


@computes("Cast", is_move=True)
def cast(x: Tensor, *, to: int = 1, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(element_type(to))


@computes("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(like.dtype)


# --- activations


@computes("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return functional.leaky_relu(x, alpha)


@computes("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    if slope.numel() == 1 or (x.dim() == 2 and slope.shape == x.shape[1:]):
        return functional.prelu(x, slope.reshape(-1))
    return torch.relu(x) - slope * torch.relu(-x)


@computes("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return functional.elu(x, alpha)


@computes("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return functional.elu(x / alpha) * alpha


@computes("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return gamma * functional.elu(x, alpha)


@computes("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return functional.gelu(x, approximate=approximate)


@computes("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(x * alpha + beta, 0, 1)


@computes("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(x if alpha == 1 else x * alpha)


@computes("Sign")
def sign(x: Tensor) -> Tensor:
    return torch.sign(x)


@computes("Softsign")
def softsign(x: Tensor) -> Tensor:
    return x / (1 + torch.abs(x))


@computes("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, 0.0)
