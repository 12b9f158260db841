# SPDX-License-Identifier: Apache-2.0
"""Norms of a row's columns: of layers, and recognised by what they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import Unsupported, Value, columns_of, num_runs, numbers
from .expressions import added, alias_of, at, constant_of, polynomial, resolve
from .fields import squared

if TYPE_CHECKING:
    from .program import Program


def layer_norm(p: Program, x: Any, dims: int, weight: np.ndarray | None, bias: np.ndarray | None, eps: float,
               path: str | None) -> Value:
    """Over the last `dims` dimensions."""
    shape = numbers(x).cells.shape
    rows = x.cells.reshape(-1, math.prod(shape[-dims:]))
    apart = [i for i in range(1, len(rows)) if not _side_by_side(p, rows[i - 1], rows[i])]
    normed = [norm_rows(p, Norm(part.ravel(), weight, bias, eps, path, len(part))) for part in np.split(rows, apart)]
    return x.like(np.concatenate(normed).reshape(shape))


def _side_by_side(p: Program, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the cells of two rows are one run of columns; of a sum, whose terms are."""
    def is_run(left: np.ndarray, right: np.ndarray) -> bool:
        return num_runs(np.concatenate([left, right])) == 1
    if not is_run(a, b):
        return False
    source, _ = p.sources.of(int(a[0]))
    terms = [x for x in source.operands if isinstance(x, np.ndarray) and len(x) > 1] if source.kind == "add" else []
    return all(is_run(x[columns_of(a)], x[columns_of(b)]) for x in terms)


@dataclass
class Norm:
    """A layer norm of rows of cells, one behind the other."""

    cells: np.ndarray
    weight: np.ndarray | None  # of a row, or of all
    bias: np.ndarray | None
    eps: float
    path: str | None
    rows: int = 1
    tensors: dict[tuple[int, int], Any] = field(default_factory=dict)  # by the first of their rows, and the end

    def columns(self, p: Program, wanted: np.ndarray) -> tuple[Any, np.ndarray, int]:
        """What Sources ask of it: of the rows from the first that is wanted to the last."""
        dim = len(self.cells) // self.rows
        begin, end = int(wanted.min()) // dim, int(wanted.max()) // dim + 1
        if (begin, end) not in self.tensors:
            self.tensors[begin, end] = self._make(p, slice(begin * dim, end * dim), end - begin)
        return self.tensors[begin, end], wanted - begin * dim, (end - begin) * dim

    def _make(self, p: Program, part: slice, count: int) -> Any:
        name = p.layer(self.path)
        is_stacked = count > 1 and self.weight is not None and len(self.weight) == len(self.cells)
        if self.weight is not None:
            bias = np.zeros_like(self.weight) if self.bias is None else self.bias
            for kind, values in (("weight", self.weight), ("bias", bias)):
                own = values[part] if len(values) == len(self.cells) else values
                p.weights[f"{name}.{kind}"] = own.reshape(count, -1) if is_stacked else own
        return p.builder.layer_norm(name, _gathered(p, self.cells[part]), eps=self.eps,
                                    affine=self.weight is not None, groups=count, stacked=is_stacked)


def _gathered(p: Program, cells: np.ndarray) -> Any:
    """Of a sum that norms alone read, the sum of these columns."""
    axis, (source, _) = p.sources.axis_of(cells), p.sources.of(int(cells[0]))
    if source.kind != "add" or num_runs(cells) > 1 or len(cells) == source.width or \
            alias_of(p, "add", source.operands) is not None or \
            any(reader.kind != "layer_norm" for reader in p.sources.readers_of(int(cells[0]))):
        return p.sources.gather(cells, axis)
    terms = [x[columns_of(cells)] if isinstance(x, np.ndarray) and len(x) > 1 else x for x in source.operands]
    return p.builder.apply("add", [p.sources.gather(x, axis) if isinstance(x, np.ndarray) else x for x in terms])


def norm_rows(p: Program, norm: Norm) -> np.ndarray:
    return p.sources.add(p.sources.axis_of(norm.cells), len(norm.cells), "layer_norm",
                         lambda wanted: norm.columns(p, wanted), data=norm, by_column=True)


def scaled(p: Program, norm: Norm, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The norm times scale plus shift, by column."""
    weight = np.ones_like(scale) if norm.weight is None else np.resize(norm.weight, scale.shape)
    bias = np.zeros_like(shift) if norm.bias is None else np.resize(norm.bias, shift.shape)
    return norm_rows(p, replace(norm, weight=weight * scale, bias=bias * scale + shift, tensors={}))


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
    factor: float  # of the norm, 1 / sqrt(columns) where squares are added up


def _moments(p: Program, deviation: Any) -> _Moments | None:
    """Of the square root of a variance: sqrt(mean((x - mean(x))^2) + eps), also of a sum, or with eps in each
    of its terms."""
    source, column = p.sources.of(resolve(p, deviation)) if isinstance(deviation, int) else (None, 0)
    if source is None or source.kind != "sqrt":
        return None
    variance, eps = _but_a_number(p, at(source.operands[0], column))
    source, column = p.sources.of(variance)
    if source.kind not in ("mean", "sum"):
        return None
    count = len(source.data[column]) if source.kind == "sum" else 1
    found, means, added_each = [], set(), set()
    for cell in source.data[column]:
        square, each = _but_a_number(p, int(cell))
        added_each.add(each)
        root = squared(p, square)
        part, c = p.sources.of(root) if root is not None else (None, 0)
        if part is None or part.kind != "sub" or not all(isinstance(x, np.ndarray) for x in part.operands):
            return None
        x, mean = (resolve(p, at(o, c)) for o in part.operands)
        found.append(x)
        means.add(mean)
    if len(added_each) != 1:
        return None
    eps = eps / count + added_each.pop()
    mean = means.pop()
    of, column = p.sources.of(mean)
    if means or of.kind != "mean" or [resolve(p, int(c)) for c in of.data[column]] != found:
        return None
    return _Moments(np.array(found), mean, eps, 1 / math.sqrt(count))


def _but_a_number(p: Program, cell: int) -> tuple[int, float]:
    """A cell without the number that is added to it."""
    cell = resolve(p, cell)
    source, column = p.sources.of(cell)
    operands = [at(x, column) for x in source.operands] if source.kind == "add" else []
    numbers = [constant_of(p, x) for x in operands]
    if len(operands) != 2 or (numbers[0] is None) == (numbers[1] is None):
        return cell, 0.0
    place = 0 if numbers[0] is None else 1
    return resolve(p, operands[place]), float(numbers[1 - place])  # type: ignore[arg-type]


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
    weight = None if moments.factor == 1 else np.full(width, moments.factor, np.float32)
    return norm_rows(p, Norm(moments.cells, weight, None, moments.eps, p.module_path() or None))


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
        return norm_rows(p, Norm(moments.cells, weight * np.float32(moments.factor), bias, moments.eps, p.module_path() or None))
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
