# SPDX-License-Identifier: Apache-2.0
"""Rows of tables in the types that engines look up, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .errors import Problems

RowType = Literal["f32", "f16", "bf16", "i8"]


@dataclass
class RowError:
    """How far the rows of a table are from the trained ones."""

    type: RowType
    largest: float
    root_mean_square: float


@np.errstate(over="ignore", invalid="ignore")  # which the error tells
def convert_rows(name: str, rows: np.ndarray, type: RowType) -> tuple[dict[str, np.ndarray], RowError]:
    """The tensors of a table whose rows are [n, dim] FP32, and their error. BF16 is of the package ml_dtypes."""
    tensors: dict[str, np.ndarray]
    if type == "f32":
        tensors, back = {name: rows}, rows
    elif type == "f16":
        tensors = {name: rows.astype(np.float16)}
        back = tensors[name].astype(np.float32)
    elif type == "bf16":
        import ml_dtypes
        tensors = {name: rows.astype(ml_dtypes.bfloat16)}
        back = tensors[name].astype(np.float32)
    else:
        low, high = rows.min(1), rows.max(1)
        scale = ((high.astype(np.float64) - low) / 255).astype(np.float32)
        offset = (low + 128.0 * scale).astype(np.float32)
        steps = (rows - offset[:, None]) / np.where(scale > 0, scale, 1)[:, None]
        quantized = np.clip(np.rint(steps), -128, 127).astype(np.int8)
        tensors = {name: quantized, f"{name}.scale": scale, f"{name}.offset": offset}
        back = quantized * scale[:, None] + offset[:, None]
    difference = back.astype(np.float64) - rows
    largest = float(np.abs(difference).max(initial=0))
    root_mean_square = float(np.sqrt(np.mean(difference**2))) if difference.size else 0.0
    return tensors, RowError(type, largest, root_mean_square)


def hashed_keys(name: str, ids: Any, rows: int | None, problems: Problems) -> np.ndarray | None:
    """The ids of a hashed table's rows, of which there are `rows` where that is known; None: they are no ids."""
    keys = np.asarray(ids)
    if keys.ndim != 1 or keys.dtype.kind not in "iu":
        problems.add(f"hashed: '{name}'", "a list of ids, each once",
                     f"{keys.dtype} values of shape {list(keys.shape)}")
        return None
    values, counts = np.unique(keys, return_counts=True)
    if (counts > 1).any():
        problems.add(f"hashed: '{name}'", "a list of ids, each once", f"{values[counts > 1][0]} twice")
    if rows is not None and len(keys) != rows:
        problems.add(f"hashed: '{name}'", f"{rows} ids, one for each row of the table", str(len(keys)))
    return keys.astype(np.int64)


def convert_tables(tables: Mapping[str, np.ndarray], rows: RowType | Mapping[str, RowType],
                   problems: Problems) -> tuple[dict[str, np.ndarray], dict[str, RowError]]:
    """All tables in one type, or in those by table (FP32 without), and their errors by table. Of hashed ones, with
    "<table>.keys" and "<table>.rows", the rows are converted. Rows that are not finite are no problem of their type."""
    hashed = [name.removesuffix(".keys") for name, array in tables.items() if array.dtype == np.int64]
    tensors = {f"{name}.keys": tables[f"{name}.keys"] for name in hashed}
    trained = {name: tables[f"{name}.rows"] for name in hashed}
    trained |= {name: array for name, array in tables.items() if name.rpartition(".")[0] not in hashed}
    if not isinstance(rows, str):
        for name in rows:
            if name not in trained:
                problems.add(f"rows: '{name}'", "a table of the model, " + ", ".join(trained), "none of that name")
    errors: dict[str, RowError] = {}
    for name, array in trained.items():
        type = rows if isinstance(rows, str) else rows.get(name, "f32")
        if type not in ("f32", "f16", "bf16", "i8"):
            problems.add(f"rows of table '{name}'", "one of f32, f16, bf16, i8", repr(type))
            continue
        made, errors[name] = convert_rows(name, array, type)
        if not np.isfinite(errors[name].largest) and np.isfinite(array).all():
            problems.add(f"rows of table '{name}'", f"values that {type} can hold", f"{np.abs(array).max()}")
        if name in hashed:
            made[f"{name}.rows"] = made.pop(name)
        tensors |= made
    return tensors, errors
