# SPDX-License-Identifier: Apache-2.0
"""Activations, recognised by what they compute: PReLU, SiLU and both forms of GELU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import Unsupported
from .din import unscaled
from .expressions import Polynomial, at, constant_of, polynomial, resolve

if TYPE_CHECKING:
    from .program import Program


def silu(p: Program, x: Any, gate: Any, width: int) -> np.ndarray | None:
    """The inputs of x * sigmoid(x)."""
    if not isinstance(x, np.ndarray) or not isinstance(gate, np.ndarray):
        return None
    inputs = [resolve(p, at(x, c)) for c in range(width)]
    for column, cell in enumerate(inputs):
        source, c = p.sources.of(resolve(p, at(gate, column)))
        if source.kind != "sigmoid" or resolve(p, at(source.operands[0], c)) != cell:
            return None
    return np.array(inputs)


def gelu(p: Program, half: Any, rest: Any, width: int, more: float = 1.0) -> tuple[str, np.ndarray] | None:
    """Which of gelu and gelu_tanh x / 2 * rest is, and the inputs. The half may be of either, or be `more`."""
    if not isinstance(half, np.ndarray) or not isinstance(rest, np.ndarray):
        return None
    inputs, kinds = [], set()
    for column in range(width):
        x, factor = unscaled(p, at(half, column))
        gate, other = unscaled(p, at(rest, column))
        kinds.add(_of_gate(p, gate, x) if factor * other * more == 0.5 else None)
        if None in kinds or len(kinds) > 1:
            return None
        inputs.append(x)
    kind = kinds.pop()
    return None if kind is None else (kind, np.array(inputs))


def halved_gelu(p: Program, function: str, a: Any, b: Any, width: int) -> tuple[str, np.ndarray] | None:
    """The same of (x * rest) / 2."""
    product, factor = (a, b) if isinstance(a, np.ndarray) else (b, a)
    if not isinstance(factor, float) or factor == 0 or (function == "div" and product is b) or len(product) != width:
        return None
    sources = [p.sources.of(resolve(p, int(cell))) for cell in product]
    if any(source.kind != "mul" for source, _ in sources):
        return None
    operands = [np.array([at(source.operands[i], column) for source, column in sources], object) for i in (0, 1)]
    if not all(isinstance(cell, (int, np.integer)) for cells in operands for cell in cells):
        return None
    x, rest = (cells.astype(np.int64) for cells in operands)
    more = factor if function == "mul" else 1 / factor
    return gelu(p, x, rest, width, more) or gelu(p, rest, x, width, more)


def _of_gate(p: Program, cell: int, x: int) -> str | None:
    """Of 1 + erf(x / sqrt(2)), 1 + tanh(..) or erfc(-x / sqrt(2))."""
    source, column = p.sources.of(cell)
    if source.kind == "erfc":
        return "gelu" if _is(_line(p, at(source.operands[0], column), x), {(x,): -math.sqrt(0.5)}) else None
    if source.kind != "add":
        return None
    operands = [at(o, column) for o in source.operands]
    cells = [o for o in operands if constant_of(p, o) is None]
    if len(cells) != 1 or 1.0 not in (constant_of(p, o) for o in operands):
        return None
    source, column = p.sources.of(resolve(p, cells[0]))
    if source.kind not in ("erf", "tanh"):
        return None
    line = _line(p, at(source.operands[0], column), x)
    if source.kind == "erf":
        return "gelu" if _is(line, {(x,): math.sqrt(0.5)}) else None
    scale = math.sqrt(2 / math.pi)
    return "gelu_tanh" if _is(line, {(x,): scale, (x, x, x): 0.044715 * scale}) else None


def _line(p: Program, cell: Any, x: int) -> Polynomial:
    try:
        return polynomial(p, cell, frozenset([x]))
    except Unsupported:
        return {}


def _is(found: Polynomial, expected: Polynomial) -> bool:
    return found.keys() == expected.keys() and all(math.isclose(found[k], expected[k], rel_tol=1e-5) for k in found)


def prelu(p: Program, a: Any, b: Any, sign: float, width: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The inputs and the slopes of relu(x) - alpha * relu(-x), which is a + sign * b."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None
    inputs, slopes = [], []
    for column in range(width):
        x = _of_relu(p, resolve(p, at(a, column)))
        other = None if x is None else _slope(p, resolve(p, at(b, column)))
        if other is None:
            return None
        negative = _of_relu(p, other[0])
        if x is None or negative is None or _line(p, negative, x) != {(x,): -1.0}:
            return None
        inputs.append(x)
        slopes.append(-sign * other[1])
    return np.array(inputs), np.array(slopes, np.float32)


def _of_relu(p: Program, cell: int) -> int | None:
    source, column = p.sources.of(cell)
    return resolve(p, at(source.operands[0], column)) if source.kind == "relu" else None


def _slope(p: Program, cell: int) -> tuple[int, float] | None:
    """What a cell is times a number."""
    source, column = p.sources.of(cell)
    if source.kind != "affine":
        return unscaled(p, cell)
    scale, shift = (float(v[column]) for v in source.data)
    inner = resolve(p, at(source.operands[0], column))
    return (inner, scale) if shift == 0 else None
