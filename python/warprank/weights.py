# SPDX-License-Identifier: Apache-2.0
"""Named tensors from safetensors files and from arrays, and files from arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from . import _core
from .errors import Problems

Path = str | os.PathLike[str]
Layout = Literal["pytorch", "keras"]


def _stored(array: Any) -> tuple[Any, str | None]:
    """An array that the extension takes, and its type where the array cannot say it."""
    if isinstance(array, np.ndarray) and array.dtype.name == "bfloat16":  # of the package ml_dtypes
        return array.view(np.uint16), "BF16"
    if hasattr(array, "detach"):  # PyTorch: DLPack refuses what has a gradient
        return array.detach().cpu().contiguous(), None
    return (array if hasattr(array, "__dlpack__") else np.asarray(array)), None


class Weights:
    """Named tensors, from safetensors files or from arrays. Immutable.

    ``layout`` says how matrices are stored: ``pytorch`` [out, in] or ``keras`` [in, out]. ``names`` maps a parameter's
    or table's name to the tensor's where they differ.
    """

    def __init__(self, core: _core.Weights):
        self._core = core

    @staticmethod
    def open(paths: Path | Iterable[Path], layout: Layout = "pytorch", names: Mapping[str, str] = {}) -> Weights:
        """The tensors of one or several safetensors files, which stay mapped."""
        if isinstance(paths, (str, os.PathLike)):
            paths = [paths]
        return Weights(_core.Weights.open_all([os.fspath(p) for p in paths], layout, dict(names)))

    @staticmethod
    def from_arrays(arrays: Mapping[str, Any], layout: Layout = "pytorch", names: Mapping[str, str] = {}) -> Weights:
        """NumPy arrays, or anything with DLPack, of F32, F16, BF16, I8 or I64. Contiguous ones are not copied: they are
        kept, and must not change."""
        stored = {name: _stored(array) for name, array in arrays.items()}
        return Weights(_core.Weights.from_arrays(stored, layout, dict(names)))

    @property
    def names(self) -> list[str]:
        """The names of all tensors, sorted."""
        return self._core.names

    def __getitem__(self, name: str) -> np.ndarray:
        """A copy of a tensor. BF16, which NumPy does not have, becomes float32, which is exact."""
        array: Any
        array, dtype = self._core.get(name)
        if dtype == "F16":
            array = array.view(np.float16)
        if dtype == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(array)


def write_safetensors(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str] = {}) -> None:
    """Writes a safetensors file, whole or not at all, of the arrays that Weights.from_arrays takes."""
    _core.write_safetensors(os.fspath(path), {name: _stored(array) for name, array in arrays.items()}, dict(metadata))


def check_finite(what: str, array: np.ndarray, problems: Problems, *, may_be_minus_infinity: bool = False) -> None:
    """Collects the first element of a trained tensor that is not finite, and how many there are."""
    is_wrong = ~np.isfinite(array)
    if may_be_minus_infinity:
        is_wrong &= ~np.isneginf(array)
    count = int(np.count_nonzero(is_wrong))
    if count:
        place = np.unravel_index(int(is_wrong.argmax()), array.shape)
        more = f", and {count - 1} more that are not finite" if count > 1 else ""
        problems.add(f"{what}, element {[int(i) for i in place]}", "a finite number", f"{array[place]}{more}")
