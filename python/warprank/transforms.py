# SPDX-License-Identifier: Apache-2.0
"""Ids and numbers of columns, as a file says that training made them; docs/IDS.md defines the file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _core
from .columns import Ragged
from .errors import Problems, refuse
from .weights import Path
from .whole import write_text


class Transforms:
    """The transforms of a file, executed by the library's C++."""

    def __init__(self, document: Mapping[str, Any], source: str = "transforms"):
        """document: what the file's JSON says"""
        self._document = dict(document)
        self._core = _core.Transforms.from_json(_json(self._document), source)

    @staticmethod
    def load(path: Path) -> Transforms:
        """From a file."""
        with open(path, "rb") as file:
            stored = file.read()
        try:
            text = stored.decode()
        except UnicodeDecodeError as error:
            refuse(f"file '{os.fspath(path)}'", "JSON in UTF-8", str(error))
        _core.Transforms.from_json(text, os.fspath(path))  # which tells what is wrong with the text
        return Transforms(json.loads(text), os.fspath(path))

    @property
    def document(self) -> Mapping[str, Any]:
        """What the file's JSON says."""
        return self._document

    def to_json(self) -> str:
        """The file's text."""
        return _json(self._document)

    def save(self, path: Path) -> None:
        """Writes a file, whole or not at all."""
        write_text(path, self.to_json())

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        return [name for name, *_ in self._core.columns()]

    @property
    def features(self) -> list[str]:
        """What is made of them."""
        return [name for name, _ in self._core.features()]

    @property
    def buckets_only(self) -> set[str]:
        """Columns of which nothing but intervals is made: a missing number is in one of them, as NaN is."""
        ops: dict[str, set[str]] = {}
        for feature in self._document["features"]:
            for source in feature["of"]:
                ops.setdefault(source.get("column", ""), set()).add(feature["op"])
        return {name for name, made in ops.items() if made == {"bucketize"}}

    def only(self, features: Sequence[str]) -> Transforms:
        """The transforms that make some features, and what those are made of."""
        wanted = {name.removesuffix(".weights") if name not in self.features else name for name in features}
        kept: list[Any] = []
        columns: set[str] = set()
        for feature in reversed(self._document["features"]):  # each is made of those before it
            if feature["name"] in wanted:
                kept.insert(0, feature)
                wanted |= {source["feature"] for source in feature["of"] if "feature" in source}
                columns |= {source["column"] for source in feature["of"] if "column" in source}
        return Transforms(self._document | {
            "columns": [c for c in self._document["columns"] if c["name"] in columns], "features": kept})

    def examples(self) -> dict[str, Any]:
        """What run gives of no rows, which says of what type each feature is."""
        return self.run({name: ((), [0]) if ragged else () if type == "text" else np.zeros(
            (0, width) if width > 1 else 0, np.int64 if type == "i64" else np.float32)
            for name, type, ragged, width in self._core.columns()})

    def run(self, data: Any) -> dict[str, Any]:
        """By feature its ids or numbers: an array with one value for each row, or Ragged; weights are "<name>.weights".

        data: a mapping of columns, a pandas DataFrame or a PyArrow Table. A column of text is a list of str or bytes or
            an array of them; one that is ragged is (values, offsets), a list of lists, or an Arrow list.
        """
        problems = Problems()
        given: dict[str, tuple[Any, Any]] = {}
        rows: dict[str, int] = {}
        for name, type, ragged, width in self._core.columns():
            if name not in data:
                problems.add(f"column '{name}'", "its values", "none")
                continue
            try:
                given[name], rows[name] = _column(data[name], type, ragged, width)
            except (TypeError, ValueError) as error:
                problems.add(f"column '{name}'", f"values of type {type}" + (", ragged" if ragged else ""), str(error))
        if len(set(rows.values())) > 1:
            problems.add("columns", "as many rows each",
                         ", ".join(f"{count} of '{name}'" for name, count in rows.items()))
        problems.raise_if_any()
        made = self._core.run(next(iter(rows.values()), 0), given)
        features: dict[str, Any] = {}
        for (name, width), (ids, numbers, offsets) in zip(self._core.features(), made):
            if numbers is not None:
                numbers = numbers.reshape(-1, width) if width > 1 else numbers
                features[name if ids is None else f"{name}.weights"] = numbers if offsets is None else Ragged(
                    numbers, offsets)
            if ids is not None:
                features[name] = ids if offsets is None else Ragged(ids, offsets)
        return features


def _json(document: Mapping[str, Any]) -> str:
    """One column and one feature a line."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _column(column: Any, type: str, ragged: bool, width: int) -> tuple[tuple[Any, Any], int]:
    """(values, offsets) as the extension takes them, and the number of rows."""
    offsets: Any = None
    if hasattr(column, "combine_chunks"):  # pyarrow.ChunkedArray
        column = column.combine_chunks()
    if ragged:
        column, offsets = _split(column)
        offsets = np.asarray(offsets)
        if offsets.size and offsets.dtype.kind not in "iu":
            raise TypeError(f"offsets that are {offsets.dtype} values")
        offsets = np.ascontiguousarray(offsets, np.int64)
    values = _text(column) if type == "text" else _numbers(column, type, width)
    if offsets is not None:
        return (values, offsets), len(offsets) - 1
    if type == "text":
        return (values, None), len(values[1]) - 1 if values and isinstance(values[0], np.ndarray) else len(values)
    return (values, None), len(values)


def _split(column: Any) -> tuple[Any, Any]:
    """Values and offsets of a ragged column."""
    if isinstance(column, Ragged):
        return column.values, column.offsets
    if isinstance(column, tuple) and len(column) == 2:
        return column
    if type(column).__module__.startswith("pyarrow"):
        begins = column.offsets.to_numpy().astype(np.int64)
        return column.values.slice(int(begins[0]), int(begins[-1] - begins[0])), begins - begins[0]
    if isinstance(column, np.ndarray) and column.ndim > 1:
        return column.reshape(-1), np.arange(len(column) + 1) * column.shape[1]
    rows = list(column)
    lengths = [len(row) for row in rows if not isinstance(row, (str, bytes))]
    if len(lengths) != len(rows):
        raise TypeError("text, not lists of it")
    return [value for row in rows for value in row], np.concatenate([[0], np.cumsum(lengths)])


def _text(column: Any) -> Any:
    """A tuple of str and bytes, or for Arrow the text one behind the other with its offsets."""
    if type(column).__module__.startswith("pyarrow"):
        import pyarrow
        if column.null_count:
            raise TypeError(f"{column.null_count} nulls")
        column = column.cast(pyarrow.large_binary())
        _, offsets, joined = column.buffers()
        begins = np.frombuffer(offsets, np.int64)[column.offset:column.offset + len(column) + 1]
        return np.frombuffer(joined or b"", np.uint8), begins
    return tuple(column.tolist() if hasattr(column, "tolist") else column)


def _numbers(column: Any, type: str, width: int) -> np.ndarray:
    if hasattr(column, "null_count"):
        if column.null_count:
            raise TypeError(f"{column.null_count} nulls")
        column = column.to_numpy(zero_copy_only=False)
    array = np.asarray(column)
    if array.size == 0:
        array = array.astype(np.int64 if type == "i64" else np.float32)
    if type == "i64":
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise TypeError(f"{array.dtype} values of {array.ndim} dimensions")
        if array.dtype == np.uint64 and array.size and array.max() > 2**63 - 1:
            raise TypeError(f"{array.max()}, which is above 2^63 - 1")
        return np.ascontiguousarray(array, np.int64)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{array.dtype} values")
    return np.ascontiguousarray(array.reshape(-1, width), np.float32)
