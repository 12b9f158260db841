# SPDX-License-Identifier: Apache-2.0
"""Files of rows, part by part: Parquet by row groups, CSV by blocks of some megabytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from .errors import Problems, refuse
from .weights import Path

BLOCK_BYTES = 16 << 20
SEPARATORS = {".csv": ",", ".tsv": "\t"}

Part = tuple[int, Callable[[], Any]]  # how many rows, and their table


class ParquetFile:
    """What a Parquet file has."""

    def __init__(self, path: Path):
        import pyarrow
        import pyarrow.parquet as parquet
        try:
            self._file = parquet.ParquetFile(os.fspath(path))
        except pyarrow.ArrowInvalid as error:
            refuse(f"file '{os.fspath(path)}'", "Parquet, or a name that ends in .csv or .tsv", str(error))
        self.num_rows: int | None = self._file.metadata.num_rows

    @property
    def names(self) -> list[str]:
        return list(self._file.schema_arrow.names)

    def schema(self, types: Mapping[str, str]) -> Any:
        """What its columns are."""
        return self._file.schema_arrow

    def parts(self, columns: Sequence[str], types: Mapping[str, str]) -> Iterator[Part]:
        for group in range(self._file.num_row_groups):
            yield (self._file.metadata.row_group(group).num_rows,
                   partial(self._read, group, list(columns)))

    def _read(self, group: int, columns: list[str]) -> Any:
        import pyarrow
        try:
            return self._file.read_row_group(group, columns=columns)
        except (pyarrow.ArrowException, OSError) as error:
            refuse(f"row group {group}", "Parquet that is whole", str(error).splitlines()[0])


class CsvFile:
    """What a CSV file has, whose first line has the names unless they are given. Numbers are what `types` says; all
    else is text."""

    def __init__(self, path: Path, names: Sequence[str] | None = None):
        self._path, self._given = os.fspath(path), names
        self._what = "rows of CSV under a line of names" if names is None else f"rows of CSV of {len(names)} columns"
        self._separator = SEPARATORS[os.path.splitext(self._path)[1].lower()]
        self.num_rows: int | None = None  # not known before all is read
        self.names: list[str] = list(self._open({}).schema.names)
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            refuse(f"file '{self._path}'", "each column once", ", ".join(sorted(twice)) + " again")

    def _open(self, options: Mapping[str, Any]) -> Any:
        import pyarrow
        from pyarrow import csv
        try:
            return csv.open_csv(self._path, csv.ReadOptions(block_size=BLOCK_BYTES, column_names=self._given),
                                csv.ParseOptions(delimiter=self._separator), csv.ConvertOptions(**options))
        except pyarrow.ArrowInvalid as error:
            refuse(f"file '{self._path}'", self._what, str(error))

    def schema(self, types: Mapping[str, str]) -> Any:
        import pyarrow
        return pyarrow.schema([(name, self._type(types.get(name, "text"))) for name in self.names])

    @staticmethod
    def _type(type: str) -> Any:
        import pyarrow
        return {"text": pyarrow.string(), "i64": pyarrow.int64(), "f32": pyarrow.float32()}[type]

    def _numbers(self, column: Any, type: str) -> Any:
        """Integers of 64 bits without a sign where they are not all such with one, as Parquet may have them."""
        import pyarrow
        try:
            return column.cast(self._type(type))
        except pyarrow.ArrowInvalid:
            if type != "i64":
                raise
            try:
                return column.cast(pyarrow.uint64())
            except pyarrow.ArrowInvalid:
                pass
            raise  # what is wrong with them as integers with a sign

    def parts(self, columns: Sequence[str], types: Mapping[str, str]) -> Iterator[Part]:
        import pyarrow
        text = dict.fromkeys(self.names, pyarrow.string())
        reader = self._open({"column_types": text, "include_columns": list(columns)})
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except pyarrow.ArrowInvalid as error:
                refuse(f"file '{self._path}'", self._what, str(error))
            if batch.num_rows:
                yield batch.num_rows, partial(self._converted, batch, types)

    def _converted(self, batch: Any, types: Mapping[str, str]) -> Any:
        import pyarrow
        from pyarrow import compute
        problems = Problems()
        columns = {}
        for name in batch.schema.names:
            column, type = batch.column(name), types.get(name, "text")
            if type != "text":
                blank = compute.equal(column, "")
                column = compute.if_else(blank, pyarrow.scalar(None, pyarrow.string()), column)
                try:
                    column = self._numbers(column, type)
                except pyarrow.ArrowInvalid as error:
                    problems.add(f"column '{name}'", "integers" if type == "i64" else "numbers", str(error))
            columns[name] = column
        problems.raise_if_any()
        return pyarrow.table(columns)


def has_rows(path: Path) -> bool:
    """Whether a file is one that open_file takes."""
    with open(path, "rb") as file:
        return os.path.splitext(os.fspath(path))[1].lower() in SEPARATORS or file.read(4) == b"PAR1"


def open_file(path: Path, names: Sequence[str] | None = None) -> ParquetFile | CsvFile:
    """By the ending of its name. names: of the columns of CSV whose first line has none"""
    if not os.path.exists(path):
        refuse(f"file '{os.fspath(path)}'", "one that is there", "none")
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in SEPARATORS and names is not None:
        refuse(f"file '{os.fspath(path)}'", "CSV, where names of columns are given", "another")
    return CsvFile(path, names) if ending in SEPARATORS else ParquetFile(path)
