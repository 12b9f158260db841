# SPDX-License-Identifier: Apache-2.0
"""Layers of a batch: softmax, products of matrices."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from . import auto_int, composed_layers, events, fields
from .candidates import as_rows
from .cells import PAIR, POSITIONS, Unsupported, Value, num_runs, numbers, row_dimension
from .expressions import elementwise
from .linears import linear_row

if TYPE_CHECKING:
    from .program import Program


def softmax(p: Program, x: Any, dim: int) -> Value:
    x = as_rows(p, numbers(x))
    dim = row_dimension(x, dim)
    place, cells = p.sources.split_events(x.cells)
    if place == -2 and dim == cells.ndim - 1:
        x = turned_scores(p, x)
        place, cells = p.sources.split_events(x.cells)
    if place is not None and dim == place + cells.ndim:
        made = events.event_softmax(p, cells.ravel()).reshape(cells.shape)
        return x.like(p.sources.with_events(made, place, x.cells.shape[place]))
    axis = p.sources.axis_of(cells)
    last = np.moveaxis(cells, dim, -1)
    given = [composed_layers.side_by_side(p, r) for r in last.reshape(-1, last.shape[-1])]
    rows = [p.sources.add(axis, len(r), "softmax", lambda r=r: p.builder.softmax(  # type: ignore[misc]
        p.sources.gather(r, axis)), (r,)) for r in given]
    made = np.moveaxis(np.stack(rows).reshape(last.shape), -1, dim)
    return x.like(made if place is None else p.sources.with_events(made, place, x.cells.shape[place]))


# --- products of matrices

MOST_MULTIPLES = 16  # rows that are added up one by one


def matmul_constants(p: Program, a: Any, matrices: np.ndarray) -> Value:
    """With constants [.., in, out], a matrix for each field."""
    if numbers(a).batch == -1:
        raise Unsupported("each row by itself", "a layer over the batch")
    if a.cells.shape[-1] != matrices.shape[-2]:
        raise Unsupported(f"[.., {matrices.shape[-2]}] of a row", "a layer over events")
    fields = np.broadcast_shapes(a.cells.shape[:-2], matrices.shape[:-2])
    if len(fields) > a.cells.ndim - 2:
        raise Unsupported("matrices for fields that a row has", f"for {list(matrices.shape[:-2])}")
    rows = np.broadcast_to(a.cells, fields + a.cells.shape[-2:])
    weights = np.broadcast_to(matrices, fields + matrices.shape[-2:])
    made = [[linear_row(p, events.Layer(row, weights[field].T)) for row in rows[field]] for field in np.ndindex(fields)]
    return a.like(np.stack(made).reshape(*rows.shape[:-1], matrices.shape[-1]))


def matmul(p: Program, a: Any, b: Any) -> Value:
    """Of batches of matrices, one for each row."""
    a, b = as_rows(p, numbers(a)), as_rows(p, numbers(b))
    if a.cells.ndim < 3 or a.cells.ndim != b.cells.ndim or a.batch != b.batch or a.batch >= -2:
        raise Unsupported("products of matrices, one for each row",
                          f"{a.cells.ndim} and {b.cells.ndim} dimensions")
    heads = np.broadcast_shapes(a.cells.shape[:-2], b.cells.shape[:-2])
    lefts = np.broadcast_to(a.cells, heads + a.cells.shape[-2:]).reshape(-1, *a.cells.shape[-2:])
    rights = np.broadcast_to(b.cells, heads + b.cells.shape[-2:]).reshape(-1, *b.cells.shape[-2:])
    has_events = any((x & POSITIONS).any() for x in (lefts, rights))
    made = auto_int.attended(p, lefts, rights)
    if made is None and not has_events:
        made = _weighted(p, lefts, rights)
    if made is None and not has_events:
        turned = _weighted(p, rights.swapaxes(1, 2), lefts.swapaxes(1, 2))
        made = None if turned is None else turned.swapaxes(1, 2)
    if made is None:
        made = np.stack([product(p, left, right) for left, right in zip(lefts, rights)])
        if not has_events:
            p.products[made.tobytes()] = lefts, rights
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
        if a.shape[1] == 1 and 1 in (len(a), b.shape[1]):
            return multiple(p, a, b)
        if 1 < len(b) <= MOST_MULTIPLES and (a == a[0]).all() and num_runs(b.ravel()) <= len(b) < b.shape[1]:
            return np.broadcast_to(sum_of_multiples(p, a[0], b), (len(a), b.shape[1]))
        return fields.dots(p, a, b.T)
    if in_a not in (None, -2) or in_b not in (None, -1):
        raise Unsupported("a sum over events of weights with what they weigh", "another product")
    if in_b == -1:  # a query with each event
        made = np.stack([events.scores(p, row, right[:, 0]) for row in left])
        if in_a == -2:
            made = np.broadcast_to(made, (len(a), 1))
        return p.sources.with_events(made, -1, b.shape[1])
    made = np.stack([events.scores(p, column, left[0]) for column in right.T])
    return p.sources.with_events(made.T, -2, len(a))


def multiple(p: Program, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[M, N] of a [M, 1] and b [1, N], one of which is a number, as in the cross layers of DCN."""
    made = elementwise(p, "mul", [a.ravel(), b.ravel()], a.size * b.size, p.sources.axis_of(a, b))
    return made.reshape(len(a), b.shape[1])


def _weighted(p: Program, weights: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """[heads, M, N] of weights [heads, M, K] that are gates of mixtures, or such with others added, and values [heads, K,
    N]: (g + w) v = g v + w v; None: no term is gates."""
    terms = [[fields.terms_of_sum(p, row) for row in head] for head in weights]
    if len({len(of_row) for head in terms for of_row in head}) > 1:
        return None
    given = np.moveaxis(np.array(terms), 2, 0)  # [terms, heads, M, K]
    mixed = [_mixtures(p, gates, values) for gates in given]
    if all(x is None for x in mixed):
        return None
    made = [x if x is not None else np.stack([product(p, *each) for each in zip(others, values)])
            for x, others in zip(mixed, given)]
    axis = p.sources.axis_of(*made)
    return reduce(lambda a, b: elementwise(p, "add", [a.ravel(), b.ravel()], a.size, axis).reshape(a.shape), made)


def _mixtures(p: Program, gates: np.ndarray, experts: np.ndarray) -> np.ndarray | None:
    """[heads, M, N] of gates [heads, M, K] and experts [heads, K, N]; None: they are not the gates of mixtures."""
    made = []
    for head, own in zip(gates, experts):
        rows, which = np.unique(head, axis=0, return_inverse=True)
        mixed = [fields.mixture(p, row, own) for row in rows]
        if any(x is None for x in mixed):
            return None
        made.append(np.array(mixed)[which.ravel()])
    return np.array(made)


def sum_of_multiples(p: Program, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[N] of weights [K] and values [K, N]."""
    axis = p.sources.axis_of(weights, values)
    terms = [elementwise(p, "mul", [weights[k:k + 1], row], len(row), axis) for k, row in enumerate(values)]
    return reduce(lambda a, b: elementwise(p, "add", [a, b], len(a), axis), terms)


def turned_scores(p: Program, x: Any) -> Any:
    """Products of keys with queries, transposed, as those of queries with keys; others as they are."""
    if not isinstance(x, Value) or x.is_ids:
        return x
    place, cells = p.sources.split_events(x.cells)
    if place != -2 or not (cells == cells[..., :1]).all():
        return x
    found = [p.sources.of(int(cell))[0] for cell in cells[..., 0, 0].flat]
    if any(s.kind != "scores" or len(set(s.axis.split(PAIR))) > 1 for s in found):
        return x
    made = [events.scores(p, keys, queries) for queries, keys in (s.data for s in found)]
    each = np.broadcast_to(np.reshape(made, cells[..., :1].shape), x.cells[..., :1].shape)
    return x.like(p.sources.with_events(each, -1, x.cells.shape[-2]))


def weighted_sum(p: Program, weight: Any, cells: np.ndarray) -> np.ndarray:
    weights = np.array([weight])
    axis = p.sources.axis_of(weights, cells)
    return events.pool(p, elementwise(p, "mul", [weights, cells], len(cells), axis), "sum")
