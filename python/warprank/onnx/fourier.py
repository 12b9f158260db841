# SPDX-License-Identifier: Apache-2.0
"""ONNX's Fourier transform as functions of tensors. Complex numbers are pairs along the last dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..lowering.cells import Unsupported
from .handlers import computes


@computes("DFT", numbers="length axis")
def dft(x: Tensor, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Tensor:
    """axis: an attribute before opset 20, where it is the second dimension unless told; the last but one since then."""
    if axis is None and x.dim() != 3:
        raise Unsupported("an axis, of which opsets have different defaults", "none")
    if onesided and (inverse or x.shape[-1] == 2):
        raise Unsupported("onesided of transforms of real numbers", "of others")
    given = torch.view_as_complex(x) if x.shape[-1] == 2 else x.squeeze(-1)
    dim = -1 if axis is None else axis if axis >= 0 else axis + 1
    transform = torch.fft.ifft if inverse else torch.fft.rfft if onesided else torch.fft.fft
    return torch.view_as_real(transform(given, length, dim).resolve_conj())
