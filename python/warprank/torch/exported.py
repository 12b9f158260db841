# SPDX-License-Identifier: Apache-2.0
"""An export of a module of PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..exported import Exported


class ExportedModule(Exported):
    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        return {given.name: tensor.detach().cpu().numpy() for given, tensor in zip(self._inputs, leaves(batch))}

    def _wanted(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        """The module's scores by output, and the seconds that it took."""
        args, kwargs = arguments(batch)
        with torch.no_grad(), evaluating(self._trained):
            self._trained(*args, **kwargs)
            begin = time.perf_counter()
            made = self._trained(*args, **kwargs)
            seconds = time.perf_counter() - begin
        tensors = torch.utils._pytree.tree_leaves(made)
        return {name: t.to(torch.float64).numpy() for name, t in zip(self.outputs, tensors)}, seconds


class evaluating:
    """A module in evaluation, and afterwards each part of it as it was."""

    def __init__(self, module: torch.nn.Module):
        self._module = module

    def __enter__(self) -> None:
        self._training: Mapping[torch.nn.Module, bool] = {m: m.training for m in self._module.modules()}
        for module in self._training:
            module.training = False

    def __exit__(self, *_: Any) -> None:
        for module, training in self._training.items():
            module.training = training


def arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a module is called with: a tensor, a tuple of arguments, or arguments by name."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}


def leaves(batch: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(arguments(batch)) if isinstance(x, torch.Tensor)]
