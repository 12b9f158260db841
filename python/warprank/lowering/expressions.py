# SPDX-License-Identifier: Apache-2.0
"""Elementwise expressions over cells: what they are where events are masked, and what they are as polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import SOURCE_SHIFT, Unsupported, num_runs, source_numbers

if TYPE_CHECKING:
    from .program import Program

MASKED = -1e4  # what is added to a score that shall not count is this or less
# What a constant is for an event that is padding, for a pair whose key comes after its query, for the first event of a
# row in which all are padding, and for the pair of an event with itself.
PADDING, LATER, EMPTY, SELF = 1, 2, 3, 4

FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: 0.0 if 0 in (a, b) else a * b,
    "div": lambda a, b: a / b if b else math.nan, "min": min, "max": max, "atan2": math.atan2,
    "less": lambda a, b: float(a < b),
    "less_equal": lambda a, b: float(a <= b), "greater": lambda a, b: float(a > b),
    "greater_equal": lambda a, b: float(a >= b), "equal": lambda a, b: float(a == b),
    "not_equal": lambda a, b: float(a != b), "select": lambda a, b, c: a if c else b, "neg": lambda a: -a, "abs": abs,
    "exp": lambda a: math.exp(min(a, 700.0)), "log": lambda a: math.log(a) if a > 0 else math.nan if a else -math.inf,
    "sqrt": lambda a: math.sqrt(a) if a >= 0 else math.nan,
    "square": lambda a: a * a, "sin": lambda a: math.sin(a) if math.isfinite(a) else math.nan,
    "cos": lambda a: math.cos(a) if math.isfinite(a) else math.nan,
    "relu": lambda a: max(a, 0.0), "sigmoid": lambda a: 1 / (1 + math.exp(-max(a, -700.0))),
    "gelu": lambda a: a * (1 + math.erf(a * math.sqrt(0.5))) / 2,
    "gelu_tanh": lambda a: a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a ** 3))) / 2,
    "tanh": math.tanh, "silu": lambda a: a / (1 + math.exp(-max(a, -700.0))),
}

# A product of columns with one that is repeated for at least so many of them, and then with others, up to so many.
LEAST_REPEATS, MOST_REPEATS = 4, 16


def at(operand: Any, column: int) -> Any:
    """A cell of an operand, or the number that it is."""
    if not isinstance(operand, np.ndarray):
        return operand
    return operand[column if len(operand) > 1 else 0].item()


def constant_of(p: Program, cell: Any) -> float | None:
    """The number that a cell is in all rows that there are."""
    if not isinstance(cell, int):
        return float(cell)
    source, _ = p.sources.of(cell)
    return float(source.data[0]) if source.kind == "constant" else None


def shared_constant(p: Program, operand: Any) -> float | None:
    if not isinstance(operand, np.ndarray):
        return float(operand)
    if len(np.unique(source_numbers(operand))) != 1:
        return None
    return constant_of(p, int(operand[0]))


def alias_of(p: Program, function: str, operands: Sequence[Any]) -> Any:
    """The operand that the expression is; None: it computes something. Masks are 1 where there are events."""
    if function not in ("mul", "add", "sub", "div", "select"):
        return None
    numbers = [shared_constant(p, x) for x in operands]
    if function == "select":
        return None if numbers[2] is None else operands[0 if numbers[2] else 1]
    neutral = 1.0 if function in ("mul", "div") else 0.0
    if numbers[1] == neutral:
        return operands[0]
    return operands[1] if function in ("mul", "add") and numbers[0] == neutral else None


def constant(p: Program, axis: str, value: float, masked: float, later: float | None = None,
             empty: float | None = None, of_self: float | None = None) -> np.ndarray:
    """A cell that is one number where there are events, and another in the states above."""
    def make() -> Any:
        tensor = p.some_rows(axis)
        ones = p.builder.apply("equal", [tensor, tensor])
        return ones if value == 1 else p.builder.apply("mul", [ones, value])
    return p.sources.add(axis, 1, "constant", make, data=(
        value, masked, value if later is None else later, masked if empty is None else empty,
        value if of_self is None else of_self))


def elementwise(p: Program, function: str, operands: Sequence[Any], width: int, axis: str) -> np.ndarray:
    """The cells of a function of operands: cells [width] or [1], or numbers."""
    if all(shared_constant(p, x) is not None for x in operands):
        first = [at(x, 0) for x in operands]
        value = FUNCTIONS[function](*(constant_of(p, x) for x in first))
        others = (FUNCTIONS[function](*(masked_value(p, x, state) for x in first))
                  for state in (PADDING, LATER, EMPTY, SELF))
        return np.repeat(constant(p, axis, value, *others), width)

    key = (function, width, axis, *(x.tobytes() if isinstance(x, np.ndarray) else x for x in operands))
    if key in p.expressions:  # written twice
        return p.expressions[key]

    def make() -> Any:
        same = alias_of(p, function, operands)
        if isinstance(same, np.ndarray):
            return p.sources.gather(np.broadcast_to(same, width), axis)
        if function == "add" and width == 1:
            return _sum_of(p, _terms(p, operands, axis), axis)
        ends = _ends_of_repeats(operands, width)
        if len(ends) > 1:  # a program for each: a column that is repeated is read by itself
            return p.builder.concat([_of_columns(p, function, operands, begin, end, axis)
                                     for begin, end in zip([0, *ends], ends)])
        given = [p.sources.gather(x, axis) if isinstance(x, np.ndarray) else x for x in operands]
        if width > 1 and all(len(x) == 1 for x in operands if isinstance(x, np.ndarray)):
            given = [p.sources.gather(np.broadcast_to(x, width), axis) if isinstance(x, np.ndarray) else x
                     for x in operands]
        return p.builder.apply(function, given)  # type: ignore[arg-type]
    p.expressions[key] = p.sources.add(axis, width, function, make, tuple(operands))
    return p.expressions[key]


def _ends_of_repeats(operands: Sequence[Any], width: int) -> list[int]:
    """Where operands change of which one repeats a column for many, and then another; none where no operand does, or for
    few columns."""
    arrays = [x for x in operands if isinstance(x, np.ndarray) and len(x) == width > 1]
    repeating = [x for x in arrays if 1 < _num_constant_runs(x) <= width / LEAST_REPEATS]
    if not repeating or len(repeating) == len(arrays):
        return []
    changes = np.any([x[1:] != x[:-1] for x in repeating], axis=0)
    ends = [*(np.flatnonzero(changes) + 1).tolist(), width]
    return ends if len(ends) <= MOST_REPEATS else []


def _num_constant_runs(cells: np.ndarray) -> int:
    return 1 + int(np.count_nonzero(cells[1:] != cells[:-1]))


def _of_columns(p: Program, function: str, operands: Sequence[Any], begin: int, end: int, axis: str) -> Any:
    def part(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or len(x) == 1:
            return x
        own = x[begin:end]
        return own[:1] if (own == own[0]).all() else own
    given = [part(x) for x in operands]
    gathered = [p.sources.gather(x, axis) if isinstance(x, np.ndarray) else x for x in given]
    return p.builder.apply(function, gathered)  # type: ignore[arg-type]


def _terms(p: Program, operands: Sequence[Any], axis: str) -> list[Any]:
    """What a sum of logits is of, also through sums that nothing else reads."""
    terms = []
    for x in operands:
        source = p.sources.of(int(x[0]))[0] if isinstance(x, np.ndarray) else None
        if source is not None and (source.kind, source.width, source.axis) == ("add", 1, axis) and \
                alias_of(p, "add", source.operands) is None and len(p.sources.readers_of(int(x[0]))) == 1:
            terms += _terms(p, source.operands, axis)
        else:
            terms.append(x)
    return terms


def _sum_of(p: Program, terms: list[Any], axis: str) -> Any:
    """Linear layers last: one adds in its own launch what the others sum up to."""
    def is_linear(x: Any) -> bool:
        return isinstance(x, np.ndarray) and p.sources.of(int(x[0]))[0].kind == "linear"
    given = [p.sources.gather(x, axis) if isinstance(x, np.ndarray) else x for x in sorted(terms, key=is_linear)]
    total = given[0]
    for x in given[1:]:
        total = p.builder.apply("add", [total, x])
    return total


def distinct(operands: Sequence[Any], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Of columns that are computed of the same the first of each, in order or as they lie in memory, whichever has them
    in fewer pieces, and by column which it is."""
    arrays = [np.broadcast_to(x, width) for x in operands if isinstance(x, np.ndarray)]
    _, first, which = np.unique(np.stack(arrays), axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    if sum(num_runs(x[first]) for x in arrays) < sum(num_runs(x[first[order]]) for x in arrays):
        return first, which.ravel()
    return first[order], np.argsort(order)[which.ravel()]


def resolve(p: Program, cell: int) -> int:
    """The cell that it is the same as, where there are events."""
    while True:
        source, column = p.sources.of(cell)
        same = alias_of(p, source.kind, source.operands) if source.operands else None
        if not isinstance(same, np.ndarray):
            return cell
        cell = at(same, column)


def reads(p: Program, cell: Any, is_wanted: Callable[[int], bool]) -> bool:
    """Whether a cell is made of one that is wanted, or is it."""
    left, seen = [cell], set()
    while left:
        cell = left.pop()
        if not isinstance(cell, (int, np.integer)) or int(cell) in seen:
            continue
        seen.add(int(cell))
        if is_wanted(int(cell)):
            return True
        source, column = p.sources.of(int(cell))
        if source.kind in ("linear", "gru"):
            left += source.data.cells.tolist()
        left += [at(x, column) for x in source.operands]
    return False


def masked_value(p: Program, cell: Any, state: int = PADDING) -> float | None:
    """What a cell is where an event is padding, or another of the states above; None: not known."""
    return _Masked(p, state).value(cell)


def masked_with(p: Program, cell: Any, state: int = PADDING) -> float | None:
    """The same, or the number of MASKED or less that is added to it."""
    return _Masked(p, state, with_least=True).value(cell)


class _Masked:
    """What cells are in a state."""

    def __init__(self, p: Program, state: int, with_least: bool = False):
        self._p, self._state, self._with_least = p, state, with_least
        self._known: dict[int, float | None] = {}  # by cell, as a cell may be read by many

    def value(self, cell: Any) -> float | None:
        if not isinstance(cell, int):
            return float(cell)
        if cell not in self._known:
            self._known[cell] = self._computed(cell)
        return self._known[cell]

    def _computed(self, cell: int) -> float | None:
        p, state = self._p, self._state
        source, column = p.sources.of(cell)
        if source.kind == "constant":
            return float(source.data[state])
        if source.kind == "embed":
            return p.padding_value(source, column) if state in (PADDING, EMPTY) else None
        if source.kind == "is_last":
            return source.data.get(state)
        if source.kind == "pool_max" and state == EMPTY:
            return of_empty_maximum(p, int(source.data[0][column]))
        if source.kind in ("linear", "gru") and state in (PADDING, EMPTY):
            made = self._of_layer(cell >> SOURCE_SHIFT)
            return None if made is None else float(made[column])
        if source.kind == "event_softmax":
            return self._of_softmax(at(source.operands[0], column))
        if source.kind not in FUNCTIONS:
            return None
        return self._of_function(source.kind, [self.value(at(x, column)) for x in source.operands])

    def _of_function(self, function: str, values: list[float | None]) -> float | None:
        if function == "select" and values[2] is not None:
            return values[0 if values[2] else 1]
        if function == "mul" and 0 in values:
            return 0.0
        if function in ("add", "sub"):
            first, second = values
            masks = [first, -second if function == "sub" and second is not None else second]
            least = min((v for v in masks if v is not None), default=0.0)
            if least <= (MASKED if self._with_least else -math.inf):
                return least
        known = [v for v in values if v is not None]
        return FUNCTIONS[function](*known) if len(known) == len(values) else None

    def _of_softmax(self, score: Any) -> float | None:
        masked = masked_with(self._p, score, self._state)
        is_masked = masked is not None and masked <= MASKED
        if self._state == EMPTY:  # by minus infinity: PyTorch's softmax is no number
            return 0.0 if masked == -math.inf else None
        return 0.0 if is_masked else None

    def _of_layer(self, number: int) -> np.ndarray | None:
        """What a layer makes of padding, or of the first event of a row without events."""
        key = (number, self._state)
        layer = self._p.sources.all[number]
        if layer.kind == "gru" and self._state == PADDING:
            return None
        if key not in self._p.of_padding:
            given = []
            for cell in layer.data.cells:
                given.append(self.value(int(cell)))
                if given[-1] is None:
                    return None
            self._p.of_padding[key] = layer.data.of_first(np.array(given))
        return self._p.of_padding[key]


def of_empty_maximum(p: Program, cell: int) -> float | None:
    """The largest of a cell over the padding of a row without events; None: not known."""
    values = [masked_value(p, cell, state) for state in (PADDING, EMPTY)]
    return None if None in values else max(v for v in values if v is not None)


def differs(p: Program, cell: Any, state: int) -> bool:
    """Whether a cell, but for what is in a softmax, is another in a state than where there are events."""
    left, seen = [cell], set()
    while left:
        cell = left.pop()
        if not isinstance(cell, int) or cell in seen:
            continue
        seen.add(cell)
        source, column = p.sources.of(cell)
        if source.kind == "constant" and source.data[state] != source.data[0]:
            return True
        if source.kind in FUNCTIONS:
            left += [at(x, column) for x in source.operands]
    return False


Polynomial = dict[tuple[int, ...], float]  # by the atoms of a monomial its factor


def polynomial(p: Program, cell: Any, atoms: frozenset[int] = frozenset(), most: int = 16) -> Polynomial:
    """The cell as sums of products of cells that are no sums or products, or are among `atoms`."""
    known: dict[int, Polynomial] = {}

    def found(cell: Any) -> Polynomial:
        if not isinstance(cell, int):
            return {(): float(cell)}
        cell = resolve(p, cell)
        if cell not in known:
            known[cell] = made(cell)
        return known[cell]

    def made(cell: int) -> Polynomial:
        source, column = p.sources.of(cell)
        divisor = constant_of(p, at(source.operands[1], column)) if source.kind == "div" else None
        if cell in atoms or not (source.kind in ("add", "sub", "mul", "neg", "square", "affine") or divisor):
            return {(cell,): 1.0}
        operands = [found(at(x, column)) for x in source.operands]
        if source.kind == "affine":
            scale, shift = (float(v[column]) for v in source.data[:2])
            return added(_product(operands[0], {(): scale}, most), {(): shift})
        if divisor:
            return {monomial: factor / divisor for monomial, factor in operands[0].items()}
        if source.kind in ("mul", "square"):
            return _product(operands[0], operands[-1], most)
        if source.kind == "neg":
            return {k: -v for k, v in operands[0].items()}
        return added(operands[0], operands[1], -1 if source.kind == "sub" else 1)
    return found(cell)


def added(a: Polynomial, b: Polynomial, sign: float = 1.0) -> Polynomial:
    total = dict(a)
    for monomial, factor in b.items():
        total[monomial] = total.get(monomial, 0.0) + sign * factor
    return {monomial: factor for monomial, factor in total.items() if factor}


def _product(a: Polynomial, b: Polynomial, most: int) -> Polynomial:
    if len(a) * len(b) > most:
        raise Unsupported(f"a sum of at most {most} products", f"{len(a) * len(b)}")
    total: Polynomial = {}
    for x, factor in a.items():
        for y, other in b.items():
            total = added(total, {tuple(sorted(x + y)): factor * other})
    return total

