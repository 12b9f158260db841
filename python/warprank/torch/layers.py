# SPDX-License-Identifier: Apache-2.0
"""Layers of a PyTorch program in a graph: linear ones, norms, softmax, products of matrices, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..lowering import layers, linears, norms
from ..lowering.arithmetic import constant_rows, constant_vector
from ..lowering.cells import Unsupported, Value, move, numbers
from ..lowering.limits import MOST_OF_CONVOLUTION
from ..lowering.places import by_event, matmul_constant
from .composed import example_of, ops_of
from .handlers import HANDLERS, handles

if TYPE_CHECKING:
    from .program import Program


@handles("linear")
def linear(p: Program, x: Any, weight: Any, bias: torch.Tensor | None = None) -> Value:
    if isinstance(x, torch.Tensor) and isinstance(weight, Value) and bias is None:  # of columns, as in x @ batch.T
        return transposed(linear(p, weight, x))
    if not isinstance(weight, torch.Tensor):
        raise Unsupported("a weight that is a parameter", "one that is computed")
    return linears.linear(p, x, p.array(weight), None if bias is None else p.array(bias), p.path_of(weight, ".weight"))


@handles("conv1d", "conv2d", events=True)
def convolution(p: Program, x: Any, weight: torch.Tensor, bias: torch.Tensor | None = None, *options: Any) -> Value:
    """A linear layer over channels and the dimensions along which it is more than that, for each place of the others."""
    if numbers(x).cells.ndim != weight.dim():
        raise Unsupported("a convolution of [batch, channels, ..]", f"{x.cells.ndim} dimensions")
    stride, padding = (*options, *(1, 0)[len(options):])[:2]
    given = [_by_dimension(each, weight.dim() - 2) for each in (stride, 0 if padding == "valid" else padding)]
    mixed = [d for d, size in enumerate(weight.shape[2:]) if (size, given[0][d], given[1][d]) != (1, 1, 0)]
    made = partial(_convolved, mixed=mixed, call=lambda channels, by: p.current().target(
        channels, by, None, *options))
    place, _ = p.sources.split_events(x.cells)
    if place is not None and (place == x.batch or place + weight.dim() - 2 in mixed):
        raise Unsupported("a convolution over channels and columns", "one over events")
    return by_event(p, made, (x, weight, bias), {})


def _by_dimension(given: Any, count: int) -> list[Any]:
    each = [given] * count if isinstance(given, (int, str)) else list(given)
    return each * count if len(each) < count else each


def _convolved(p: Program, x: Value, weight: torch.Tensor, bias: torch.Tensor | None, mixed: list[int],
               call: Any) -> Value:
    """mixed: of the dimensions behind channels those that it adds over, or has other places of"""
    sizes = [x.cells.shape[2 + d] if d in mixed else 1 for d in range(weight.dim() - 2)]
    inputs = math.prod([x.cells.shape[1], *sizes])
    of_meta = torch.empty(1, x.cells.shape[1], *sizes, device="meta")
    outputs = call(of_meta, torch.empty(weight.shape, device="meta")).numel()
    if inputs * outputs > MOST_OF_CONVOLUTION:
        raise Unsupported(f"a convolution that is a layer of at most {MOST_OF_CONVOLUTION} numbers",
                          str(inputs * outputs))
    each_input = torch.eye(inputs).reshape(inputs, x.cells.shape[1], *sizes)
    of_each = call(each_input, weight.detach().float())  # what it adds to the outputs
    shape, matrix = of_each.shape[1:], of_each.flatten(1).t()
    last = [1, *(2 + d for d in mixed)]
    ends = list(range(-len(last), 0))
    by_place = move(torch.ops.aten.movedim.intlist, (x, last, ends), {}, p.batch, torch.from_numpy)
    flat = move(torch.ops.aten.flatten.using_ints, (by_place, -len(last), -1), {}, p.batch, torch.from_numpy)
    shift = None if bias is None else bias.reshape(-1, *[1] * (len(shape) - 1)).expand(shape).flatten()
    made = linear(p, flat, matrix, shift)
    kept = [shape[0], *(shape[1 + d] for d in mixed)]
    apart = move(torch.ops.aten.unflatten.int, (made, -1, kept), {}, p.batch, torch.from_numpy)
    return move(torch.ops.aten.movedim.intlist, (apart, ends, last), {}, p.batch, torch.from_numpy)


@handles("tensordot")
def tensordot(p: Program, x: Any, weight: Any, dims: Sequence[int], of_weight: Sequence[int]) -> Any:
    """With a parameter: a linear layer."""
    if not isinstance(x, Value) or not isinstance(weight, torch.Tensor):
        raise Unsupported("a batch and a parameter", "two batches, or the parameter first")
    dims, of_weight = ([d % n for d in given] for given, n in ((dims, x.cells.ndim), (of_weight, weight.dim())))
    kept = [d for d in range(x.cells.ndim) if d not in dims]
    moved = move(torch.ops.aten.permute.default, (x, [*kept, *dims]), {}, p.batch, torch.from_numpy)
    if len(dims) > 1:
        moved = move(torch.ops.aten.flatten.using_ints, (moved, len(kept), -1), {}, p.batch, torch.from_numpy)
    others = [d for d in range(weight.dim()) if d not in of_weight]
    matrix = weight.permute(*others, *of_weight).reshape(-1, moved.cells.shape[-1])
    made = linear(p, moved, matrix)
    if len(others) == 1:
        return made
    sizes = [weight.shape[d] for d in others] or [1]
    made = move(torch.ops.aten.unflatten.int, (made, -1, sizes), {}, p.batch, torch.from_numpy)
    return made if others else move(torch.ops.aten.squeeze.dim, (made, -1), {}, p.batch, torch.from_numpy)


@handles("addmm")
def addmm(p: Program, bias: torch.Tensor, x: Any, weight: torch.Tensor) -> Value:
    return linear(p, x, weight.t(), bias)


@handles("batch_norm", "_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def batch_norm(p: Program, x: Any, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor,
               variance: torch.Tensor, *rest: Any) -> tuple[Value]:
    eps = float(rest[-1] if not isinstance(rest[-1], bool) or len(rest) == 1 else rest[-2])
    axis = p.sources.axis_of(numbers(x).cells)

    def vector(t: torch.Tensor) -> np.ndarray:
        return constant_vector(p, t.reshape(-1, *[1] * (x.cells.ndim - 2)), x)

    one = torch.ones_like(mean)
    moments, scale = (vector(mean), vector(variance)), vector(one if weight is None else weight)
    shift = vector(bias if bias is not None else torch.zeros_like(mean))

    def make() -> Any:
        layer = p.layer(p.path_of(mean, ".running_mean"))
        p.weights.update({f"{layer}.running_mean": moments[0], f"{layer}.running_var": moments[1]})
        if weight is not None:
            p.weights.update({f"{layer}.weight": scale, f"{layer}.bias": shift})
        return p.builder.batch_norm(layer, p.sources.gather(x.cells, axis), eps=eps, affine=weight is not None)
    deviation = np.sqrt(moments[1].astype(np.float64) + eps)
    factor = (scale / deviation).astype(np.float32)
    line = factor, (shift - moments[0] * (scale / deviation)).astype(np.float32)
    cells = p.sources.add(axis, x.cells.size, "affine", make, (x.cells.ravel(),), line)
    return (x.like(cells.reshape(x.cells.shape)),)


@handles("layer_norm")
def layer_norm(p: Program, x: Any, normalized: Sequence[int], weight: torch.Tensor | None = None,
               bias: torch.Tensor | None = None, eps: float = 1e-5, _: bool = True) -> Value:
    if numbers(x).cells.shape[-len(normalized):] != tuple(normalized):
        raise Unsupported("a norm of each event", "one over events")
    scale, shift = (None if w is None else p.array(w.reshape(-1)) for w in (weight, bias))
    path = None if weight is None else p.path_of(weight, ".weight")
    return norms.layer_norm(p, x, len(normalized), scale, shift, eps, path)


@handles("softmax", "_softmax", events=True)
def softmax(p: Program, x: Any, dim: int, _: Any = None) -> Value:
    return layers.softmax(p, x, dim)


# --- products of matrices


def transposed(x: Any) -> Value:
    swapped = {-1: -2, -2: -1}.get(numbers(x).batch, x.batch)
    return Value(np.swapaxes(x.cells, -1, -2), False, swapped, x.inner)


def of_fields(p: Program, x: Any, matrices: torch.Tensor) -> Value:
    """With a constant matrix for each field, which may be there for each row."""
    return layers.matmul_constants(p, x, constant_rows(p, matrices, numbers(x)))


@handles("mm", "matmul", "bmm", events=True)
def matmul(p: Program, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, torch.Tensor):
        if b.dim() > 2:
            return by_event(p, of_fields, (a, b), {})
        weight = p.array(b.reshape(b.shape[0], -1).t())
        result = matmul_constant(p, a, weight, p.path_of(b, ".weight"))
        return result if b.dim() == 2 else Value(result.cells[..., 0], False, result.batch + 1, result.inner)
    if isinstance(a, torch.Tensor) and a.dim() >= 2:  # of column vectors
        turned = by_event(p, linear if a.dim() == 2 else of_fields, (transposed(b), a if a.dim() == 2 else a.mT), {})
        return transposed(turned)
    return layers.matmul(p, a, b)


@handles("einsum", events=True)
def einsum(p: Program, equation: str, tensors: Sequence[Any], **_: Any) -> Value:
    """As PyTorch does it: moves, products of matrices, sums."""
    examples = [example_of(x, node, p.batch) for x, node in zip(tensors, p.current().args[1])]
    return p.interpret(ops_of(lambda *given: torch.einsum(equation, *given), examples), tensors)


@handles("baddbmm", events=True)
def baddbmm(p: Program, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Value:
    made = matmul(p, a, b)
    if (beta, alpha) != (1, 1):
        raise Unsupported("baddbmm without factors", f"{beta} and {alpha}")
    return by_event(p, HANDLERS["add"], (made, x), {}, constants=True)


@handles("scaled_dot_product_attention", events=True)
def attention(p: Program, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False,
              scale: float | None = None, enable_gqa: bool = False) -> Value:
    factor = 1 / math.sqrt(numbers(q).cells.shape[-1]) if scale is None else scale
    turned = Value(np.swapaxes(numbers(k).cells, -1, -2), False, k.batch, k.inner)
    made = by_event(p, HANDLERS["mul"], (matmul(p, q, turned), factor), {})
    if causal:
        length = made.cells.shape[-1]
        later = torch.full((length, length), -math.inf).triu(1)
        made = by_event(p, HANDLERS["add"], (made, later), {}, constants=True)
    if mask is not None:
        is_truth = p.current().args[3].meta["val"].dtype == torch.bool
        made = (by_event(p, HANDLERS["where"], (mask, made, -math.inf), {}, constants=True) if is_truth else
                by_event(p, HANDLERS["add"], (made, mask), {}, constants=True))
    return matmul(p, softmax(p, made, -1), v)

