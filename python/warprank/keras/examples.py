# SPDX-License-Identifier: Apache-2.0
"""SavedModels that parse tf.Examples, as those of estimators: their columns are the features of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from ..columns import Ragged
from ..lowering.cells import Unsupported

PARSE = frozenset("ParseExample ParseExampleV2".split())


def columns_of_examples(graph: tf.Graph) -> tuple[dict[str, tf.TensorSpec], frozenset[str]] | None:
    """The columns of a graph that parses Examples, and which of them have any number of values a row; None: it does
    not."""
    graphs = [graph, *(function_def_to_graph(f) for f in graph.as_graph_def().library.function)]
    ops = [op for each in graphs for op in each.get_operations() if op.type in PARSE]
    if len(ops) != 1:
        return None
    try:
        sparse, dense = features_of(ops[0])
    except Unsupported:  # which is told with the op
        return None
    columns = {name: tf.TensorSpec([None, None], dtype, name) for name, dtype in sparse.items()}
    return columns | dense, frozenset(sparse)


def features_of(op: tf.Operation) -> tuple[dict[str, tf.DType], dict[str, tf.TensorSpec]]:
    """The features that have any number of values, and the others, each in the order of the op's outputs."""
    is_second = op.type == "ParseExampleV2"
    num_sparse, num_dense = len(op.get_attr("sparse_types")), len(op.get_attr("Tdense"))
    if is_second and op.get_attr("ragged_value_types"):
        raise Unsupported("features of fixed or any length", "ragged ones")
    keys = [tf.get_static_value(x) for x in list(op.inputs)[2:4 if is_second else 2 + num_sparse + num_dense]]
    if any(key is None for key in keys):
        raise Unsupported("names of features that are constants", "others")
    names = [name.decode() for key in keys for name in np.ravel(key).tolist()]
    sparse = dict(zip(names, op.get_attr("sparse_types")))
    dense = {name: tf.TensorSpec([None, *tf.TensorShape(shape).as_list()], dtype, name) for name, dtype, shape in zip(
        names[num_sparse:], op.get_attr("Tdense"), op.get_attr("dense_shapes"))}
    return {name: tf.as_dtype(dtype) for name, dtype in sparse.items()}, dense


def serialized(batch: Mapping[str, Any]) -> tf.Tensor:
    """A batch of columns as Examples."""
    rows = [_rows(column) for column in batch.values()]
    return tf.constant([_example(dict(zip(batch, row))) for row in zip(*rows)], tf.string)


def _rows(column: Any) -> list[np.ndarray]:
    if isinstance(column, Ragged):
        return np.split(column.values, column.offsets[1:-1]) if len(column.offsets) > 1 else []
    return [np.ravel(row) for row in column]


def _example(row: Mapping[str, np.ndarray]) -> bytes:
    features = {}
    for name, values in row.items():
        if values.dtype.kind == "f":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values.tolist()))
        elif values.dtype.kind in "iu":
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))
        else:
            texts = [v.encode() if isinstance(v, str) else v for v in values.tolist()]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
