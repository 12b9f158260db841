# SPDX-License-Identifier: Apache-2.0
"""Look-ups of a PyTorch program in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .cells import Unsupported, Value
from .handlers import handles

if TYPE_CHECKING:
    from .program import Program


def ids_of(x: Any) -> Value:
    if not isinstance(x, Value) or not x.is_ids:
        raise Unsupported("ids that are an input", "numbers that are computed")
    return x


@handles("embedding")
def embedding(p: Program, weight: torch.Tensor, ids: Any, *_: Any) -> Value:
    dim = weight.shape[1]

    def make(cell: int) -> Any:
        return p.builder.embed(*p.ids_column(cell, weight))
    rows = []
    for cell in ids_of(ids).cells.ravel().tolist():
        axis = p.sources.of(cell)[0].axis
        rows.append(p.sources.add(axis, dim, "embed", lambda c=cell: make(c),  # type: ignore[misc]
                                  data=(cell, weight)))
    return Value(np.stack(rows).reshape(*ids.cells.shape, dim), False, ids.batch - 1, ids.inner)


@handles("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", events=True)
def embedding_bag(p: Program, weight: torch.Tensor, ids: Any, offsets: Any, scale_grad: bool = False, mode: int = 0,
                  sparse: bool = False, per_sample_weights: Any = None, include_last: bool = False,
                  padding: int | None = -1) -> tuple[Value]:
    given = p.input_of(int(ids_of(ids).cells.flat[0]))
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


def of_positions(p: Program, x: torch.Tensor, dimension: int, values: list[Value]) -> Value:
    """A constant that is another for each event of the module's, with padding: a table of them."""
    if not x.is_floating_point():
        raise Unsupported("numbers that are the same for each event", "whole ones for each")
    like = next(v for v in values if p.sources.split_events(v.cells)[0] is not None)
    if dimension == like.batch or like.inner != 1:
        raise Unsupported("[batch, events] numbers", "both merged")
    axis = p.sources.axis_of(p.sources.split_events(like.cells)[1])
    if axis not in p.sequences:
        raise Unsupported("numbers for each event of a sequence", "of pairs")
    array = np.array(np.moveaxis(x.detach().to(torch.float32).numpy(), dimension, 0))
    shape = array.shape[1:]
    rows = torch.from_numpy(array.reshape(len(array), -1))
    path = p.path_of(x, ".weight")

    def make() -> Any:
        name = p.table_name(path)
        p.tables[name] = p.array(rows)
        table = p.builder.table(name, dim=rows.shape[1], rows=len(rows))
        return p.builder.embed(p.positions(axis), table)
    cells = p.sources.add(axis, rows.shape[1], "positions", make).reshape(shape)
    cells = np.expand_dims(cells, dimension + x.dim())
    while cells.ndim < like.cells.ndim:
        cells = cells[None]
    return Value(cells, False, like.batch)
