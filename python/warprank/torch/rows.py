# SPDX-License-Identifier: Apache-2.0
"""Rows of tables in the types that engines look up, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

RowType = Literal["f32", "f16", "bf16", "i8"]


@dataclass
class RowError:
    """How far the rows of a table are from the trained ones."""

    type: RowType
    largest: float
    root_mean_square: float


def convert_rows(name: str, rows: np.ndarray, type: RowType) -> tuple[dict[str, np.ndarray], RowError]:
    """The tensors of a table whose rows are [n, dim] FP32, and their error. BF16 is of the package ml_dtypes."""
    tensors: dict[str, np.ndarray]
    if type == "f32":
        tensors, back = {name: rows}, rows
    elif type == "f16":
        with np.errstate(over="ignore"):  # which the error tells
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
    with np.errstate(invalid="ignore"):
        largest = float(np.abs(difference).max(initial=0))
        root_mean_square = float(np.sqrt(np.mean(difference**2))) if difference.size else 0.0
    return tensors, RowError(type, largest, root_mean_square)
