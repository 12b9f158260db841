# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors: of columns of tf.Examples that have any number of values a row, and what TensorFlow's feature columns
make of a column of which a value means none. Of their ids the rows of a table are looked up and pooled, zeros where
there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..lowering.cells import Unsupported
from .column_maps import Constant, Map
from .column_values import SPARSE_OPS, Cells, Filled, Known, LookedUp, Rest, SizeOf, Some, Unique, handles, places_of
from .examples import PARSE, features_of
from .tracing import Variable
from .walk import executed

if TYPE_CHECKING:
    from .column_walk import ColumnWalk


@handles("Where")
def _where(p: ColumnWalk, op: Any, args: list[Any]) -> Some:
    cells = args[0].array
    return Some(places_of(cells.shape), cells.reshape(-1), False)


@handles("Where", of=SPARSE_OPS)
def _where_of_some(p: ColumnWalk, op: Any, args: list[Any]) -> Some:
    some, = args
    both = p.function("LogicalAnd", Cells(some.kept), Cells(some.array))
    return Some(places_of(some.array.shape), both.array, False, some.kept)


@handles("Reshape", "Tile", of=SPARSE_OPS)
def _reshaped(p: ColumnWalk, op: Any, args: list[Any]) -> Any:
    x, shape = args[0], np.ravel(args[1]).tolist()
    if isinstance(x, LookedUp) and op.type == "Reshape" and tuple(shape) in (x.shape, (-1, x.shape[1])):
        return x
    if isinstance(x, Filled) and x.part == "is_empty" and (shape == [-1, 1] if op.type == "Reshape" else shape[0] == 1):
        return x
    if not isinstance(x, Some) or x.array.shape[1:] != (1,) or op.type != "Reshape" or shape != [-1]:
        raise Unsupported("rows as they are", "in another shape")
    return Some(x.array.reshape(-1), x.kept, x.is_cells, x.within)


@handles("Shape", of=SPARSE_OPS)
def _shape(p: ColumnWalk, op: Any, args: list[Any]) -> Any:
    if not isinstance(args[0], LookedUp):
        return SizeOf()
    return Known(np.array(args[0].shape, op.get_attr("out_type").as_numpy_dtype))


@handles("ZerosLike", of=SPARSE_OPS)
def _zeros(p: ColumnWalk, op: Any, args: list[Any]) -> Known:
    return Known(np.zeros(args[0].shape, np.float32))


@handles("Fill", of=SPARSE_OPS)
def _fill(p: ColumnWalk, op: Any, args: list[Any]) -> Any:
    return args[1]  # as many as there are of what it stands beside


@handles("GatherNd", of=SPARSE_OPS)
def _values_at(p: ColumnWalk, op: Any, args: list[Any]) -> Some:
    cells, at = args
    if not isinstance(cells, Cells) or at.is_cells or at.within is not None:
        raise Unsupported("values of a column", "others")
    return at.like(cells.array[tuple(at.array.T)])


@handles("GatherV2", "ResourceGather", of=SPARSE_OPS)
def _rows_at(p: ColumnWalk, op: Any, args: list[Any]) -> Any:
    x, at = args[:2]
    if any(np.any(axis != 0) for axis in args[2:]):
        raise Unsupported("a gather along the first dimension", "another")
    if isinstance(at, Unique) and at.table is None and not at.is_which and isinstance(x, (Variable, np.ndarray)):
        return Unique(at.values, table=x)
    if not isinstance(at, Some) or at.is_cells or at.array.ndim != 1:
        raise Unsupported("values of a column", "others")
    before = x.kept.tobytes() if isinstance(x, Some) else None
    if (at.within.tobytes() if at.within is not None else None) != before:
        raise Unsupported("places among these values", "among others")
    array = x.array if isinstance(x, (Cells, Some)) else np.asarray(x)
    return Some(array[at.array], at.kept, isinstance(x, Cells) or (isinstance(x, Some) and x.is_cells))


@handles("SparseReshape", of=SPARSE_OPS)
def _sparse_as_it_is(p: ColumnWalk, op: Any, args: list[Any]) -> list[Any]:
    if not np.array_equal(args[1], args[2]):
        raise Unsupported("a sparse tensor as it is", "in another shape")
    return [args[0], Known(args[1])]


@handles("SparseToDense", of=SPARSE_OPS)
def _dense(p: ColumnWalk, op: Any, args: list[Any]) -> Cells:
    indices, shape, values, default = args
    _check_sparse(indices, values, shape)
    made = p.function("SelectV2", Cells(values.kept), Cells(values.array), default)
    return Cells(made.array.reshape(tuple(shape)))


@handles("SparseFillEmptyRows", of=SPARSE_OPS)
def _filled(p: ColumnWalk, op: Any, args: list[Any]) -> list[Any]:
    indices, values, shape, _ = args
    _check_sparse(indices, values, shape)
    return [*(Filled(values, int(shape[0]), part) for part in ("indices", "values", "is_empty")), Rest()]


def _check_sparse(indices: Any, values: Any, shape: Any) -> None:
    """That they are of one sparse tensor [batch, values]."""
    if not isinstance(indices, Some) or not isinstance(values, Some) or not values.is_cells or len(shape) != 2 or \
            not np.array_equal(indices.array, places_of(tuple(shape))) or \
            indices.kept.tobytes() != values.kept.tobytes():
        raise Unsupported("a sparse tensor of a column", "another")


@handles("StridedSlice", of=SPARSE_OPS)
def _row_numbers(p: ColumnWalk, op: Any, args: list[Any]) -> Filled:
    x = args[0]
    if not isinstance(x, Filled) or x.part != "indices":
        raise Unsupported("the rows of indices", "others")
    places = places_of((x.rows, 2))
    if not np.array_equal(executed(op, [places, *args[1:]]), places[:, 0]):
        raise Unsupported("the rows of indices", "others")
    return Filled(x.values, x.rows, "rows")


@handles("Cast", of=SPARSE_OPS)
def _cast(p: ColumnWalk, op: Any, args: list[Any]) -> Any:
    return args[0] if isinstance(args[0], Filled) and args[0].part == "rows" else p.of_each(op, args)


@handles("Unique", of=SPARSE_OPS)
def _unique(p: ColumnWalk, op: Any, args: list[Any]) -> list[Unique]:
    if not isinstance(args[0], Filled) or args[0].part != "values":
        raise Unsupported("ids of a sparse tensor", "others")
    return [Unique(args[0].values), Unique(args[0].values, is_which=True)]


@handles("SparseSegmentMean", "SparseSegmentSum", "SparseSegmentSqrtN", of=SPARSE_OPS)
def _pooled(p: ColumnWalk, op: Any, args: list[Any]) -> LookedUp:
    rows, which, segments = args[:3]
    if not isinstance(rows, Unique) or rows.table is None or not isinstance(which, Unique) or not which.is_which or \
            not isinstance(segments, Filled) or segments.part != "rows" or not (
                rows.values is which.values is segments.values):
        raise Unsupported("rows of a table that are pooled by the rows of their ids", "others")
    ids = p.function("SelectV2", Cells(rows.values.kept), Cells(rows.values.array), np.array(-1))
    return LookedUp(rows.table, ids.array.reshape(segments.rows, -1), op.type.removeprefix("SparseSegment").lower(),
                    rows.values)


@handles("Select", "SelectV2", of=SPARSE_OPS)
def _zeros_for_none(p: ColumnWalk, op: Any, args: list[Any]) -> Any:
    condition, zeros, rows = args
    if not isinstance(rows, LookedUp):
        return p.of_each(op, args)
    if not isinstance(condition, Filled) or condition.part != "is_empty" or condition.values is not rows.values or \
            isinstance(zeros, LookedUp) or np.any(zeros):
        raise Unsupported("zeros for rows without a value", "others")
    return LookedUp(rows.table, rows.ids, rows.pooling)


@handles(*PARSE, of=SPARSE_OPS)
def _examples(p: ColumnWalk, op: Any, args: list[Any]) -> list[Any]:
    sparse, dense = features_of(op)
    made: list[list[Any]] = [[], [], [], []]  # indices, values and shapes of the sparse ones, the dense ones
    for name in sparse:
        shape = p.shapes[name]
        cells = p.column(name, tf.as_dtype(sparse[name])).array.reshape(-1)
        kept = p.cells(Map((name,), Constant(True)), np.arange(cells.size))
        made[0].append(Some(places_of(shape), kept, False))
        made[1].append(Some(cells, kept, True))
        made[2].append(Known(np.array(shape)))
    made[3] = [p.column(name, spec.dtype) for name, spec in dense.items()]
    names = [*sparse, *sparse, *sparse, *dense]
    p.of_column |= {tensor.ref(): name for name, tensor in zip(names, op.outputs)}
    return [value for of in made for value in of]
