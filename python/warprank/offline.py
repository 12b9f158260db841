# SPDX-License-Identifier: Apache-2.0
"""Scores of Parquet files, row group by row group. What was scored is kept, so that a run that was ended goes on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import IO, Any

import numpy as np

from .columns import inputs_of
from .errors import Problems
from .model import Model
from .weights import Path

FORMAT = 1


def score_parquet(model: Model, data: Path, out: Path, *, keep: Sequence[str] = (), threads: int = 0,
                  rows_per_batch: int = 4096, progress: IO[str] | None = None) -> int:
    """Writes a Parquet file of scores, with a row for each of `data`. Returns how many those are.

    A row of `data` is a request: a column for each input, lists where an input is not on the outermost axis. Where no
    input has lists for an axis, each row has one row of it, as in logs with a line for each item. Scores on axes below
    the outermost are lists in the same way.

    keep: columns that are copied. threads: 0 is one for each processor. progress: where to say how far it is.
    Until it is whole, `out` is not there, and "<out>.partial" has what was scored; the same call goes on from that.
    """
    import pyarrow.parquet as parquet

    source = parquet.ParquetFile(os.fspath(data))
    names = source.schema_arrow.names
    _check(model, names, keep, data)
    used = [n for n in names if n in inputs_of(model.plan)]
    parts = _Parts(out, {"format": FORMAT, "data": _identity(data), "graph": model.plan.graph.to_json(),
                         "memory": model.memory(), "keep": list(keep)})
    groups, done, begin = source.num_row_groups, 0, time.monotonic()
    here = 0  # rows of this run
    for group in range(groups):
        rows = source.metadata.row_group(group).num_rows
        if not parts.has(group):
            table = source.read_row_group(group, columns=list(dict.fromkeys([*used, *keep])))
            parts.write(group, _scored(model, table, keep, threads, rows_per_batch))
            here += rows
        done += rows
        if progress is not None:
            _tell(progress, done, source.metadata.num_rows, here / max(time.monotonic() - begin, 1e-9))
    if progress is not None:
        progress.write("\n")
    parts.finish(groups, lambda: _scored(model, source.schema_arrow.empty_table(), keep, 1, rows_per_batch))
    return int(source.metadata.num_rows)


def _check(model: Model, names: Sequence[str], keep: Sequence[str], data: Path) -> None:
    problems = Problems()
    defaults = {i.name: i.default_id for i in model.plan.ids} | {d.name: d.default_value for d in model.plan.dense}
    wanted = [n for n, default in defaults.items() if default is None]
    for name in dict.fromkeys([*wanted, *keep]):
        if name not in names:
            near = get_close_matches(name, names, 1)
            problems.add(f"column '{name}'", f"a column of {os.fspath(data)}",
                         "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
    for name in keep:
        if name in model.plan.outputs:
            problems.add(f"column '{name}'", "one that is no output", "an output of the model")
    problems.raise_if_any()


def _identity(path: Path) -> list[Any]:
    status = os.stat(path)
    return [os.path.abspath(os.fspath(path)), status.st_size, status.st_mtime_ns]


def _scored(model: Model, table: Any, keep: Sequence[str], threads: int, rows_per_batch: int) -> Any:
    import pyarrow

    if table.num_rows:
        offsets = _offsets_of_single_rows(model, table)
        scores = model.score(table, offsets, threads=threads, rows_per_batch=rows_per_batch)
    columns = {name: table.column(name) for name in keep}
    for name, axis in _axes_of_outputs(model).items():
        values = scores[name] if table.num_rows else np.zeros(0, np.float32)
        array = pyarrow.array(values.reshape(-1), pyarrow.float32())
        if values.ndim == 2:
            array = pyarrow.FixedSizeListArray.from_arrays(array, values.shape[1])
        if axis and not (table.num_rows and axis in offsets):
            begins = scores.offsets[name] if table.num_rows else np.zeros(1)
            array = pyarrow.ListArray.from_arrays(pyarrow.array(begins, pyarrow.int32()), array)
        columns[name] = array
    return pyarrow.table(columns)


def _offsets_of_single_rows(model: Model, table: Any) -> dict[str, np.ndarray]:
    """Of axes of which no column has lists: one row for each."""
    from pyarrow import types

    levels: dict[str, bool] = {}  # by axis whether a column has lists for it
    for name, given in inputs_of(model.plan).items():
        if name not in table.column_names:
            continue
        depth, type = 0, table.schema.field(name).type
        while types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
            depth, type = depth + 1, type.value_type
        depth -= given.kind == "dense" and given.width > 1
        for level, axis in enumerate(reversed(given.axes)):
            levels[axis] = levels.get(axis, False) or level < depth
    return {axis: np.arange(table.num_rows + 1, dtype=np.int64) for axis, has in levels.items() if not has}


def _axes_of_outputs(model: Model) -> dict[str, str]:
    """By output its axis; "" for the outermost."""
    graph = json.loads(model.plan.graph.to_json())
    axes = {o["name"]: graph["axes"][graph["nodes"][o["node"]]["axis"]] for o in graph["outputs"]}
    return {name: "" if axis["parent"] < 0 else axis["name"] for name, axis in axes.items()}


def _tell(progress: IO[str], done: int, rows: int, speed: float) -> None:
    filled = 30 * done // max(rows, 1)
    end = "" if progress.isatty() else "\n"
    begin = "\r" if progress.isatty() else ""
    progress.write(f"{begin}[{'#' * filled}{'.' * (30 - filled)}] {done} of {rows} rows, {speed:.0f} rows/s{end}")
    progress.flush()


class _Parts:
    """A folder with a file for each row group that was scored, and of what they are."""

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


