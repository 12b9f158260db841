# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of a PyTorch program in a graph: elementwise functions, activations, masks, reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

import warprank as wr

from ..lowering.arithmetic import (activation, apply, binary, by_column, constant_vector, padded, part_of_gelu,
                                   power, refused_if_read, required_scalar, scalar_of)
from ..lowering.cells import Unsupported, Value, numbers
from ..lowering.ids import of_numbers
from ..lowering.lengths import are_whole
from ..lowering.masks import is_nan as of_softmax
from ..lowering.places import by_event
from ..lowering.reductions import reduce
from .handlers import HANDLERS, OF_CONSTANTS, handles, name_of

if TYPE_CHECKING:
    from .program import Program

KEPT_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # all is computed in FP32
WHOLE_TYPES = (torch.int64, torch.int32)


def times(p: Program, x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else (x * alpha if not isinstance(x, Value) else apply(p, "mul", x, alpha))


@handles("add", "add_", constants=True)
def add(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    if p.current().meta["val"].dtype == torch.bool:
        return binary(p, "max", a, b)
    if not isinstance(b, Value) and scalar_of(b) == 0 and isinstance(a, Value):
        return a  # of sum()
    return binary(p, "add", a, times(p, b, alpha))


@handles("sub", "sub_", constants=True)
def sub(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    return binary(p, "sub", a, times(p, b, alpha))


@handles("rsub", constants=True)
def rsub(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    return binary(p, "sub", b, times(p, a, alpha))


def register_binary(name: str, function: str) -> None:
    HANDLERS[name] = lambda p, a, b: binary(p, function, a, b)
    OF_CONSTANTS.add(name)


@handles("div", "div_", "floor_divide", constants=True)
def div(p: Program, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is not None or name_of(p.current().target) == "floor_divide":
        raise Unsupported("a quotient as it is; a rounded one, as of ids, as an input of its own", "one that is rounded")
    return binary(p, "div", a, b)


for _name, _function in {"mul": "mul", "mul_": "mul", "minimum": "min", "maximum": "max",
                         "atan2": "atan2", "atan2_": "atan2", "arctan2": "atan2", "lt": "less", "le": "less_equal",
                         "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}.items():
    register_binary(_name, _function)


def register_logical(names: str, function: str) -> None:
    @handles(*names.split(), constants=True)
    def logical(p: Program, *given: Any) -> Value:
        _check_truth(p)
        return binary(p, function, *(_truth(p, x, node) for x, node in zip(given, p.current().args)))


register_logical("logical_and bitwise_and __and__", "mul")
register_logical("logical_or bitwise_or __or__", "max")


@handles("logical_not", "bitwise_not")
def logical_not(p: Program, x: Any) -> Value:
    _check_truth(p)
    return apply(p, "equal", numbers(x), 0.0)


def _truth(p: Program, x: Any, node: Any) -> Any:
    """Whether numbers are other than 0."""
    if not isinstance(x, Value):
        return x != 0
    return x if node.meta["val"].dtype == torch.bool else binary(p, "not_equal", x, 0)


def _check_truth(p: Program) -> None:
    """That the current op is none of bits."""
    made = p.current().meta["val"].dtype
    if made != torch.bool:
        raise Unsupported("truth values", f"'{name_of(p.current().target)}' of {made}")


@handles("native_dropout")
def native_dropout(p: Program, x: Any, share: float, *_: Any) -> tuple[Any]:
    if share > 0:
        raise Unsupported("dropout that is off in evaluation, as F.dropout(x, p, self.training)", f"one of {share}")
    return (x,)


@handles("where", constants=True)
def where(p: Program, condition: Any, a: Any, b: Any) -> Value:
    if not isinstance(condition, Value) and scalar_of(condition) is None:
        return by_column(p, condition, a, b)
    return apply(p, "select", *(x if isinstance(x, Value) else required_scalar(x) for x in (a, b, condition)))


@handles("masked_fill", "masked_fill_", constants=True)
def masked_fill(p: Program, x: Any, condition: Any, value: Any) -> Value:
    return where(p, condition, value, x)


@handles("constant_pad_nd")
def constant_pad_nd(p: Program, x: Any, pads: Sequence[int], value: float = 0) -> Value:
    by_dimension = [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)]
    return padded(p, x, [(0, 0)] * (numbers(x).cells.ndim - len(by_dimension)) + by_dimension[::-1], value)


@handles("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", events=True)
def full_like(p: Program, x: Value, *given: Any, **_: Any) -> torch.Tensor:
    node = p.current()
    kind = node.target._schema.name.partition("::")[2]
    number = 0.0 if "zeros" in kind else 1.0 if "ones" in kind else given[-1]
    shape = [p.batch if isinstance(size, torch.SymInt) else size for size in node.meta["val"].shape]  # of some rows
    return torch.full(shape, number, dtype=node.meta["val"].dtype)


@handles("to", "_to_copy", "type_as", "float", "bool", "int", "long", events=True)
def converted(p: Program, x: Value, *_: Any, **__: Any) -> Value:
    sources = {p.sources.of(int(cell))[0].kind for cell in x.cells.flat}
    before, to = (node.meta["val"].dtype for node in (p.current().args[0], p.current()))
    if to == torch.bool and before != to:
        return by_event(p, HANDLERS["ne"], (x, 0), {}, constants=True)
    if x.is_ids and to in KEPT_TYPES:
        raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")
    if not x.is_ids and to in WHOLE_TYPES and sources == {"dense"}:
        return of_numbers(p, x)
    is_whole = to in WHOLE_TYPES and (not before.is_floating_point or are_whole(p, x))
    if not x.is_ids and not is_whole and to not in (*KEPT_TYPES, before):
        raise Unsupported("floating-point numbers", f"a conversion to {to}")
    return Value(x.cells, x.is_ids and to not in KEPT_TYPES, x.batch, x.inner)


handles("pow")(power)


def register_unary(name: str, function: str) -> None:
    HANDLERS[name] = lambda p, x, **_: apply(p, function, numbers(x))


for _name, _function in {"relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu",
                         "silu_": "silu", "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "abs", "neg": "neg",
                         "_neg_view": "neg", "square": "square", "sin": "sin", "sin_": "sin", "cos": "cos",
                         "cos_": "cos"}.items():
    register_unary(_name, _function)


@handles("isnan")
def isnan(p: Program, x: Any) -> Value:
    found = of_softmax(p, numbers(x).cells)
    return binary(p, "not_equal", x, x) if found is None else x.like(found)


@handles("isinf")
def isinf(p: Program, x: Any) -> Value:
    return binary(p, "equal", apply(p, "abs", numbers(x)), math.inf)


@handles("atan")
def atan(p: Program, x: Any) -> Value:
    return apply(p, "atan2", numbers(x), 1.0)


@handles("log1p")
def log1p(p: Program, x: Any) -> Value:
    return apply(p, "log", apply(p, "add", numbers(x), 1.0))


@handles("expm1")
def expm1(p: Program, x: Any) -> Value:
    return apply(p, "sub", apply(p, "exp", numbers(x)), 1.0)


@handles("reciprocal")
def reciprocal(p: Program, x: Any) -> Value:
    return apply(p, "div", 1.0, numbers(x))


@handles("rsqrt")
def rsqrt(p: Program, x: Any) -> Value:
    return apply(p, "div", 1.0, apply(p, "sqrt", numbers(x)))


@handles("gelu")
def gelu(p: Program, x: Any, approximate: str = "none") -> Value:
    return apply(p, "gelu_tanh" if approximate == "tanh" else "gelu", numbers(x))


@handles("erf", "erfc")
def erf(p: Program, x: Any) -> Value:
    return part_of_gelu(p, name_of(p.current().target), x)


@handles("leaky_relu", "leaky_relu_")
def leaky_relu(p: Program, x: Any, negative_slope: float = 0.01) -> Value:
    return activation(p, x, wr.Activation("leaky_relu", alpha=negative_slope), {}, None)


@handles("elu", "elu_")
def elu(p: Program, x: Any, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Value:
    if input_scale != 1:
        raise Unsupported("elu with an input_scale of 1", str(input_scale))
    return times(p, activation(p, x, wr.Activation("elu", alpha=alpha), {}, None), scale)


@handles("prelu", "_prelu_kernel")
def prelu(p: Program, x: Any, weight: torch.Tensor) -> Value:
    by_channel = weight.reshape(-1, *[1] * (numbers(x).cells.ndim - 2)) if weight.numel() > 1 else weight.reshape(-1)
    if weight.numel() > 1 and by_channel.shape[0] not in (1, *numbers(x).cells.shape[1:2]):
        raise Unsupported("a slope for all, or for each of the second dimension, which is no dimension of events",
                          f"{weight.numel()} slopes")
    alpha = constant_vector(p, by_channel, x)
    return activation(p, x, wr.Activation("prelu"), {"prelu.alpha": alpha}, p.path_of(weight, ".weight"))


@handles("clamp", "clamp_", "hardtanh", "hardtanh_", "clamp_min", "clamp_max")
def clamp(p: Program, x: Any, min: Any = None, max: Any = None) -> Any:
    if p.current().target._schema.name.endswith("clamp_max"):
        min, max = None, min
    for function, limit in (("max", min), ("min", max)):
        if limit is not None:
            x = apply(p, function, numbers(x), required_scalar(limit))
    return x


# --- reductions


@handles("sum", events=True)
def sum_(p: Program, x: Any, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    before = p.current().args[0].meta["val"].dtype
    if dtype not in (None, *KEPT_TYPES) and (before.is_floating_point or dtype not in WHOLE_TYPES):
        raise Unsupported("floating-point numbers", f"a conversion to {dtype}")
    return reduce(p, x, dims, keepdim, "sum", "add")


@handles("mean", events=True)
def mean(p: Program, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return reduce(p, x, dims, keepdim, "mean", "add")


@handles("amax", events=True)
def amax(p: Program, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
    return reduce(p, x, dims, keepdim, "max", "max")


@handles("amin", events=True)
def amin(p: Program, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
    turned = by_event(p, HANDLERS["neg"], (x,), {})
    return by_event(p, HANDLERS["neg"], (amax(p, turned, dims, keepdim),), {})


def register_extreme(name: str, values: Any) -> None:
    """Of max(dim) and min(dim) the numbers; where they are the library does not say. Of two tensors the larger one."""
    @handles(name, events=True)
    def extreme(p: Program, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is not None and not isinstance(dim, int):
            return by_event(p, HANDLERS[f"{name}imum"], (x, dim), {}, constants=True)
        made = values(p, x, dim, keepdim)
        return made, refused_if_read(p, made, name, f"the numbers of {name}(dim)", "their places")


register_extreme("max", amax)
register_extreme("min", amin)
