# SPDX-License-Identifier: Apache-2.0
"""Ops that make ids of columns, and what stands between these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..lowering.cells import Unsupported
from . import column_maps
from .column_features import Encoded
from .column_maps import Constant, Map
from .column_values import PLACE_BITS, SPARSE_OPS, AtLeast, Cells, Known, Some, handles, places_of

if TYPE_CHECKING:
    from .column_walk import ColumnWalk


@handles(*column_maps.FUNCTIONS)
def _elementwise(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    return p.function(op.type, *args)


@handles("Cast")
def _cast(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    before, to = op.inputs[0].dtype, op.outputs[0].dtype
    if to.is_floating and all(isinstance(p.maps[n], Encoded) for n in np.unique(args[0].array >> PLACE_BITS)):
        return args[0]
    return p.each(lambda x: column_maps.converted(x, before, to), args[0])


@handles("AsString")
def _as_string(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    if not op.inputs[0].dtype.is_integer or op.get_attr("width") != -1:
        raise Unsupported("integers as they are written", "another text")
    return p.each(column_maps.texts_of, args[0])


@handles("StringToHashBucketFast", "StringToHashBucketStrong")
def _hash(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    key = tuple(op.get_attr("key")) if op.type == "StringToHashBucketStrong" else ()
    return p.each(lambda x: column_maps.hashed(x, op.get_attr("num_buckets"), key), args[0])


@handles("LookupTableFindV2")
def _lookup(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    handle, keys, default = args
    if not op.outputs[0].dtype.is_integer or not (op.inputs[1].dtype.is_integer or op.inputs[1].dtype == tf.string):
        raise Unsupported("a table from text or integers to ids", f"one from {op.inputs[1].dtype.name} to "
                          f"{op.outputs[0].dtype.name}")
    table = p.table(handle, op)
    return p.each(lambda x: column_maps.looked_up(x, table, int(default)), keys)


@handles("Bucketize")
def _bucketize(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    if op.inputs[0].dtype == tf.float64:
        raise Unsupported("integers or 32-bit floats", "float64")
    return p.each(lambda x: column_maps.interval(x, op.get_attr("boundaries")), args[0])


@handles("SparseCross", of=SPARSE_OPS)
@handles("SparseCross")
def _cross(p: ColumnWalk, op: Any, args: list[Any]) -> list[Any]:
    sparse = op.get_attr("N")  # whose indices, values and shapes stand before dense ones
    parts = [_column_of(p, indices, cells) for indices, cells in zip(args[:sparse], args[sparse:])] + args[3 * sparse:]
    if any(not isinstance(x, Cells) or x.array.ndim != 2 for x in parts):
        raise Unsupported("columns that are crossed", "others")
    if not op.get_attr("hashed_output") or op.get_attr("num_buckets") < 1:
        raise Unsupported("crosses that are hashed to buckets", "others")
    buckets, key = op.get_attr("num_buckets"), op.get_attr("hash_key")
    rows = len(parts[0].array)
    if all(x.array.shape[1] == 1 for x in parts):
        made = p.elementwise(lambda given: column_maps.crossed(tuple(given), buckets, key), parts)
        return [Known(places_of((rows, 1))), Cells(made.array.reshape(-1)), Known(np.array([rows, 1]))]
    crossed = column_maps.crossed(tuple(p.map_of(x) for x in parts), buckets, key)
    shape = rows, p.width(crossed)
    kept = p.cells(Map(crossed.columns, Constant(True)), np.arange(np.prod(shape)))
    return [Some(places_of(shape), kept, False), Some(p.cells(crossed, np.arange(np.prod(shape))), kept, True), Known(
        np.array(shape))]


def _column_of(p: ColumnWalk, indices: Any, values: Any) -> Any:
    """The column of a sparse tensor that has all of its values."""
    if isinstance(values, Cells) and np.array_equal(indices, places_of((len(values.array), 1))):
        return Cells(values.array.reshape(-1, 1))
    if not isinstance(values, Some) or not values.is_cells or not isinstance(indices, Some):
        return None
    kept = p.map_of(Cells(values.kept))
    is_whole = kept.rule == Constant(True) and not kept.exact
    return Cells(values.array.reshape(-1, int(indices.array[:, 1].max()) + 1)) if is_whole else None


@handles("SparseToDense")
def _dense(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    indices, shape, cells, _ = args
    made = np.full(tuple(shape), -1, np.int64)
    made[tuple(np.asarray(indices).T)] = cells.array
    if (made < 0).any():
        raise Unsupported("a value in each place", "the default in some")
    return Cells(made)


@handles("OneHot")
def _one_hot(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    cells, tokens, on, off = args
    if op.get_attr("axis") not in (-1, cells.array.ndim) or (on, off) != (1, 0):
        raise Unsupported("1 for the id along a last dimension, and 0 for others", "others")
    return p.encoded(cells, int(tokens), "one_hot")


@handles("Sum", "Max")
def _reduced(p: ColumnWalk, op: Any, args: list[Any]) -> Cells | AtLeast:
    cells, axes = args[0].array, tuple(axis % args[0].array.ndim for axis in np.ravel(args[1]).tolist())
    if all(cells.shape[axis] == 1 for axis in axes):
        return Cells(cells.reshape(np.sum(np.empty(cells.shape), axes, keepdims=op.get_attr("keep_dims")).shape))
    encoded = p.maps[int(cells.flat[0] >> PLACE_BITS)]
    if isinstance(encoded, Encoded) and axes == (1,) and cells.ndim == 3 and not op.get_attr("keep_dims") and \
            np.array_equal(cells, p.cells(encoded, np.arange(cells.size).reshape(cells.shape))):
        mode = "count" if op.type == "Sum" else "multi_hot"
        made = p.cells(Encoded(encoded.of, encoded.tokens, mode), np.arange(len(cells) * encoded.tokens))
        return Cells(made.reshape(len(cells), -1))
    if op.type == "Sum" or len(axes) != cells.ndim or op.get_attr("keep_dims"):
        raise Unsupported("ids as they are", "a function of several")
    return AtLeast()


@handles("DenseBincount")
def _counts(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    cells, tokens, weights = args
    if not isinstance(cells, Cells) or cells.array.shape[1:] != (1,) or isinstance(weights, Cells) or np.size(weights):
        raise Unsupported("counts of one id a row, without weights", "others")
    mode = "multi_hot" if op.get_attr("binary_output") else "count"
    return p.encoded(Cells(cells.array.reshape(-1)), int(tokens), mode)
