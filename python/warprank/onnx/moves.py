# SPDX-License-Identifier: Apache-2.0
"""Ops of ONNX that make, move and pick elements, as functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..lowering.cells import Unsupported
from .handlers import computes, element_type


@computes("Identity", is_move=True)
def identity(x: Tensor) -> Tensor:
    return x


@computes("Dropout", numbers="ratio training")
def dropout(x: Tensor, ratio: Any = None, training: Any = None, *, seed: int = 0) -> Tensor:
    if training and ratio != 0:
        raise Unsupported("a model in evaluation", "dropout of one in training")
    return x


@computes("Constant")
def constant(*, value: Any = None, value_float: Any = None, value_floats: Any = None, value_int: Any = None,
             value_ints: Any = None) -> Tensor:
    given = next(x for x in (value, value_float, value_floats, value_int, value_ints) if x is not None)
    return given if isinstance(given, Tensor) else torch.tensor(given)


@computes("ConstantOfShape", numbers="shape")
def constant_of_shape(shape: Sequence[int], *, value: Tensor | None = None) -> Tensor:
    return torch.zeros(tuple(shape)) if value is None else value.reshape(()).expand(tuple(shape)).clone()


@computes("Range", numbers="start limit delta")
def range_(start: Any, limit: Any, delta: Any) -> Tensor:
    return torch.arange(start, limit, delta)


@computes("Shape")
def shape_of(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


@computes("Size")
def size_of(x: Tensor) -> Tensor:
    return torch.tensor(x.numel())


@computes("EyeLike")
def eye_like(x: Tensor, *, dtype: int = 0, k: int = 0) -> Tensor:
    rows, columns = torch.arange(x.shape[0]), torch.arange(x.shape[1])
    return (columns == rows[:, None] + k).to(element_type(dtype) if dtype else x.dtype)


@computes("Reshape", numbers="shape", is_move=True)
def reshape(x: Tensor, shape: Sequence[int], *, allowzero: int = 0) -> Tensor:
    return x.reshape([x.shape[d] if n == 0 and not allowzero else n for d, n in enumerate(shape)])


@computes("Flatten", is_move=True)
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    return x.reshape(math.prod(x.shape[:axis]), -1)


@computes("Transpose", is_move=True)
def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(tuple(reversed(range(x.dim()))) if perm is None else tuple(perm))


@computes("Squeeze", numbers="axes", is_move=True)
def squeeze(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return x.squeeze(tuple(d for d, n in enumerate(x.shape) if n == 1) if axes is None else tuple(axes))


@computes("Unsqueeze", numbers="axes", is_move=True)
def unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    rank = x.dim() + len(axes)
    for d in sorted(a % rank for a in axes):
        x = x.unsqueeze(d)
    return x


@computes("Expand", numbers="shape")
def expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


@computes("Tile", numbers="repeats")
def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.repeat(tuple(repeats))


@computes("Concat")
def concat(*given: Tensor, axis: int = 0) -> Tensor:
    return torch.cat(given, axis)


@computes("Split", numbers="split")
def split(x: Tensor, split: Sequence[int] | None = None, *, axis: int = 0, num_outputs: int = 0) -> Any:
    return torch.split(x, -(-x.shape[axis] // num_outputs) if split is None else list(split), axis)


@computes("Slice", numbers="starts ends axes steps")
def slice_(x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None,
           steps: Sequence[int] | None = None) -> Tensor:
    for i, axis in enumerate(range(len(starts)) if axes is None else axes):
        kept = range(x.shape[axis])[starts[i]:ends[i]:1 if steps is None else steps[i]]
        if kept.step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(kept.start, kept.stop, kept.step),)]
        else:
            x = x.index_select(axis, torch.tensor(list(kept), dtype=torch.int64))
    return x


@computes("Pad", numbers="pads value axes")
def pad(x: Tensor, pads: Sequence[int], value: Any = None, axes: Sequence[int] | None = None, *,
        mode: str = "constant") -> Tensor:
    ends = [(0, 0)] * x.dim()
    given = range(x.dim()) if axes is None else axes
    for i, axis in enumerate(given):
        ends[axis] = pads[i], pads[i + len(given)]
    if mode != "constant" and any(p > 0 for end in ends for p in end):
        raise Unsupported("padding with a number", f"mode '{mode}'")
    return functional.pad(x, [p for end in reversed(ends) for p in end], value=0 if value is None else value)


@computes("Trilu", numbers="k")
def trilu(x: Tensor, k: int | None = None, *, upper: int = 1) -> Tensor:
    return torch.triu(x, k or 0) if upper else torch.tril(x, k or 0)


# --- by indices


@computes("Gather", may_be_numbers="indices", is_move=True)
def gather(x: Tensor, indices: Any, *, axis: int = 0) -> Tensor:
    axis %= x.dim()
    if isinstance(indices, Tensor):
        if axis == 0 and x.dim() == 2 and x.is_floating_point():
            return functional.embedding(indices, x)
        return x[(slice(None),) * axis + (indices,)]
    places = torch.tensor(indices, dtype=torch.int64)
    places = torch.where(places < 0, places + x.shape[axis], places)
    if places.dim() == 0:
        return x.select(axis, places.item())  # type: ignore[arg-type]
    return x.index_select(axis, places.flatten()).unflatten(axis, places.shape)


@computes("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, indices)


@computes("TopK", numbers="k")
def top_k(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return tuple(torch.topk(x, k[0] if isinstance(k, list) else int(k), axis, bool(largest)))


@computes("NonZero", numbers="mask")
def nonzero(mask: Any) -> Tensor:
    return torch.tensor(np.array(np.nonzero(mask)).tolist(), dtype=torch.int64)


def _places_in_each_row(x: Tensor, indices: Any) -> list[int] | None:
    """Places within a row, where a list has the same of each row, one row behind the other: as exporters write
    masked_select."""
    rows, places = x.shape[0], np.array(indices)
    if places.ndim != 2 or places.shape[1] != x.dim() or x.dim() < 2 or len(places) % rows or places.min(initial=0) < 0:
        return None
    of_one = places[:len(places) // rows, 1:]
    of_each = [[row, *place] for row in range(rows) for place in of_one.tolist()]
    return np.ravel_multi_index(of_one.T, tuple(x.shape[1:])).tolist() if np.array_equal(of_each, places) else None


@computes("GatherND", may_be_numbers="indices")
def gather_nd(x: Tensor, indices: Any, *, batch_dims: int = 0) -> Tensor:
    places = indices if isinstance(indices, Tensor) else torch.tensor(indices, dtype=torch.int64)
    of_each = None if isinstance(indices, Tensor) or batch_dims else _places_in_each_row(x, indices)
    if of_each is not None:
        return x.flatten(1).index_select(1, torch.tensor(of_each)).flatten()
    own = [torch.arange(n).reshape([-1 if d == i else 1 for i in range(places.dim() - 1)])
           for d, n in enumerate(x.shape[:batch_dims])]
    return x[(*own, *places.unbind(-1))]


@computes("OneHot", numbers="depth values")
def one_hot(ids: Tensor, depth: Any, values: Sequence[float], *, axis: int = -1) -> Tensor:
    """A look-up in a table that has one row for each id."""
    depth = depth[0] if isinstance(depth, list) else int(depth)
    off, on = values
    table = torch.eye(depth) * (on - off) + off
    return functional.embedding(ids, table).movedim(-1, axis)
