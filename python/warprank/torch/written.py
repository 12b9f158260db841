# SPDX-License-Identifier: Apache-2.0
"""Weights and tables of a module for a graph that is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

from .. import _core
from ..model import ModelFunction, Plan
from ..rows import RowType
from ..written import Framework, NamedWeights, named_weights


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.to(torch.float32).numpy().copy()


PYTORCH = Framework("tensor", "module", _array, lambda name: [f"{name}.weight"], is_in_out=False)


def weights_of(module: torch.nn.Module, graph: Plan | _core.Graph | ModelFunction, *, names: Mapping[str, str] = {},
               hashed: Mapping[str, Any] = {}, rows: RowType | Mapping[str, RowType] = "f32",
               extra: Literal["refuse", "ignore"] = "refuse") -> NamedWeights:
    """What a graph that is written by hand reads, of the parameters and buffers of a module.

    graph: a plan, a graph or the function that makes it
    names: by the name of a parameter or a table of the graph the module's, "head.weight": "top.4.weight"; where they
        are the same, nothing. A table "film" is the module's "film", or its "film.weight".
    hashed: by hashed table the 64-bit ids of its rows, in their order
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    extra: "ignore": the module may have floating-point tensors that the graph does not read

    Raises everything that is missing, mis-shaped, not finite or not read together, by its path in the module.
    """
    learned = {name: t.detach().cpu() for name, t in module.state_dict().items() if t.is_floating_point()}
    return named_weights(learned, PYTORCH, graph, names=names, hashed=hashed, rows=rows, extra=extra)
