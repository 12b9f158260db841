# SPDX-License-Identifier: Apache-2.0
"""What is computed of the fields or the experts of a row: products of pairs, factorisation machines, mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import COLUMN_SHIFT, columns_of, num_runs, source_numbers
from .expressions import at, elementwise, resolve

if TYPE_CHECKING:
    from .program import Program


def dots(p: Program, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[len(a), len(b)]: the products of fields with fields. Only those that are wanted are computed; those of a field of
    a lie side by side."""
    dim = a.shape[1]
    left, i = np.unique(a, axis=0, return_inverse=True)
    right, j = np.unique(b, axis=0, return_inverse=True)
    if len(np.unique(np.concatenate([left, right]), axis=0)) == len(left) + len(right):
        return _dots_between(p, left, right)[i.reshape(-1, 1), j.reshape(1, -1)]
    places: dict[bytes, int] = {}
    for each in (*b, *a):
        places.setdefault(np.ascontiguousarray(each).tobytes(), len(places))
    fields = [np.frombuffer(key, np.int64) for key in places]
    axis = p.sources.axis_of(a, b)
    i = np.array([places[np.ascontiguousarray(f).tobytes()] for f in a])[:, None]
    j = np.array([places[np.ascontiguousarray(f).tobytes()] for f in b])[None, :]
    row, column = np.maximum(i, j), np.minimum(i, j)
    number = row * (row + 1) // 2 + column  # in the lower triangle with the diagonal

    def make(wanted: np.ndarray) -> tuple[Any, np.ndarray, int]:
        rows = ((np.sqrt(8.0 * wanted + 1) - 1) // 2).astype(np.int64)
        with_itself = bool((wanted == rows * (rows + 1) // 2 + rows).any())
        if with_itself not in made:
            begins = [i for i in range(1, len(fields)) if num_runs(np.concatenate(fields[i - 1:i + 1])) > 1]
            tensors = [p.sources.gather(np.concatenate(side_by_side), axis)
                       for side_by_side in np.split(np.array(fields), begins)]
            made[with_itself] = p.builder.dot(tensors, dim, order="lower", self_=with_itself)
        count = len(fields)
        if with_itself:
            return made[True], wanted, count * (count + 1) // 2
        return made[False], wanted - rows, count * (count - 1) // 2

    made: dict[bool, Any] = {}
    return p.sources.add(axis, len(fields) * (len(fields) + 1) // 2, "dots", make, by_column=True)[number]


def _dots_between(p: Program, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The same of fields of which none is on both sides."""
    axis = p.sources.axis_of(left, right)
    made = p.sources.add(axis, len(left) * len(right), "dots", lambda: p.builder.dot_between(
        [p.sources.gather(left, axis)], [p.sources.gather(right, axis)], left.shape[1]))
    return made.reshape(len(left), len(right))


def products_of_pairs(p: Program, terms: np.ndarray) -> np.ndarray | None:
    """The sums of terms [pairs, dim] that are products of two fields of a row, column by column; None: they are others,
    of fields that do not lie side by side, or a single one, whose product and sum share launches with others, or of so
    many fields that most of their dots would be of no use."""
    most_dots = 4
    if len(terms) == 1:
        return None
    pairs = _factors(p, terms)
    if pairs is None or (np.diff(pairs, axis=2) != 1 << COLUMN_SHIFT).any() or (pairs[0] == pairs[1]).any():
        return None
    found = {p.sources.axis_of(field) for side in pairs for field in side}
    count = len(np.unique(pairs.reshape(-1, terms.shape[1]), axis=0))
    if len(found) != 1 or p.sources.sequence_of(*found) is not None or count * (count - 1) > 2 * most_dots * len(terms):
        return None
    return dots(p, *pairs).diagonal()


def _factors(p: Program, products: np.ndarray) -> np.ndarray | None:
    """[2, ..] of cells that are products of two."""
    pairs = np.empty((2, *products.shape), np.int64)
    for place, cell in np.ndenumerate(products):
        source, column = p.sources.of(resolve(p, int(cell)))
        factors = [at(x, column) for x in source.operands] if source.kind == "mul" else []
        if len(factors) != 2 or not all(isinstance(x, int) for x in factors):
            return None
        pairs[(slice(None), *place)] = [resolve(p, x) for x in factors]
    return pairs


# --- factorisation machines: (sum_f e_f)^2 - sum_f e_f^2


def summed(p: Program, cell: int) -> np.ndarray | None:
    """What a cell is the sum of."""
    source, column = p.sources.of(resolve(p, cell))
    return source.data[column] if source.kind == "sum" else None


def squared(p: Program, cell: int) -> int | None:
    """What a cell is the square of."""
    source, column = p.sources.of(resolve(p, cell))
    if source.kind == "square":
        return resolve(p, at(source.operands[0], column))
    if source.kind != "mul":
        return None
    a, b = (at(x, column) for x in source.operands)
    return resolve(p, a) if isinstance(a, int) and isinstance(b, int) and resolve(p, a) == resolve(p, b) else None


def factorisation_machine(p: Program, a: Any, b: Any, width: int) -> np.ndarray | None:
    """The cells of a - b, where they are twice the products of all pairs of fields."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None
    fields: list[np.ndarray] = []
    for column in range(width):
        root = squared(p, at(a, column))
        terms = None if root is None else summed(p, root)
        squares = summed(p, at(b, column))
        if terms is None or squares is None or len(terms) != len(squares):
            return None
        roots = [squared(p, int(s)) for s in squares]
        if None in roots or sorted(resolve(p, int(t)) for t in terms) != sorted(r for r in roots if r is not None):
            return None
        fields.append(terms)
    terms = np.stack(fields).T  # [fields, dim]
    return _machine(p, terms, 2.0, reduce=False)


def _machine(p: Program, fields: np.ndarray, factor: float, reduce: bool) -> np.ndarray:
    axis = p.sources.axis_of(fields)

    def make() -> Any:
        tensor = p.builder.fm([p.sources.gather(f, axis) for f in fields], fields.shape[1], reduce=reduce)
        return tensor if factor == 1 else p.builder.apply("mul", [tensor, factor])
    return p.sources.add(axis, 1 if reduce else fields.shape[1], "fm", make, data=(fields, factor, reduce))


def _whole(p: Program, cells: np.ndarray, kind: str) -> Any:
    """The source that cells are all columns of, in any order."""
    numbers = np.unique(source_numbers(cells))
    source = p.sources.all[numbers[0]]
    whole = len(numbers) == 1 and source.kind == kind and cells.size == source.width == len(np.unique(cells))
    return source if whole else None


def scaled_machine(p: Program, cells: np.ndarray, factor: float) -> np.ndarray | None:
    source = _whole(p, cells, "fm")
    if source is None or (np.diff(cells.ravel()) < 0).any():
        return None
    fields, old, reduce = source.data
    return _machine(p, fields, old * factor, reduce)


def summed_machine(p: Program, cells: np.ndarray) -> np.ndarray | None:
    source = _whole(p, cells, "fm")
    if source is None or source.data[2]:
        return None
    return _machine(p, source.data[0], source.data[1], reduce=True)


# --- mixtures of experts: sum_e softmax(g)_e x_e; of crosses x y_e their common factor times one


def _gate_of(p: Program, cell: int) -> tuple[int, int] | None:
    """Of a product of a softmax's column with something: the two cells."""
    source, column = p.sources.of(resolve(p, cell))
    if source.kind != "mul":
        return None
    cells = [at(x, column) for x in source.operands]
    if not all(isinstance(x, int) for x in cells):
        return None
    cells = [resolve(p, x) for x in cells]
    for gate, expert in (cells, cells[::-1]):
        if p.sources.of(gate)[0].kind == "softmax":
            return gate, expert
    return None


def mixture(p: Program, gates: np.ndarray, experts: np.ndarray) -> np.ndarray | None:
    """[dim] of gates [E] and experts [E, dim], where the gates are all of a softmax."""
    source = _whole(p, gates, "softmax")
    if source is None:
        return None
    logits = source.operands[0][columns_of(gates)]
    factor, experts = _common_factor(p, experts) or (None, experts)
    axis, width = p.sources.axis_of(logits, experts), experts.shape[1]
    mixed = p.sources.add(axis, width, "mix", lambda: p.builder.mix(
        p.sources.gather(experts, axis), p.sources.gather(logits, axis)))
    return mixed if factor is None else elementwise(p, "mul", (factor, mixed), width, p.sources.axis_of(factor, mixed))


def _common_factor(p: Program, experts: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """x [dim] and y [E, dim] of experts that are x y_e."""
    pairs = _factors(p, experts)
    if pairs is None:
        return None
    for factor in pairs[:, 0]:
        is_factor = pairs == factor
        if is_factor.any(0).all():
            return factor, np.where(is_factor[0], pairs[1], pairs[0])
    return None


def terms_of_sum(p: Program, cells: np.ndarray) -> list[np.ndarray]:
    """What cells are the sums of."""
    found = [p.sources.of(resolve(p, int(cell))) for cell in cells]
    if any(source.kind != "add" or not all(isinstance(x, np.ndarray) for x in source.operands) for source, _ in found):
        return [cells]
    sides = [np.array([at(source.operands[i], column) for source, column in found]) for i in (0, 1)]
    return [term for side in sides for term in terms_of_sum(p, side)]


def mixture_of_terms(p: Program, rows: np.ndarray) -> np.ndarray | None:
    """[dim] of sums [dim, terms]: a mixture, where each term is an expert times its gate."""
    pairs = [[_gate_of(p, int(cell)) for cell in rows[0]]]
    if None in pairs[0]:
        return None
    gates = np.array([gate for gate, _ in pairs[0]])  # type: ignore[misc]
    pairs += [[_gate_of(p, int(cell)) for cell in row] for row in rows[1:]]
    for row in pairs:
        if any(pair is None or pair[0] != gate for pair, gate in zip(row, gates)):
            return None
    return mixture(p, gates, np.array([[pair[1] for pair in row] for row in pairs]).T)  # type: ignore[index]


def mixture_of_sum(p: Program, a: Any, b: Any, width: int) -> np.ndarray | None:
    """The cells of a + b, where they end a sum of all experts times their gates."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or _gate_of(p, at(b, 0)) is None:
        return None
    terms = [term for x in (a, b) for term in terms_of_sum(p, np.broadcast_to(x, width))]
    return mixture_of_terms(p, np.stack(terms).T)
