# SPDX-License-Identifier: Apache-2.0
"""Norms of a row's columns: of layers, and recognised by what they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import Unsupported, Value, numbers
from .expressions import added, at, constant_of, polynomial, resolve
from .fields import squared

if TYPE_CHECKING:
    from .program import Program


def layer_norm(p: Program, x: Any, dims: int, weight: np.ndarray | None, bias: np.ndarray | None, eps: float,
               path: str | None) -> Value:
    """Over the last `dims` dimensions."""
    shape = numbers(x).cells.shape
    rows = [norm_row(p, Norm(cells, weight, bias, eps, path))
            for cells in x.cells.reshape(-1, math.prod(shape[-dims:]))]
    return x.like(np.stack(rows).reshape(shape))


@dataclass
class Norm:
    """A layer norm of cells."""

    cells: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None
    eps: float
    path: str | None


def norm_row(p: Program, norm: Norm) -> np.ndarray:
    axis = p.sources.axis_of(norm.cells)

    def make() -> Any:
        name = p.layer(norm.path)
        if norm.weight is not None:
            p.weights[f"{name}.weight"] = norm.weight
            p.weights[f"{name}.bias"] = np.zeros_like(norm.weight) if norm.bias is None else norm.bias
        return p.builder.layer_norm(name, p.sources.gather(norm.cells, axis), eps=norm.eps,
                                    affine=norm.weight is not None)
    return p.sources.add(axis, len(norm.cells), "layer_norm", make, data=norm)


def recognised(p: Program, function: str, a: Any, b: Any, width: int) -> np.ndarray | None:
    """The cells of a + b, a * b or a / b, where they are a norm of all columns of a row."""
    try:
        if function == "add":
            return _of_sum(p, a, b, width)
        if function in ("mul", "div") and isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            pairs = [(a, b), (b, a)] if function == "mul" else [(a, b)]
            for centred, root in pairs:
                found = _of_product(p, function, centred, root, width)
                if found is not None:
                    return found
    except Unsupported:  # more terms than a norm has
        pass
    return None


@dataclass
class _Moments:
    cells: np.ndarray  # of which they are
    mean: int
    eps: float


def _moments(p: Program, deviation: Any) -> _Moments | None:
    """Of the square root of a variance: sqrt(mean((x - mean(x))^2) + eps)."""
    source, column = p.sources.of(resolve(p, deviation)) if isinstance(deviation, int) else (None, 0)
    if source is None or source.kind != "sqrt":
        return None
    variance, eps = resolve(p, at(source.operands[0], column)), 0.0
    source, column = p.sources.of(variance)
    if source.kind == "add":
        operands = [at(x, column) for x in source.operands]
        numbers = [x for x in map(lambda x: constant_of(p, x), operands) if x is not None]
        cells = [x for x in operands if constant_of(p, x) is None]
        if len(numbers) != 1 or len(cells) != 1:
            return None
        variance, eps = resolve(p, cells[0]), numbers[0]
        source, column = p.sources.of(variance)
    if source.kind != "mean":
        return None
    found, means = [], set()
    for cell in source.data[column]:
        root = squared(p, int(cell))
        part, c = p.sources.of(root) if root is not None else (None, 0)
        if part is None or part.kind != "sub" or not all(isinstance(x, np.ndarray) for x in part.operands):
            return None
        x, mean = (resolve(p, at(o, c)) for o in part.operands)
        found.append(x)
        means.add(mean)
    mean = means.pop()
    of, column = p.sources.of(mean)
    if means or of.kind != "mean" or [resolve(p, int(c)) for c in of.data[column]] != found:
        return None
    return _Moments(np.array(found), mean, eps)


def _of_product(p: Program, function: str, centred: np.ndarray, root: np.ndarray, width: int) -> np.ndarray | None:
    """(x - mean) / sqrt(..), or times 1 / sqrt(..)"""
    cell = resolve(p, at(root, 0))
    deviation: Any = cell
    if function == "mul":
        source, column = p.sources.of(cell)
        if source.kind != "div" or constant_of(p, at(source.operands[0], column)) != 1:
            return None
        deviation = at(source.operands[1], column)
    moments = _moments(p, deviation)
    if moments is None or len(moments.cells) != width or any(resolve(p, at(root, c)) != cell for c in range(width)):
        return None
    for column, x in enumerate(moments.cells.tolist()):
        source, c = p.sources.of(resolve(p, at(centred, column)))
        if source.kind != "sub" or [resolve(p, at(o, c)) if isinstance(o, np.ndarray) else o
                                    for o in source.operands] != [x, moments.mean]:
            return None
    return norm_row(p, Norm(moments.cells, None, None, moments.eps, p.module_path() or None))


def _of_sum(p: Program, a: Any, b: Any, width: int) -> np.ndarray | None:
    """x r + (beta - mean r), where r is gamma / sqrt(..)"""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None
    for side in (a, b):
        root = _root(p, at(side, 0))
        if root is None:
            continue
        source, column = p.sources.of(root)
        moments = _moments(p, at(source.operands[1], column))
        if moments is None or len(moments.cells) != width:
            continue
        atoms = frozenset([root, moments.mean, *moments.cells.tolist()])
        weight, bias = np.ones(width, np.float32), np.zeros(width, np.float32)
        for column, x in enumerate(moments.cells.tolist()):
            terms = added(polynomial(p, at(a, column), atoms), polynomial(p, at(b, column), atoms))
            of_x, of_mean = (tuple(sorted((each, root))) for each in (x, moments.mean))
            bias[column] = terms.pop((), 0.0)
            weight[column] = terms.get(of_x, 0.0)
            if terms != {of_x: weight[column], of_mean: -weight[column]}:
                return None
        return norm_row(p, Norm(moments.cells, weight, bias, moments.eps, p.module_path() or None))
    return None


def _root(p: Program, cell: Any) -> int | None:
    """Of a product with 1 / sqrt(..), which numbers may be multiplied with, that."""
    source, column = p.sources.of(resolve(p, cell))
    if source.kind == "affine":  # - mean r + beta
        source, column = p.sources.of(resolve(p, at(source.operands[0], column)))
    for operand in source.operands if source.kind == "mul" else ():
        factor = at(operand, column)
        if not isinstance(factor, int):
            continue
        factor = resolve(p, factor)
        inner, c = p.sources.of(factor)
        if inner.kind == "affine":
            factor = resolve(p, at(inner.operands[0], c))
            inner, c = p.sources.of(factor)
        if inner.kind == "div" and constant_of(p, at(inner.operands[0], c)) == 1:
            return factor
    return None
