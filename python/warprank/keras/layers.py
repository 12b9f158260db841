# SPDX-License-Identifier: Apache-2.0
"""Layers of a TensorFlow graph: look-ups, products of matrices, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..lowering import layers
from ..lowering.cells import Unsupported, Value, move, numbers
from ..lowering.places import embedding, matmul_constant
from .handlers import handles
from .tracing import Variable

if TYPE_CHECKING:
    from .program import Program


@handles("ResourceGather", "GatherV2")
def gather(p: Program, op: Any, table: Any, ids: Any, *axis: Any) -> Value:
    weight = table.array if isinstance(table, Variable) else table
    if isinstance(weight, Value) or weight.ndim != 2 or any(np.any(a != 0) for a in axis) or \
            op.get_attr("batch_dims") != 0:
        raise Unsupported("ids that are looked up in a table [rows, dim]", "another gather")
    return embedding(p, weight, ids)


@handles("Softmax", events=True)
def softmax(p: Program, op: Any, x: Any) -> Value:
    return layers.softmax(p, x, -1)


@handles("MatMul", events=True)
def matmul(p: Program, op: Any, a: Any, b: Any) -> Value:
    return product(p, a, b, op.get_attr("transpose_a"), op.get_attr("transpose_b"))


@handles("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", events=True)
def batch_matmul(p: Program, op: Any, a: Any, b: Any) -> Value:
    return product(p, a, b, op.get_attr("adj_x"), op.get_attr("adj_y"))


def product(p: Program, a: Any, b: Any, turn_a: bool = False, turn_b: bool = False) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        return layers.matmul(p, turned(p, a) if turn_a else a, turned(p, b) if turn_b else b)
    if isinstance(b, Value):  # of column vectors: (B^T A^T)^T
        return turned(p, product(p, b, a, not turn_b, not turn_a))
    if b.ndim != 2:
        raise Unsupported("a matrix", f"a constant of shape {list(b.shape)}")
    weight = p.array(b if turn_b else b.T)
    return matmul_constant(p, turned(p, a) if turn_a else a, weight, p.path_of(b, ""))


def turned(p: Program, x: Value) -> Value:
    return moved(p, x, lambda array: np.swapaxes(array, -1, -2))


def moved(p: Program, x: Value, function: Callable[[np.ndarray], np.ndarray]) -> Value:
    return move(function, (numbers(x),), {}, p.batch, lambda cells: cells)


@handles("Einsum", events=True)
def einsum(p: Program, op: Any, *given: Any) -> Value:
    """Of two: moves and a product of matrices."""
    equation = op.get_attr("equation")
    equation = equation.decode() if isinstance(equation, bytes) else equation
    terms, _, out = equation.replace(" ", "").partition("->")
    if len(given) != 2 or "." in equation or any(len(set(t)) < len(t) for t in terms.split(",")):
        raise Unsupported("an einsum of two, without repeated or omitted dimensions", equation)
    a, b = terms.split(",")
    if not isinstance(given[0], Value):
        given, a, b = given[::-1], b, a
    both = [d for d in a if d in b and d in out]
    summed = [d for d in a if d in b and d not in out]
    left, right = [d for d in a if d not in b], [d for d in b if d not in a]
    if not set(left + right) <= set(out):
        raise Unsupported("an einsum that sums what both have", equation)
    size = {d: n for term, x in zip((a, b), given) for d, n in zip(term, _shape(p, x))}

    def flat(x: np.ndarray, names: str, *groups: list[str]) -> np.ndarray:
        shape = [size[d] for d in both] + [int(np.prod([size[d] for d in g])) for g in groups]
        return x.transpose([names.index(d) for g in (both, *groups) for d in g]).reshape(shape)
    if isinstance(given[1], Value):
        made = layers.matmul(p, moved(p, given[0], lambda x: flat(x, a, left, summed)),
                             moved(p, given[1], lambda x: flat(x, b, summed, right)))
    else:
        if both:
            raise Unsupported("an einsum with a matrix that serves all rows", equation)
        weight = p.keep(np.ascontiguousarray(flat(given[1], b, summed, right)), given[1])
        made = product(p, moved(p, given[0], lambda x: x.transpose(
            [a.index(d) for d in (*left, *summed)]).reshape(*(size[d] for d in left), -1)), weight)
        left = left if left else ["?"]
    order = "".join([*both, *left, *right])
    return moved(p, made, lambda x: x.reshape([size[d] for d in order]).transpose([order.index(d) for d in out]))


def _shape(p: Program, x: Any) -> tuple[int, ...]:
    if not isinstance(x, Value):
        return tuple(x.shape)
    shape = list(x.cells.shape)
    shape[x.batch] *= p.batch
    return tuple(shape)
