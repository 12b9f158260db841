# SPDX-License-Identifier: Apache-2.0
"""Layers of a PyTorch program in a graph: linear ones, norms, softmax, products of matrices, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from . import events, fields
from .cells import Unsupported, Value, with_rows
from .expressions import elementwise
from .handlers import by_event, handles, numbers, row_dimension
from .ops import constant_vector

if TYPE_CHECKING:
    from .program import Program


@handles("linear")
def linear(p: Program, x: Any, weight: Any, bias: torch.Tensor | None = None) -> Value:
    if not isinstance(weight, torch.Tensor):
        raise Unsupported("a weight that is a parameter", "one that is computed")
    out, width = weight.shape
    if numbers(x).cells.shape[-1] != width:
        raise Unsupported(f"[.., {width}] of a row", "a layer over events")
    if x.batch == -1:
        raise Unsupported("each row by itself", "a layer over the batch")
    rows = [linear_row(p, cells, weight, bias)  # the same layer for each field, where there are several
            for cells in x.cells.reshape(-1, width)]
    return x.like(np.stack(rows).reshape(*x.cells.shape[:-1], out))


def linear_row(p: Program, cells: np.ndarray, weight: torch.Tensor, bias: torch.Tensor | None) -> np.ndarray:
    axis = p.sources.axis_of(cells)
    arrays = p.array(weight), None if bias is None else p.array(bias)
    attention = events.attention_layer(p, cells, *arrays)
    if attention is not None:
        return attention

    def make() -> Any:
        name = p.layer(p.path_of(weight, ".weight"))
        p.layer_names[int(made[0])] = name
        p.weights[f"{name}.weight"] = arrays[0]
        if arrays[1] is not None:
            p.weights[f"{name}.bias"] = arrays[1]
        return p.builder.linear(name, p.sources.gather(cells, axis), len(arrays[0]), bias=bias is not None)
    made = p.sources.add(axis, len(arrays[0]), "linear", make, data=events.Layer(cells, *arrays))
    return made


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
    axis = p.sources.axis_of(numbers(x).cells)
    if x.cells.shape[-len(normalized):] != tuple(normalized):
        raise Unsupported("a norm of each event", "one over events")

    def make(cells: np.ndarray) -> Any:
        layer = p.layer(p.path_of(weight, ".weight") if weight is not None else None)
        if weight is not None:
            p.weights[f"{layer}.weight"] = p.array(weight.reshape(-1))
            p.weights[f"{layer}.bias"] = p.array(bias.reshape(-1) if bias is not None else torch.zeros(weight.numel()))
        return p.builder.layer_norm(layer, p.sources.gather(cells, axis), eps=eps, affine=weight is not None)
    rows = [p.sources.add(axis, len(cells), "layer_norm", lambda c=cells: make(c))  # type: ignore[misc]
            for cells in x.cells.reshape(-1, math.prod(normalized))]
    return x.like(np.stack(rows).reshape(x.cells.shape))


@handles("softmax", "_softmax", events=True)
def softmax(p: Program, x: Any, dim: int, _: Any = None) -> Value:
    dim = row_dimension(numbers(x), dim)
    place, cells = p.sources.split_events(x.cells)
    if place is not None and dim == place + cells.ndim:
        made = events.event_softmax(p, cells.ravel()).reshape(cells.shape)
        return x.like(p.sources.with_events(made, place, x.cells.shape[place]))
    axis = p.sources.axis_of(cells)
    last = np.moveaxis(cells, dim, -1)
    rows = [p.sources.add(axis, len(r), "softmax", lambda r=r: p.builder.softmax(  # type: ignore[misc]
        p.sources.gather(r, axis)), (r,)) for r in last.reshape(-1, last.shape[-1])]
    made = np.moveaxis(np.stack(rows).reshape(last.shape), -1, dim)
    return x.like(made if place is None else p.sources.with_events(made, place, x.cells.shape[place]))


# --- products of matrices


@handles("mm", "matmul", "bmm", events=True)
def matmul(p: Program, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, torch.Tensor):
        if b.dim() > 2:
            raise Unsupported("a matrix", f"a constant of shape {list(b.shape)}")
        place, cells = p.sources.split_events(numbers(a).cells)
        result = linear(p, a.like(cells), b.reshape(b.shape[0], -1).t())
        if place is not None:
            result = result.like(p.sources.with_events(result.cells, place, a.cells.shape[place]))
        return result if b.dim() == 2 else Value(result.cells[..., 0], False, result.batch + 1, result.inner)
    if isinstance(a, torch.Tensor) and a.dim() == 2:  # of column vectors
        b = numbers(b)
        turned = by_event(p, "linear", (Value(np.swapaxes(b.cells, -1, -2), False, b.batch, b.inner), a), {})
        return turned.like(np.swapaxes(turned.cells, -1, -2))
    a, b = numbers(a), numbers(b)
    if a.cells.ndim < 3 or a.cells.ndim != b.cells.ndim or a.batch != b.batch or a.batch >= -2:
        raise Unsupported("products of matrices, one for each row",
                          f"{a.cells.ndim} and {b.cells.ndim} dimensions")
    heads = np.broadcast_shapes(a.cells.shape[:-2], b.cells.shape[:-2])
    lefts = np.broadcast_to(a.cells, heads + a.cells.shape[-2:]).reshape(-1, *a.cells.shape[-2:])
    rights = np.broadcast_to(b.cells, heads + b.cells.shape[-2:]).reshape(-1, *b.cells.shape[-2:])
    made = np.stack([product(p, left, right) for left, right in zip(lefts, rights)])
    return a.like(made.reshape(*heads, *made.shape[1:]))


def product(p: Program, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[M, N] of a [M, K] and b [K, N], any of which may be events."""
    (in_a, left), (in_b, right) = p.sources.split_events(a), p.sources.split_events(b)
    if in_a == -1 and in_b == -2:  # a sum over events
        if len(right[0]) == 1 < len(left) and not (left == left[:1]).all():
            return weighted_sum(p, right[0, 0], left[:, 0])[:, None]
        # All of M are alike where weights are for each event, too.
        rows = left if not (left == left[:1]).all() else left[:1]
        made = np.stack([weighted_sum(p, row[0], right[0]) for row in rows])
        if len(rows) == 1 < len(left):
            axis = p.sources.axis_of(made)
            made = (np.broadcast_to(made, (len(left), made.shape[1])) if p.sources.sequence_of(axis) is None
                    else p.sources.with_events(made, -2, len(left)))
        return made
    if in_a is None and in_b is None:
        gates = [fields.mixture(p, row, b) for row in a]
        return np.stack(gates) if all(g is not None for g in gates) else fields.dots(p, a, b.T)  # type: ignore
    if in_a not in (None, -2) or in_b not in (None, -1):
        raise Unsupported("a sum over events of weights with what they weigh", "another product")
    if in_b == -1:  # a query with each event
        made = np.stack([events.scores(p, row, right[:, 0]) for row in left])
        if in_a == -2:
            made = np.broadcast_to(made, (len(a), 1))
        return p.sources.with_events(made, -1, b.shape[1])
    made = np.stack([events.scores(p, column, left[0]) for column in right.T])
    return p.sources.with_events(made.T, -2, len(a))


def weighted_sum(p: Program, weight: Any, cells: np.ndarray) -> np.ndarray:
    weights = np.array([weight])
    axis = p.sources.axis_of(weights, cells)
    return events.pool(p, elementwise(p, "mul", [weights, cells], len(cells), axis), "sum")


@handles("einsum", events=True)
def einsum(p: Program, equation: str, tensors: Sequence[Any], **_: Any) -> Value:
    """As PyTorch does it: moves, products of matrices, sums."""
    examples = [torch.zeros(with_rows(x, p.batch).shape) if isinstance(x, Value) else x.detach() for x in tensors]
    return p.interpret(make_fx(lambda *given: torch.einsum(equation, *given))(*examples).graph, tensors)


@handles("baddbmm", events=True)
def baddbmm(p: Program, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Value:
    made = matmul(p, a, b)
    if (beta, alpha) != (1, 1):
        raise Unsupported("baddbmm without factors", f"{beta} and {alpha}")
    return by_event(p, "add", (made, x), {})


@handles("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", events=True)
def attention(p: Program, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False,
              scale: float | None = None, enable_gqa: bool = False) -> Value:
    if causal:
        raise Unsupported("attention to all events", "causal attention")
    factor = 1 / math.sqrt(numbers(q).cells.shape[-1]) if scale is None else scale
    turned = Value(np.swapaxes(numbers(k).cells, -1, -2), False, k.batch, k.inner)
    made = by_event(p, "mul", (matmul(p, q, turned), factor), {})
    if mask is not None:
        made = by_event(p, "add", (made, mask), {})
    return matmul(p, softmax(p, made, -1), v)

