# SPDX-License-Identifier: Apache-2.0
"""What is computed over the events of a sequence: pools, and attention of a query over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import PAIR, Unsupported, columns_of, pooled_axis, source_numbers
from .din import din_attention, unscaled
from .expressions import (LATER, MASKED, SELF, at, constant, constant_of, differs, distinct, masked_value, masked_with,
                          of_empty_maximum, resolve)
from .masks import check_count, check_masks, check_weight, or_of_empty
from .not_finite import BareMean

if TYPE_CHECKING:
    from .program import Program


@dataclass
class Layer:
    """A linear layer of cells."""

    cells: np.ndarray  # that it reads
    weight: np.ndarray  # [out, in]
    bias: np.ndarray | None = None
    path: str | None = None

    def of_first(self, x: np.ndarray) -> np.ndarray:
        """What it makes of the numbers of a first event."""
        return self.weight @ x + (0 if self.bias is None else self.bias)


def pool(p: Program, cells: np.ndarray, pooling: str, length: int = 0) -> np.ndarray:
    """[n]: cells [n] of one event, pooled over all. The module has `length` of them, with padding."""
    axis = p.sources.axis_of(cells)
    parent = pooled_axis(axis)
    if pooling == "sum":
        found = attended(p, cells, axis)
        if found is not None:
            return found
        if all(constant_of(p, int(c)) == 1 for c in cells):
            return np.repeat(p.sources.add(parent, 1, "count", lambda: _pool(p, cells[:1], axis, "sum"), (cells[:1],)),
                             len(cells))

    def make() -> Any:
        if PAIR in axis:
            raise Unsupported("attention that the library has: weights of an MLP of q, k, q - k and q * k, or of "
                              "products of projections", "other weights")
        sequence = p.sources.sequence_of(axis)
        if pooling == "max" and sequence is not None and sequence.mask is not None:
            return _maximum(p, cells, axis)
        if pooling == "sum":
            return or_of_empty(p, _pool(p, cells, axis, "sum"), check_masks(p, cells), axis, parent)
        if pooling == "mean" and sequence is not None and sequence.mask is not None:  # with padding that is zeros
            total = or_of_empty(p, _pool(p, cells, axis, "sum"), check_masks(p, cells), axis, parent)
            return p.builder.apply("mul", [total, 1 / length])
        return _pool(p, cells, axis, pooling)
    return p.sources.add(parent, len(cells), f"pool_{pooling}", make, data=(cells, axis))


def _maximum(p: Program, cells: np.ndarray, axis: str) -> Any:
    """Of events alone; of a row that has none what its padding is, the least number in the place of -inf."""
    if any((masked_with(p, int(cell)) or 0) > MASKED for cell in cells):
        raise Unsupported("a maximum in which padding is masked by a number, as -1e9", "one of padding, too")
    of_empty = [of_empty_maximum(p, int(cell)) for cell in cells]
    if None in of_empty:
        raise Unsupported("a maximum of which is known what it is in rows without events: x.masked_fill(is_padding, -1e9)",
                          "a number that is added to what padding is, as x + (1 - is_event) * -1e9")
    least = float(np.finfo(np.float32).min)
    return or_of_empty(p, _pool(p, cells, axis, "max"), np.maximum(np.array(of_empty, np.float64), least), axis,
                       pooled_axis(axis))


def _pool(p: Program, cells: np.ndarray, axis: str, pooling: str) -> Any:
    source, _ = p.sources.of(resolve(p, int(cells[0])))
    bare = np.array([resolve(p, int(c)) for c in cells])
    if source.kind == "embed" and source.axis == axis and len(cells) == source.width and \
            len(np.unique(source_numbers(bare))) == 1 and (columns_of(bare) == np.arange(source.width)).all():
        ids, weight = source.data
        return p.builder.embed_bag(*p.ids_column(ids, weight), pooling)  # type: ignore[arg-type]
    return p.builder.pool(p.sources.gather(cells, axis), pooling)  # type: ignore[arg-type]


def mean_of_events(p: Program, sums: Any, count: Any, width: int) -> np.ndarray | None:
    """The cells of a sum over events divided by their number, or by 1 where there are none."""
    if not isinstance(sums, np.ndarray) or not isinstance(count, np.ndarray) or len(np.unique(count)) != 1:
        return None
    number, _ = p.sources.of(resolve(p, int(count[0])))
    bare = BareMean(resolve(p, int(count[0]))) if number.kind == "count" else None
    if number.kind in ("max", "add"):  # of a number that saves an empty sequence
        least = [constant_of(p, at(x, 0)) for x in number.operands]
        known = [x for x in least if x is not None]
        if len(known) != 1 or known[0] > (1 if number.kind == "max" else 1e-6):
            return None
        number, _ = p.sources.of(at(number.operands[least.index(None)], 0))
    found = [p.sources.of(resolve(p, int(c))) for c in np.broadcast_to(sums, width)]
    if number.kind != "count" or any(s.kind != "pool_sum" or s.axis != number.axis for s, _ in found):
        return None
    axes = {s.data[1] for s, _ in found}
    if len(axes) != 1:
        return None
    axis, cells = axes.pop(), np.array([s.data[0][c] for s, c in found])
    if p.sources.axis_of(number.operands[0]) != axis:
        return None  # how many others there are

    def make() -> Any:
        check_count(p, number)
        if check_masks(p, cells) is not None:
            raise Unsupported("a mean in which rows without events have 0, as behind a mask of ids or arange < lengths",
                              "one in which they have an event of padding, as of lengths.clamp(min=1)")
        return _pool(p, cells, axis, "mean")
    return p.sources.add(number.axis, width, "pool_mean", make, data=bare)


def event_softmax(p: Program, cells: np.ndarray) -> np.ndarray:
    """[n]: of each cell the softmax over all events."""
    first, which = distinct([cells], len(cells))
    cells = cells[first]
    axis = p.sources.axis_of(cells)

    def make() -> Any:
        if PAIR in axis:
            raise Unsupported("attention that the library has", "a softmax over events for each query")
        score = p.sources.gather(cells, axis)
        check_weight(p, int(made[0]))
        b, events = p.builder, p.axis(axis)
        raised = b.apply("exp", [b.apply("sub", [score, b.expand(b.pool(score, "max"), events)])])
        return b.apply("div", [raised, b.expand(b.pool(raised, "sum"), events)])
    made = p.sources.add(axis, len(cells), "event_softmax", make, (cells,))
    return made[which]


# --- attention


def attended(p: Program, cells: np.ndarray, axis: str) -> np.ndarray | None:
    """The sum over events of cells [n], where it is attention: a weight times the event's cells."""
    products = [p.sources.of(resolve(p, int(c))) for c in cells]
    if any(s.kind != "mul" or not all(isinstance(x, np.ndarray) for x in s.operands) for s, _ in products):
        return None
    for first in (0, 1):
        weights = {resolve(p, at(s.operands[first], c)) for s, c in products}
        keys = np.array([resolve(p, at(s.operands[1 - first], c)) for s, c in products])
        if len(weights) != 1 or any(PAIR in a or p.sources.sequence_of(a) is None for a in p.sources.axes_in(keys)):
            continue
        weight = weights.pop()
        made = din_attention(p, cells, weight, keys, axis)
        return made if made is not None else _dot_attention(p, cells, weight, keys, axis)
    return None


def scores(p: Program, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """[1]: the product of a query [d] with each event's key [d]."""
    axis = p.sources.axis_of(queries, keys)
    query = p.sources.axis_of(queries)
    if p.sources.sequence_of(query) is not None:
        axis = query + PAIR + query
    return p.sources.add(axis, 1, "scores", lambda: p.builder.dot(
        [p.sources.gather(queries, axis), p.sources.gather(keys, axis)], len(keys)), data=(queries, keys))


def is_causal(p: Program, score: int, products: np.ndarray) -> bool:
    """Whether an event sees what came before it, and itself, alone."""
    if any(differs(p, c, SELF) for c in (score, *map(int, products))):
        raise Unsupported("attention in which each event sees itself, too", "one without the diagonal")
    if not differs(p, score, LATER):
        if any(differs(p, int(c), LATER) for c in products):
            raise Unsupported("what comes later masked before the softmax", "behind it")
        return False
    if (masked_with(p, score, LATER) or 0) > MASKED:
        raise Unsupported("a softmax in which what comes later is masked", "one of that, too")
    if any(masked_value(p, int(c), LATER) != 0 for c in products):
        raise Unsupported("a sum in which what comes later counts nothing", "one of that, too")
    return True


def _dot_attention(p: Program, cells: np.ndarray, weight: int, values: np.ndarray, axis: str) -> np.ndarray | None:
    source, column = p.sources.of(weight)
    if source.kind != "event_softmax":
        return None
    masked = at(source.operands[0], column)
    causal = is_causal(p, masked, cells)
    score, factor = unscaled(p, masked)
    source, _ = p.sources.of(score)
    if source.kind != "scores" or len(source.data[1]) != len(values):
        return None
    queries, keys = source.data
    head = Head(cells, weight, queries, keys, values, factor, causal)
    size = len(values)
    one = Layer(np.arange(0), np.eye(size, dtype=np.float32), None)
    return p.sources.add(pooled_axis(axis), size, "head", lambda: _attention(p, [head], one, pooled_axis(axis)),
                         data=head)


@dataclass
class Head:
    """One head of attention: softmax(factor * queries keys^T) values."""

    products: np.ndarray  # of weights and values, whose sum over events it is
    weight: int
    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    factor: float
    causal: bool


def attention_layer(p: Program, layer: Layer) -> np.ndarray | None:
    """A linear layer, where it is of heads of attention over one sequence."""
    cells = layer.cells
    heads: list[Head] = []
    begin = 0
    while begin < len(cells):
        source, _ = p.sources.of(int(cells[begin]))
        part = cells[begin:begin + source.width]
        if source.kind != "head" or len(part) != source.width or (np.diff(part) != part[0] * 0 + (1 << 12)).any() or \
                columns_of(part[:1])[0] != 0:
            return None
        heads.append(source.data)
        begin += source.width
    if len({(len(h.values), h.causal) for h in heads}) != 1:
        return None
    axis = p.sources.axis_of(cells)
    return p.sources.add(axis, len(layer.weight), "attention", lambda: _attention(p, heads, layer, axis),
                         data=layer)


def projection(p: Program, cells: np.ndarray) -> Layer:
    """Cells as a linear layer of others; at least of themselves."""
    bare, factors = zip(*(unscaled(p, int(c)) for c in cells))
    found = [p.sources.of(c) for c in bare]
    if all(s.kind == "linear" for s, _ in found) and len({s.data.cells.tobytes() for s, _ in found}) == 1:
        factor = np.array(factors, np.float32)
        weight = np.stack([s.data.weight[c] for s, c in found]) * factor[:, None]
        bias = np.array([0 if s.data.bias is None else s.data.bias[c] for s, c in found], np.float32) * factor
        return Layer(found[0][0].data.cells, weight, bias)
    return Layer(cells, np.eye(len(cells), dtype=np.float32), None)


def _attention(p: Program, heads: list[Head], out: Layer, axis: str) -> Any:
    of_heads = [check_masks(p, head.products) for head in heads]
    for head in heads:
        check_weight(p, head.weight)
    size = len(heads[0].values)
    q, k, v = (projection(p, np.concatenate([getattr(h, part) for h in heads]))
               for part in ("queries", "keys", "values"))
    if k.cells.tobytes() != v.cells.tobytes():
        k, v = (_unprojected(p, heads, part, k.cells, v.cells) for part in ("keys", "values"))
    factor = np.repeat(np.array([h.factor * math.sqrt(size) for h in heads], np.float32), size)
    q = Layer(q.cells, q.weight * factor[:, None], None if q.bias is None else q.bias * factor)
    name = p.layer(p.module_path() or None)
    for part, layer in (("q", q), ("k", k), ("v", v), ("out", out)):
        p.weights[f"{name}.{part}.weight"] = layer.weight
        p.weights[f"{name}.{part}.bias"] = (np.zeros(len(layer.weight), np.float32) if layer.bias is None
                                            else layer.bias)
    events = p.sources.axis_of(k.cells)
    made = p.builder.target_attention(name, p.sources.gather(q.cells, axis), p.sources.gather(k.cells, events),
                                      heads=len(heads), head_dim=size, out=len(out.weight), causal=heads[0].causal)
    if all(x is None for x in of_heads):
        return made
    of_empty = np.concatenate([np.zeros(size, np.float32) if x is None else x for x in of_heads])
    return or_of_empty(p, made, out.of_first(of_empty), events, axis)


def _unprojected(p: Program, heads: list[Head], part: str, keys: np.ndarray, values: np.ndarray) -> Layer:
    """Keys and values that are of different cells, as layers of all of them."""
    layer = projection(p, np.concatenate([getattr(h, part) for h in heads]))
    zeros = np.zeros((len(layer.weight), len(values if part == "keys" else keys)), np.float32)
    sides = [layer.weight, zeros] if part == "keys" else [zeros, layer.weight]
    return Layer(np.concatenate([keys, values]), np.concatenate(sides, 1), layer.bias)

