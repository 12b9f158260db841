# SPDX-License-Identifier: Apache-2.0
"""Scores of files of rows, part by part. What was scored is kept, so that a run that was ended goes on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

import numpy as np

from .errors import InvalidArgument, Problems
from .files import CsvFile, ParquetFile, open_file
from .folder import TRANSFORMS, Samples
from .model import Model
from .raw import Requests
from .transforms import Transforms
from .weights import Path

FORMAT = 3


def transforms_of(folder: Path) -> Transforms | None:
    """Those of a folder of a model, if it has any."""
    path = os.path.join(os.fspath(folder), TRANSFORMS)
    return Transforms.load(path) if os.path.exists(path) else None


def score_file(model: Model, data: Path, out: Path, *, transforms: Transforms | None = None, keep: Sequence[str] = (),
               columns: Sequence[str] | None = None, threads: int = 0, rows_per_batch: int = 4096,
               progress: IO[str] | None = None) -> int:
    """Writes a Parquet file of scores, with a row for each of `data`. Returns how many those are.

    data: Parquet, or where its name ends in .csv or .tsv lines under a line of names. A row is a request: a column for
        each input, lists where an input is not on the outermost axis. Where no input has lists for an axis, each row
        has one row of it, as in logs with a line for each item. Scores on axes below the outermost are lists in the
        same way.
    transforms: make the inputs that have the names of their features of other columns, and those may be text
    columns: the names of CSV's columns, where its first line has none
    keep: columns that are copied. threads: 0 is one for each processor. progress: where to say how far it is.

    Until it is whole, `out` is not there, and "<out>.partial" has what was scored; the same call goes on from that.
    Where rows are wrong, nothing is left: columns that are missing or of another type are told before any is scored.
    """
    source, requests = open_file(data, columns), Requests(model.plan, transforms)
    _check(model, source, requests, keep, data)
    parts = _Parts(out, {"format": FORMAT, "data": _identity(data), "graph": model.plan.graph.to_json(),
                         "transforms": None if transforms is None else transforms.to_json(),
                         "memory": model.memory(), "keep": list(keep), "columns": source.names})
    wanted = list(dict.fromkeys([*requests.read(source.names), *keep]))
    number, done, begin = 0, 0, time.monotonic()
    here = 0  # rows of this run
    where = os.fspath(data)
    schema = source.schema(requests.types)
    kept = {name: schema.field(name).type for name in keep}
    try:
        for rows, read in source.parts(wanted, requests.types):
            if not parts.has(number):
                where = f"{os.fspath(data)}, rows {done} to {done + rows - 1}"
                parts.write(number, _scored(model, requests, read(), kept, threads, rows_per_batch))
                here += rows
            done, number = done + rows, number + 1
            if progress is not None:
                _tell(progress, done, source.num_rows, here / max(time.monotonic() - begin, 1e-9))
    except InvalidArgument as error:
        parts.remove()
        _refuse(where, error)
    if progress is not None:
        progress.write("\n")
    parts.finish(number, lambda: _scored(model, requests, schema.empty_table(), kept, 1, rows_per_batch))
    return done


def read_samples(model: Model, path: Path, transforms: Transforms | None = None,
                 columns: Sequence[str] | None = None) -> Samples:
    """A file as score_file takes it, with the scores that are expected in columns "expected.<output>", and labels in
    "label.<output>"; lists of them where the output's axis has lists."""
    import pyarrow

    source, requests = open_file(path, columns), Requests(model.plan, transforms)
    scores = [f"{kind}.{name}" for kind in ("expected", "label") for name in model.plan.outputs]
    scores = [name for name in scores if name in source.names]
    types = requests.types | dict.fromkeys(scores, "f32")
    _check(model, source, requests, [], path)
    problems = Problems()
    try:
        parts = [read() for _, read in source.parts([*requests.read(source.names), *scores], types)]
        table = pyarrow.concat_tables(parts) if parts else source.schema(types).empty_table()
        found = {name: _numbers(name, table.column(name), problems) for name in scores}
        problems.raise_if_any()
        data, offsets = requests(table)
    except InvalidArgument as error:
        _refuse(os.fspath(path), error)
    expected, labels = ({name.removeprefix(kind): array for name, array in found.items() if name.startswith(kind)}
                        for kind in ("expected.", "label."))
    return Samples(data, offsets, expected, labels)


def _numbers(name: str, column: Any, problems: Problems) -> np.ndarray:
    array = column.combine_chunks()
    while hasattr(array, "flatten") and not array.null_count:
        array = array.flatten()
    values = array.to_numpy(zero_copy_only=False)
    if array.null_count or values.dtype.kind not in "fiub":
        problems.add(f"column '{name}'", "numbers", f"{array.null_count} nulls of type {column.type}"
                     if array.null_count else str(column.type))
        return np.zeros(0, np.float32)
    return values.astype(np.float32)


def _refuse(where: str, error: InvalidArgument) -> NoReturn:
    problems = Problems()
    for problem in error.problems:
        problems.add(f"{where}: {problem.what}", problem.expected, problem.got)
    problems.raise_if_any()
    raise error


def _check(model: Model, source: ParquetFile | CsvFile, requests: Requests, keep: Sequence[str], data: Path) -> None:
    problems = Problems()
    requests.check(source.schema(requests.types), os.fspath(data), problems)
    for name in keep:
        if name not in source.names:
            requests.missing(name, source.names, os.fspath(data), problems)
        if name in model.plan.outputs:
            problems.add(f"column '{name}'", "one that is no output", "an output of the model")
    problems.raise_if_any()


def _identity(path: Path) -> list[Any]:
    status = os.stat(path)
    return [os.path.abspath(os.fspath(path)), status.st_size, status.st_mtime_ns]


def _scored(model: Model, requests: Requests, table: Any, keep: Mapping[str, Any], threads: int,
            rows_per_batch: int) -> Any:
    import pyarrow

    data, offsets = requests(table)
    scores = model.score(data, offsets, threads=threads, rows_per_batch=rows_per_batch)
    # Of CSV, ids from 2^63 on are kept by their bits, since only some parts may have them.
    columns = {name: table.column(name).combine_chunks().view(type) if table.column(name).type != type and
               pyarrow.types.is_uint64(table.column(name).type) else table.column(name) for name, type in keep.items()}
    for name, axes in _axes_of_outputs(model).items():
        values = scores[name]
        array = pyarrow.array(values.reshape(-1), pyarrow.float32())
        if values.ndim == 2:
            array = pyarrow.FixedSizeListArray.from_arrays(array, values.shape[1])
        if not requests.is_single(axes):
            array = pyarrow.ListArray.from_arrays(pyarrow.array(scores.offsets[name], pyarrow.int32()), array)
        columns[name] = array
    return pyarrow.table(columns)


def _axes_of_outputs(model: Model) -> dict[str, list[str]]:
    """By output the axes from below the outermost to its own."""
    graph = json.loads(model.plan.graph.to_json())

    def path(axis: int) -> list[str]:
        given = graph["axes"][axis]
        return [] if given["parent"] < 0 else [*path(given["parent"]), given["name"]]
    return {o["name"]: path(graph["nodes"][o["node"]]["axis"]) for o in graph["outputs"]}


def _tell(progress: IO[str], done: int, rows: int | None, speed: float) -> None:
    end = "" if progress.isatty() else "\n"
    begin = "\r" if progress.isatty() else ""
    filled = 30 * done // max(rows or 1, 1)
    bar = "" if rows is None else f"[{'#' * filled}{'.' * (30 - filled)}] "
    of = "" if rows is None else f" of {rows}"
    progress.write(f"{begin}{bar}{done}{of} rows, {speed:.0f} rows/s{end}")
    progress.flush()


class _Parts:
    """A folder with a file for each part that was scored, and of what they are."""

    def __init__(self, out: Path, about: dict[str, Any]):
        self._out = os.fspath(out)
        self._folder = self._out + ".partial"
        text = json.dumps(about, sort_keys=True)
        side = os.path.join(self._folder, "about.json")
        if os.path.exists(self._folder):
            same = os.path.exists(side) and open(side, encoding="utf-8").read() == text
            if same:
                return
            shutil.rmtree(self._folder)  # of other data, or another model
        os.makedirs(self._folder)
        with open(side + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(side + ".new", side)

    def _path(self, group: int) -> str:
        return os.path.join(self._folder, f"{group}.parquet")

    def has(self, group: int) -> bool:
        return os.path.exists(self._path(group))

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    def write(self, group: int, table: Any) -> None:
        import pyarrow.parquet as parquet
        parquet.write_table(table, self._path(group) + ".new")
        os.replace(self._path(group) + ".new", self._path(group))

    def finish(self, groups: int, empty: Any) -> None:
        """Makes them one file."""
        import pyarrow.parquet as parquet
        whole = os.path.join(self._folder, "whole.new")
        writer = None
        for group in range(groups):
            table = parquet.read_table(self._path(group))
            writer = writer or parquet.ParquetWriter(whole, table.schema)
            writer.write_table(table)
        if writer is None:
            parquet.write_table(empty(), whole)
        else:
            writer.close()
        os.replace(whole, self._out)
        shutil.rmtree(self._folder)


