# SPDX-License-Identifier: Apache-2.0
"""Look-ups of a PyTorch program in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..lowering.cells import Unsupported, Value, move
from ..lowering.ids import indexed
from ..lowering.lengths import at_last
from ..lowering.places import by_event, embedding, ids_of
from .handlers import HANDLERS, handles

if TYPE_CHECKING:
    from .program import Program

aten = torch.ops.aten


@handles("embedding")
def embedding_of(p: Program, weight: torch.Tensor, ids: Any, *_: Any) -> Value:
    return embedding(p, weight, ids)


@handles("index", events=True)
def index(p: Program, x: Any, indices: Any) -> Any:
    if isinstance(x, Value) and _are_rows(p, indices):
        p.picks[p.alike[p.current().args[1][0]]] = int(indices[0].cells.flat[0])
        return x  # what is made of the other rows is not read
    if isinstance(x, Value) and any(isinstance(i, Value) for i in indices):
        return _of_each_row(p, x, indices)
    if isinstance(x, Value) or len(indices) != 1:
        return move(torch.ops.aten.index.Tensor, (x, indices), {}, p.batch, torch.from_numpy)
    if x.is_floating_point():
        made = by_event(p, embedding, (x if x.dim() == 2 else x.reshape(len(x), -1), indices[0]), {}, widens=True)
        shape = (*made.cells.shape[:-1], *x.shape[1:])
        return Value(made.cells.reshape(shape), False, made.batch + 2 - x.dim(), made.inner)
    return by_event(p, indexed, (x, ids_of(p, indices[0])), {})


@handles("index_select", events=True)
def index_select(p: Program, table: Any, dim: int, ids: Any) -> Any:
    if dim % table.dim() != 0:
        raise Unsupported("rows of a table by ids", f"elements along its dimension {dim}")
    return index(p, table, [ids])


def _are_rows(p: Program, indices: Any) -> bool:
    """Whether they are a truth value for each row."""
    given = p.current().args[1][0]
    return len(indices) == 1 and isinstance(indices[0], Value) and indices[0].cells.size == 1 and \
        given.meta["val"].dtype == torch.bool


@handles("index_put", "index_put_", events=True)
def index_put(p: Program, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Value:
    """x[is_row] = values, of which each is of its row."""
    if not accumulate and isinstance(values, torch.Tensor) and _are_no_numbers(p):
        is_none = by_event(p, HANDLERS["isnan"], (x,), {})
        return by_event(p, HANDLERS["where"], (is_none, values, x), {}, constants=True)
    if accumulate or not _are_rows(p, indices) or not isinstance(values, Value):
        raise Unsupported("values of some rows, x[is_row] = values", "another change of elements")
    out, (is_row,), given = p.current().args[:3]
    if not _are_of_rows(p, out, is_row, given):
        raise Unsupported("values of the rows that they are for, out[is_row] = f(x[is_row])", "of rows of another mask")
    mask = Value(indices[0].cells.reshape([1] * values.cells.ndim), False, values.batch, values.inner)
    return by_event(p, HANDLERS["where"], (mask, values, x), {}, constants=True)


def _are_no_numbers(p: Program) -> bool:
    """Whether the rows are those of a softmax that is no number, softmax[softmax.isnan().any(dim)]."""
    x, (mask, *more) = p.current().args[:2]
    if more or x.target not in (aten.softmax.int, aten._softmax.default) or \
            mask.target not in (aten.any.dim, aten.any.dims) or mask.args[1] not in (x.args[1], [x.args[1]]):
        return False
    given = mask.args[0]
    return bool(given.target == aten.isnan.default and p.alike[given.args[0]] == p.alike[x])


def _are_of_rows(p: Program, out: torch.fx.Node, mask: torch.fx.Node, values: torch.fx.Node) -> bool:
    """Whether values are of the rows of `out` that a mask picks, and of no others."""
    return p.rows[values] in (None, p.alike[mask]) and p.rows[out] in (None, p.rows[mask])


def _of_each_row(p: Program, x: Value, indices: Any) -> Value:
    """x[torch.arange(batch), lengths - 1]"""
    rows, *places = indices
    if isinstance(rows, torch.Tensor) and torch.equal(rows, torch.arange(p.batch)) and len(places) == 1 and \
            isinstance(places[0], Value) and places[0].cells.ndim == 1:
        last = at_last(p, x, 1, places[0], wraps=True)
        if last is not None and x.is_plain:
            return Value(last.cells[:, 0])
    raise Unsupported("columns of each row that are the same, or the last event, x[torch.arange(batch), lengths - 1]",
                      "others by row")


@handles("masked_select", events=True)
def masked_select(p: Program, x: Any, mask: Any) -> Value:
    if isinstance(mask, Value):
        raise Unsupported("a mask that is the same for each row", "another for each")
    return move(torch.ops.aten.masked_select.default, (x, mask), {}, p.batch, torch.from_numpy)


@handles("one_hot")
def one_hot(p: Program, ids: Any, count: int = -1) -> Value:
    if count < 0:
        raise Unsupported("F.one_hot(ids, num_classes)", "the number of classes by the batch")
    return embedding(p, torch.eye(count), ids_of(p, ids))


@handles("sym_size", events=True)
def size_of(p: Program, x: Value, dim: int) -> int:
    """Where PyTorch knows it only by values, as behind masked_select."""
    dim = dim % x.cells.ndim
    return x.cells.shape[dim] * (p.batch if dim == x.batch + x.cells.ndim else 1)


@handles("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", events=True)
def embedding_bag(p: Program, weight: torch.Tensor, ids: Any, offsets: Any, scale_grad: bool = False, mode: int = 0,
                  sparse: bool = False, per_sample_weights: Any = None, include_last: bool = False,
                  padding: int | None = -1) -> tuple[Value]:
    given = p.input_of(int(ids_of(p, ids).cells.flat[0]))
    pooling = ("sum", "mean", "max")[mode]
    if padding is not None and padding < 0:
        padding = None
    if given.is_flat:
        if not isinstance(offsets, Value) or not offsets.is_ids:
            raise Unsupported("offsets that are an input", "others")
        for x in (ids, per_sample_weights):
            flat = given if x is None else p.input_of(int(x.cells.flat[0]))
            flat.offsets, flat.has_end = p.input_of(int(offsets.cells.flat[0])).name, include_last
        cells = ids.cells.ravel()
    else:
        cells = bags_of(p, ids, offsets, include_last)
    if given.is_events and padding is not None:
        p.mask(given.axis, given.name, padding) if not given.is_flat else _no_padding(padding)
    weights = weights_of(p, per_sample_weights, given)
    parent = given.axis.rpartition("/")[0] if given.is_events else given.axis

    def make() -> Any:
        if given.is_events:
            sequence = p.sequences.get(given.axis)
            if sequence is not None and sequence.mask not in (None, (given.name, padding)):
                raise Unsupported("bags without the padding that masks leave out", "with it")
            bag, table = p.ids_column(int(cells[0]), weight)
        else:
            bag, table = p.bag(cells, padding, weight)
        options = {} if weights is None else {"weights": p.sources.gather(weights, given.axis)}
        return p.builder.embed_bag(bag, table, pooling, **options)  # type: ignore[arg-type]
    return (Value(p.sources.add(parent, weight.shape[1], "embed_bag", make)[None]),)


def _no_padding(padding: int) -> None:
    raise Unsupported("bags of ids and offsets without padding", f"padding_idx {padding}")


def bags_of(p: Program, ids: Value, offsets: Any, include_last: bool) -> np.ndarray:
    """The cells of the ids of a bag, of [batch, length] one behind the other."""
    length = ids.cells.size
    starts = torch.arange(p.batch + (1 if include_last else 0)) * length
    if not isinstance(offsets, torch.Tensor) or ids.cells.ndim != 1 or ids.inner != length or \
            not torch.equal(offsets, starts):
        raise Unsupported("a bag of all ids of a row", "others")
    found, one = p.sources.split_events(ids.cells)
    return ids.cells if found is None else one.ravel()


def weights_of(p: Program, weights: Any, given: Any) -> np.ndarray | None:
    """The cell of each id's weight."""
    if weights is None:
        return None
    if not given.is_events or not isinstance(weights, Value):
        raise Unsupported("weights of ids that are events (axes: 'user/tags[]')", f"'{given.name}' on '{given.axis}'")
    _, cells = p.sources.split_events(weights.cells)
    if cells.size != 1:
        raise Unsupported("one weight for each id", str(cells.size))
    return cells.ravel()
