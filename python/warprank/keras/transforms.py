# SPDX-License-Identifier: Apache-2.0
"""Feature columns of TensorFlow and preprocessing layers of Keras as a file of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import warprank as wr

from ..errors import Problems
from ..lowering.cells import Unsupported

Source = tuple[str, str]  # "column" or "feature", its name
Layers = Mapping[str, tuple[Any, str | Sequence[str]]]


class File:
    """A file of transforms as it is made."""

    def __init__(self, ragged: Iterable[str] = (), types: Mapping[str, str] = {}):
        self.columns: dict[str, dict[str, Any]] = {}
        self.features: dict[str, dict[str, Any]] = {}
        self.problems = Problems()
        self.ragged = frozenset(ragged)
        self.types = types

    def column(self, name: str, type: str, ragged: bool = False, width: int = 1) -> Source:
        made: dict[str, Any] = {"name": name, "type": type}
        if ragged or name in self.ragged:
            made["ragged"] = True
        if width > 1:
            made["width"] = width
        given = self.columns.setdefault(name, made)
        if given != made:
            raise Unsupported(f"column '{name}' always as {_shown(given)}", _shown(made))
        return "column", name

    def feature(self, name: str, op: str, of: Sequence[Source], **settings: Any) -> Source:
        made: dict[str, Any] = {"name": name, "op": op, "of": [{kind: source} for kind, source in of]}
        if op != "weigh":
            made["settings"] = {key: value for key, value in settings.items() if value is not None and value != []}
        given = self.features.setdefault(name, made)
        if given != made:
            raise Unsupported("a name of its own", f"'{name}', which is another feature's")
        return "feature", name

    def finish(self) -> wr.Transforms:
        self.problems.raise_if_any()
        return wr.Transforms({"format": "warprank.transforms", "version": 1, "scheme": "warprank-ids-1",
                              "columns": list(self.columns.values()), "features": list(self.features.values())})


def _shown(column: Mapping[str, Any]) -> str:
    return str(column["type"]) + (", ragged" if column.get("ragged") else "") + (
        f" of width {column['width']}" if "width" in column else "")


def floats(values: Any) -> list[Any]:
    """For JSON, which has no infinities."""
    return [v if np.isfinite(v) else str(v) for v in np.asarray(values, np.float32).reshape(-1).tolist()]


def transforms_of(source: Any, *, dense: Iterable[str] = (), ragged: Iterable[str] = (),
                  types: Mapping[str, str] = {}) -> wr.Transforms:
    """The transforms of TensorFlow's feature columns, of Keras' preprocessing layers, or of a model of such layers.

    source: a sequence of feature columns; or by feature (layer, column), of layers with several inputs (layer,
        (column, ...)), where a feature that stands before goes for a column of its name; or a functional model
    dense: of feature columns, the columns that the model takes as dense tensors, [batch] or [batch, 1]: they have one
        value a row, where "" and -1 mean none, and stand last in crosses, as TensorFlow has it. Others are sparse.
    ragged: of layers, the columns that have any number of values a row
    types: of layers that hash, the columns that are integers, "i64", and not text

    Raises everything that cannot be expressed together.
    """
    if hasattr(source, "operations"):
        file = File()
        _model(file, source)
    elif isinstance(source, Mapping):
        file = File(ragged, types)
        for name, (layer, given) in source.items():
            _apply(file, name, layer, [given] if isinstance(given, str) else list(given))
    else:
        file = File()
        columns = _FeatureColumns(file, frozenset(dense))
        for column in source:
            try:
                columns.make(column)
            except Unsupported as problem:
                file.problems.add(f"feature column '{column.name}' ({type(column).__name__})", *problem.args)
    return file.finish()


# --- feature columns


class _FeatureColumns:
    def __init__(self, file: File, dense: frozenset[str]):
        self.file = file
        self.dense = dense

    def make(self, column: Any) -> Source:
        kind = type(column).__name__
        maker: Callable[[Any], Source] | None = getattr(self, "_" + kind, None)
        if maker is None:
            raise Unsupported("a column of numbers, buckets, a vocabulary, identities, crosses or weights", kind)
        return maker(column)

    def _categorical(self, column: Any, type: str) -> tuple[list[Source], dict[str, Any] | None]:
        """Its source, and which of its values mean none."""
        source = [self.file.column(column.key, type, ragged=column.key not in self.dense)]
        if column.key not in self.dense:
            return source, None
        return source, {"text": ""} if type == "text" else {"integer": -1}

    @staticmethod
    def _type(column: Any) -> str:
        return "i64" if column.dtype.is_integer else "text"

    def _HashedCategoricalColumn(self, column: Any) -> Source:
        source, mask = self._categorical(column, self._type(column))
        return self.file.feature(column.name, "hash", source, buckets=int(column.hash_bucket_size), mask=mask)

    def _vocabulary(self, column: Any, values: Sequence[Any], type: str) -> Source:
        source, mask = self._categorical(column, type)
        buckets = int(column.num_oov_buckets or 0)
        return self.file.feature(
            column.name, "vocabulary", source, **vocabulary_of(values, type), oov_buckets=buckets or None,
            oov_first=len(values) if buckets else None, default_id=None if buckets else int(column.default_value),
            mask=mask)

    def _VocabularyListCategoricalColumn(self, column: Any) -> Source:
        return self._vocabulary(column, column.vocabulary_list, self._type(column))

    def _VocabularyFileCategoricalColumn(self, column: Any) -> Source:
        with open(column.vocabulary_file, encoding="utf-8", newline="\n") as file:
            lines = file.read().removesuffix("\n").split("\n")
        lines = lines[:column.vocabulary_size]
        return self._vocabulary(column, lines if self._type(column) == "text" else [int(x) for x in lines],
                                self._type(column))

    def _IdentityCategoricalColumn(self, column: Any) -> Source:
        source, mask = self._categorical(column, "i64")
        default = None if column.default_value is None else int(column.default_value)
        return self.file.feature(column.name, "identity", source, buckets=int(column.number_buckets),
                                 default_id=default, mask=mask)

    def _numeric(self, column: Any, ragged: bool) -> Source:
        if column.normalizer_fn is not None:
            raise Unsupported("no normalizer_fn, which is a function of Python", "one")
        if getattr(column, "default_value", None) is not None and ragged:
            raise Unsupported("sequences without a default", "one")
        return self.file.column(column.key, "f32", ragged, int(np.prod(column.shape)))

    def _NumericColumn(self, column: Any) -> Source:
        return self.file.feature(column.name, "numbers", [self._numeric(column, False)])

    def _SequenceNumericColumn(self, column: Any) -> Source:
        return self.file.feature(column.name, "numbers", [self._numeric(column, True)])

    def _BucketizedColumn(self, column: Any) -> Source:
        if int(np.prod(column.source_column.shape)) != 1:
            raise Unsupported("buckets of a column of width 1", f"shape {tuple(column.source_column.shape)}")
        source = self._numeric(column.source_column, False)
        return self.file.feature(column.name, "bucketize", [source], boundaries=floats(column.boundaries))

    def _CrossedColumn(self, column: Any) -> Source:
        sparse: list[Source] = []
        last: list[Source] = []
        for key in self._leaves(column):
            if not isinstance(key, str):
                sparse.append(self.make(key))
            elif key in self.dense:
                last.append(self.file.column(key, self.file.columns.get(key, {}).get("type", "text")))
            else:
                sparse.append(self.file.column(key, "text", ragged=True))
        key = {} if column.hash_key is None else {"key": int(column.hash_key)}
        return self.file.feature(column.name, "cross", sparse + last, buckets=int(column.hash_bucket_size), **key)

    def _leaves(self, column: Any) -> list[Any]:
        return [leaf for key in column.keys
                for leaf in (self._leaves(key) if type(key).__name__ == "CrossedColumn" else [key])]

    def _WeightedCategoricalColumn(self, column: Any) -> Source:
        weights = column.weight_feature_key
        if weights in self.dense:
            raise Unsupported("weights in a sparse tensor", f"'{weights}', which is dense")
        if not column.dtype.is_floating:
            raise Unsupported("weights that are floats", column.dtype.name)
        ids = self.make(column.categorical_column)
        return self.file.feature(column.name, "weigh", [ids, self.file.column(weights, "f32", True)])

    def _IndicatorColumn(self, column: Any) -> Source:
        inner = column.categorical_column
        if type(inner).__name__ == "WeightedCategoricalColumn":
            raise Unsupported("an indicator without weights", "one of a weighted column")
        return self.file.feature(column.name, "encode", [self.make(inner)], tokens=int(inner.num_buckets), mode="count")

    def _EmbeddingColumn(self, column: Any) -> Source:
        return self.make(column.categorical_column)

    _SharedEmbeddingColumn = _SequenceCategoricalColumn = _EmbeddingColumn


def vocabulary_of(values: Sequence[Any], type: str) -> dict[str, Any]:
    if type == "text":
        try:
            return {"texts": [v.decode() if isinstance(v, bytes) else str(v) for v in values]}
        except UnicodeDecodeError as error:
            raise Unsupported("a vocabulary in UTF-8", str(error)) from None
    return {"integers": [int(v) for v in values]}


# --- layers


def _apply(file: File, name: str, layer: Any, given: Sequence[str]) -> None:
    """A layer of columns and features that are given by their names."""
    kind = type(layer).__name__

    def source(which: str) -> Source:
        if which in file.features:
            return "feature", which
        wanted = {"StringLookup": "text", "IntegerLookup": "i64", "CategoryEncoding": "i64", "Discretization": "f32",
                  "Normalization": "f32"}.get(kind, file.types.get(which, "text"))
        if kind == "CategoryEncoding" and which != given[0]:
            wanted = "f32"  # weights
        if which in file.columns and kind in ("Hashing", "HashedCrossing"):
            wanted = file.columns[which]["type"]
        width = len(np.ravel(layer.mean)) if kind == "Normalization" and layer.built else 1
        return file.column(which, wanted, width=width)

    try:
        feature_of(file, name, layer, [source(which) for which in given])
    except Unsupported as problem:
        file.problems.add(f"feature '{name}' ({kind})", *problem.args)


def _model(file: File, model: Any) -> None:
    """The layers of a functional model, each as a feature of its name."""
    sources: dict[int, Source] = {}
    for operation in model.operations:
        kind = type(operation).__name__
        for node in operation._inbound_nodes:
            outputs = node.outputs
            try:
                if kind == "InputLayer":
                    sources[id(outputs[0])] = column_of(file, operation.name, outputs[0])
                    continue
                given = [sources[id(x)] for x in node.input_tensors if id(x) in sources]
                if len(given) == len(node.input_tensors):
                    sources[id(outputs[0])] = feature_of(file, operation.name, operation, given)
            except Unsupported as problem:
                file.problems.add(f"layer '{operation.name}' ({kind})", *problem.args)


def column_of(file: File, name: str, tensor: Any) -> Source:
    """An input of a functional model."""
    shape = tensor.shape[1:]
    type = "text" if tensor.dtype == "string" else "i64" if "int" in tensor.dtype else "f32"
    if len(shape) > 1 or (type == "f32" and None in shape):
        raise Unsupported("an input [batch, values]", f"shape {list(tensor.shape)}")
    many = shape not in ((), (1,))
    return file.column(name, type, ragged=many and type != "f32", width=shape[0] if many and type == "f32" else 1)


def feature_of(file: File, name: str, layer: Any, of: Sequence[Source]) -> Source:
    """What a layer makes of columns and features, as a feature of that name."""
    kind = type(layer).__name__
    if kind not in _LAYERS:
        raise Unsupported("one of " + ", ".join(_LAYERS), kind)
    mode = getattr(layer, "output_mode", "int")
    if kind == "CategoryEncoding":
        return file.feature(name, "encode", of, tokens=int(layer.num_tokens), mode=mode)
    if mode not in ("int", "one_hot", "multi_hot", "count"):
        raise Unsupported("an output_mode of int, one_hot, multi_hot or count", mode)
    tokens = _LAYERS[kind](file, name if mode == "int" else f"{name}.ids", layer, of)
    if mode != "int":
        return file.feature(name, "encode", [("feature", f"{name}.ids")], tokens=tokens, mode=mode)
    return "feature", name


def _hashing(file: File, name: str, layer: Any, of: Sequence[Source]) -> int:
    bins, mask = int(layer.num_bins), None
    if layer.mask_value is not None and bins > 1:
        is_text = of[0][0] == "column" and file.columns[of[0][1]]["type"] == "text"
        mask = {"text" if is_text else "integer": layer.mask_value, "id": 0}
    masked = mask is not None
    file.feature(name, "hash", of, buckets=bins - masked, first=1 if masked else None,
                 key=[int(k) for k in layer.salt or []], mask=mask)
    return bins


def _lookup(file: File, name: str, layer: Any, of: Sequence[Source]) -> int:
    if layer.invert:
        raise Unsupported("a layer that is not inverted", "one that is")
    type = "text" if layer.vocabulary_dtype == "string" else "i64"
    values = layer.get_vocabulary(include_special_tokens=False)
    has_mask, is_int = layer.mask_token is not None, layer.output_mode == "int"
    mask = None
    if has_mask:
        token = str(layer.mask_token) if type == "text" else int(layer.mask_token)
        mask = {"text" if type == "text" else "integer": token} | ({"id": 0} if is_int else {})
    oov, oov_first = int(layer.num_oov_indices), 1 if has_mask and is_int else 0
    by_modulo = type == "i64" and getattr(layer, "oov_method", "floormod") == "floormod"
    file.feature(name, "vocabulary", of, **vocabulary_of(values, type), first=oov_first + oov,
                 oov_buckets=oov if oov > 1 else None, oov_first=oov_first if oov > 1 else None,
                 oov_by="modulo" if by_modulo and oov > 1 else None,
                 key=[int(k) for k in getattr(layer, "salt", None) or []] if oov > 1 else None,
                 default_id=oov_first if oov == 1 else None, mask=mask)
    return int(layer.max_tokens) if layer.pad_to_max_tokens else int(layer.vocabulary_size())


def _discretization(file: File, name: str, layer: Any, of: Sequence[Source]) -> int:
    if not layer.bin_boundaries:
        raise Unsupported("a layer that has seen data (adapt)", "one without boundaries")
    file.feature(name, "bucketize", of, boundaries=floats(layer.bin_boundaries))
    return len(layer.bin_boundaries) + 1


def _hashed_crossing(file: File, name: str, layer: Any, of: Sequence[Source]) -> int:
    file.feature(name, "cross", of, buckets=int(layer.num_bins))
    return int(layer.num_bins)


def _normalization(file: File, name: str, layer: Any, of: Sequence[Source]) -> int:
    import keras
    if layer.invert:
        raise Unsupported("a layer that is not inverted", "one that is")
    if not layer.built:
        raise Unsupported("a layer that is built", "one that has seen no data")
    mean = np.ravel(np.asarray(layer.mean, np.float32))
    divisor = np.maximum(np.sqrt(np.ravel(np.asarray(layer.variance, np.float32))), np.float32(keras.config.epsilon()))
    for what, learned in (("mean", mean), ("variance", divisor)):
        if not np.isfinite(learned).all():
            raise Unsupported(f"a {what} of finite numbers", str(learned[~np.isfinite(learned)][0]))
    width = file.columns[of[0][1]].get("width", 1) if of[0][0] == "column" else 1
    if len(mean) not in (1, width):
        raise Unsupported(f"a mean for each of {width} columns", str(len(mean)))
    file.feature(name, "numbers", of, mean=floats(np.resize(mean, width)), divisor=floats(np.resize(divisor, width)))
    return width


_LAYERS: dict[str, Callable[..., int]] = {
    "Hashing": _hashing, "StringLookup": _lookup, "IntegerLookup": _lookup, "Discretization": _discretization,
    "HashedCrossing": _hashed_crossing, "Normalization": _normalization, "CategoryEncoding": _normalization}
