# SPDX-License-Identifier: Apache-2.0
"""From what users have to the columns that the extension reads: flat arrays and offsets.

Nothing is copied that lies as the extension reads it: one row behind the other, ids of 64 bits, values of FP32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from . import _core
from .errors import Problems


@dataclass
class Ragged:
    """The values of all rows, and where those of each row of the parent axis begin, and their number. So is a tuple."""

    values: Any
    offsets: Any


@dataclass
class Input:
    name: str
    kind: str  # "ids" or "dense"
    axes: list[str]  # from the axis below the outermost to its own
    width: int
    has_default: bool
    pads_minus_one: bool = False  # of ids: -1 is padding


@dataclass
class _Flat:
    """Values without levels, and the offsets of the innermost levels that there were, from the outermost of them in."""

    values: Any  # a NumPy array, or one in a card's memory
    offsets: list[np.ndarray] = field(default_factory=list)


# Of DLPack: memory of a CUDA card, and the stream behind whose work values are asked for.
_CUDA, _DEFAULT_STREAM = 2, 1


def is_on_card(array: Any) -> bool:
    """Whether another library has the values in a card's memory, and shares it by DLPack."""
    return (type(array) is not np.ndarray and hasattr(array, "__dlpack_device__") and
            int(array.__dlpack_device__()[0]) == _CUDA)


class _Wrong(Exception):
    """expected, got"""


def columns_of(plan: _core.Plan, data: Any, offsets: Mapping[str, Any],
               inputs: Mapping[str, Input] | None = None) -> _core.Columns:
    """Raises InvalidArgument with everything that is wrong with them. `inputs`: the plan's, where they are at hand."""
    if type(data) is dict and not offsets:
        found = _core.Columns.as_read(plan, data, Ragged)
        if found is not None:
            return found
    problems = Problems()
    inputs = inputs_of(plan) if inputs is None else inputs
    given: dict[str, tuple[str, np.ndarray]] = {}  # by axis: of what, offsets
    ids: dict[str, np.ndarray] = {}
    dense: dict[str, np.ndarray] = {}
    on_device: dict[str, Any] = {}  # DLPack
    counts: dict[str, int] = {}  # of requests, by what tells

    def give(axis: str, source: str, found: np.ndarray) -> None:
        if axis not in given:
            given[axis] = (source, found)
        elif not np.array_equal(given[axis][1], found):
            problems.add(f"offsets of axis '{axis}'", f"those of {given[axis][0]}", f"others of {source}")

    for axis, found in offsets.items():
        try:
            give(axis, "the argument", _offsets(found))
        except _Wrong as wrong:
            problems.add(f"offsets of axis '{axis}'", *wrong.args)
    for name, column in _columns(data, inputs, problems).items():
        wanted = inputs[name]
        try:
            flat = _flatten(column, wanted)
            if is_on_card(flat.values):
                on_device[name] = _on_card(flat.values, wanted)
            elif wanted.kind == "ids":
                ids[name] = _ids(flat.values, wanted.pads_minus_one)
            else:
                dense[name] = _dense(flat.values, wanted.width)
        except _Wrong as wrong:
            problems.add(f"column '{name}'", *wrong.args)
            continue
        for axis, found in zip(reversed(wanted.axes), reversed(flat.offsets)):
            give(axis, f"'{name}'", found)
        if not wanted.axes:
            counts[f"'{name}'"] = len(flat.values)
    problems.raise_if_any()

    for axes in {tuple(i.axes[:1]) for i in inputs.values() if i.axes}:
        if axes[0] in given:
            counts[f"the offsets of axis '{axes[0]}'"] = len(given[axes[0]][1]) - 1
    if len(set(counts.values())) > 1:
        problems.add("requests", "as many in all columns", ", ".join(f"{n} in {what}" for what, n in counts.items()))
    if not counts:
        problems.add("requests", "a column of the outermost axis, or offsets of the axis below it", "none")
    num_requests = next(iter(counts.values()), 0)
    missing = [name for name, wanted in inputs.items() if not wanted.has_default and
               name not in ids and name not in dense and name not in on_device]
    if missing:
        _check_missing(missing, inputs, num_requests, given, _names(data), problems)
    problems.raise_if_any()
    return _core.Columns(plan, num_requests, {axis: found for axis, (_, found) in given.items()}, ids, dense,
                         on_device)


def _check_missing(missing: Sequence[str], inputs: Mapping[str, Input], num_requests: int,
                   given: Mapping[str, tuple[str, np.ndarray]], names: Sequence[str], problems: Problems) -> None:
    """That inputs without a default and values are on axes that have no rows."""
    for name in missing:
        wanted = inputs[name]
        rows = int(given[wanted.axes[-1]][1][-1]) if wanted.axes and wanted.axes[-1] in given else 0
        rows = rows if wanted.axes else num_requests
        below = [i.axes[len(wanted.axes)] for i in inputs.values() if i.axes[:len(wanted.axes)] == wanted.axes and
                 len(i.axes) > len(wanted.axes)]
        rows = max([rows, *(len(given[axis][1]) - 1 for axis in below if axis in given)])
        if rows:
            near = get_close_matches(name, [n for n in names if n not in inputs], 1)
            problems.add(f"column '{name}'", f"{rows} rows, since it has no default",
                         "none" + (f" (did you mean '{near[0]}'?)" if near else ""))


def inputs_of(plan: _core.Plan) -> dict[str, Input]:
    axes = plan.axes

    def path(axis: int) -> list[str]:
        return [] if axes[axis].parent < 0 else path(axes[axis].parent) + [axes[axis].name]

    inputs = [Input(i.name, "ids", path(i.axis), 1, i.default_id is not None, plan.pads_minus_one(i.name))
              for i in plan.ids]
    inputs += [Input(d.name, "dense", path(d.axis), d.width, d.default_value is not None) for d in plan.dense]
    return {i.name: i for i in inputs}


def _columns(data: Any, inputs: Mapping[str, Input], problems: Problems) -> dict[str, Any]:
    """The columns that are inputs. Tables may have others; a mapping may not, since they would be mistakes."""
    if not isinstance(data, Mapping):
        if hasattr(data, "column_names"):  # pyarrow.Table, RecordBatch
            return {name: data.column(name) for name in data.column_names if name in inputs}
        if hasattr(data, "iloc"):  # pandas.DataFrame
            return {name: data[name] for name in data.columns if name in inputs}
        problems.add("data", "a mapping of columns, a pandas DataFrame or a PyArrow Table", type(data).__name__)
        return {}
    for name in data:
        if name not in inputs:
            near = get_close_matches(str(name), inputs, 1)
            problems.add(f"column '{name}'", "an input of the model",
                         "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
    return {name: column for name, column in data.items() if name in inputs}


def _names(data: Any) -> list[str]:
    """Those of all columns."""
    return [str(name) for name in getattr(data, "column_names", getattr(data, "columns", data))]


def _flatten(column: Any, wanted: Input) -> _Flat:
    if type(column) is np.ndarray and column.dtype != object:
        return _flatten_array(column, wanted)
    if isinstance(column, tuple) and len(column) == 2:
        column = Ragged(*column)
    if isinstance(column, Ragged):
        if not wanted.axes:
            raise _Wrong("one row for each request, on the outermost axis", "values with offsets")
        offsets = _offsets(column.offsets)
        if offsets.ndim != 1 or len(offsets) < 1:
            raise _Wrong("offsets [parent rows + 1]", f"offsets of shape {list(offsets.shape)}")
        return _Flat(column.values if is_on_card(column.values) else _numpy(column.values), [offsets])
    if type(column).__module__.startswith("pyarrow"):
        return _flatten_arrow(column, wanted)
    if type(column).__module__.startswith("pandas"):
        if "pyarrow" in str(column.dtype):
            import pyarrow
            return _flatten_arrow(pyarrow.array(column), wanted)
        column = column.to_numpy()
    if isinstance(column, np.ndarray) and column.dtype == object:
        column = list(column)
    if isinstance(column, Sequence) and wanted.axes:
        return _flatten_sequences(column, wanted)
    return _flatten_array(column if is_on_card(column) else _numpy(column), wanted)


def _flatten_array(array: Any, wanted: Input) -> _Flat:
    """Dimensions before the rows are levels of one size."""
    flat_dims = 1 if wanted.kind == "ids" or array.ndim == 1 else 2
    levels = array.ndim - flat_dims
    if levels < 0 or levels > len(wanted.axes):
        shape = "[rows" + ("]" if wanted.kind == "ids" else f", {wanted.width}]")
        raise _Wrong(f"{shape}, with one dimension more for each axis between it and the outermost",
                     f"an array of shape {list(array.shape)}")
    offsets = []
    rows = 1
    for level in range(levels):
        rows *= array.shape[level]
        offsets.append(np.arange(rows + 1, dtype=np.int64) * array.shape[level + 1])
    return _Flat(array.reshape((-1,) + tuple(array.shape[levels + 1:])), offsets)


def _flatten_sequences(column: Sequence[Any], wanted: Input) -> _Flat:
    offsets = []
    for _ in wanted.axes:
        try:
            lengths = [len(item) for item in column]
        except TypeError:
            kind = next(type(item).__name__ for item in column if not hasattr(item, "__len__"))
            raise _Wrong(f"a sequence of rows for each row of the axis above, {len(wanted.axes)} deep", kind) from None
        offsets.append(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))
        if column and all(isinstance(item, np.ndarray) and item.dtype != object for item in column):
            flat: Any = np.concatenate(column)
            if len(offsets) == len(wanted.axes):
                return _Flat(flat, offsets)
            column = list(flat)
        else:
            column = [value for item in column for value in item]
    shape = (0,) if wanted.kind == "ids" else (0, wanted.width)
    dtype = np.int64 if wanted.kind == "ids" else np.float32
    return _Flat(_numpy(column) if column else np.empty(shape, dtype), offsets)


def _flatten_arrow(column: Any, wanted: Input) -> _Flat:
    import pyarrow
    from pyarrow import types

    array = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    offsets: list[np.ndarray] = []
    while True:
        if array.null_count:
            raise _Wrong("no nulls", f"{array.null_count} of them")
        if types.is_fixed_size_list(array.type):
            size = array.type.list_size
            offsets.append(np.arange(len(array) + 1, dtype=np.int64) * size)
            array = array.flatten()
        elif types.is_list(array.type) or types.is_large_list(array.type):
            begins = array.offsets.to_numpy().astype(np.int64)
            array = array.values.slice(int(begins[0]), int(begins[-1] - begins[0]))
            offsets.append(begins - begins[0])
        else:
            break
    values = array.to_numpy(zero_copy_only=False)
    if wanted.kind == "dense" and (len(offsets) > len(wanted.axes) or wanted.width > 1):
        if not offsets or np.any(np.diff(offsets[-1]) != wanted.width):
            raise _Wrong(f"lists of {wanted.width} values", "others")
        offsets.pop()
        values = values.reshape(-1, wanted.width)
    if len(offsets) > len(wanted.axes):
        raise _Wrong(f"lists {len(wanted.axes)} deep", f"{len(offsets)} deep")
    return _Flat(values, offsets)


def _numpy(array: Any) -> np.ndarray:
    if is_on_card(array):
        raise _Wrong("values in the host's memory, or one array of all rows on a device", "others on a device")
    if hasattr(array, "detach"):  # PyTorch, whose BF16 NumPy does not have
        array = array.detach()
        return np.asarray(array.float() if str(array.dtype) == "torch.bfloat16" else array)
    if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
        return np.from_dlpack(array)
    try:
        return np.asarray(array)
    except ValueError as error:
        raise _Wrong("rows of one length", str(error)) from None


def _on_card(values: Any, wanted: Input) -> Any:
    """A capsule of DLPack, whose values are there for what is queued in CUDA's default stream."""
    if hasattr(values, "detach"):  # PyTorch, which shares no tensors that have gradients
        values = values.detach().contiguous()
    if wanted.kind == "dense" and len(values.shape) == 1:
        values = values.reshape((-1, 1))
    return values.__dlpack__(stream=_DEFAULT_STREAM)


def _offsets(values: Any) -> np.ndarray:
    """As the extension reads them; never numbers that their conversion has changed."""
    offsets = _numpy(values)
    if offsets.size and offsets.dtype.kind not in "iu":
        raise _Wrong("integers as offsets", f"{offsets.dtype} values")
    if offsets.dtype == np.uint64 and np.any(offsets > np.uint64(2**63 - 1)):
        raise _Wrong("offsets below 2^63", str(offsets.max()))
    return np.ascontiguousarray(offsets, np.int64)


def _ids(values: np.ndarray, pads_minus_one: bool) -> np.ndarray:
    if values.dtype.kind not in "iu":
        raise _Wrong("integers", f"{values.dtype} values")
    values = np.ascontiguousarray(values)
    if values.dtype != np.uint64:
        return values.astype(np.int64, copy=False)
    ids = values.view(np.int64)
    # 2^64 - 1 has the bits of -1, but is no padding: an id that the table does not have, like -2.
    return np.where(ids == -1, np.int64(-2), ids) if pads_minus_one and np.any(ids == -1) else ids


def _dense(values: np.ndarray, width: int) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise _Wrong("numbers", f"{values.dtype} values")
    if values.ndim == 1:
        values = values[:, None]
    return np.ascontiguousarray(values, np.float32)
