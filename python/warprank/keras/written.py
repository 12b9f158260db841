# SPDX-License-Identifier: Apache-2.0
"""Weights and tables of a model, or of a checkpoint, for a graph that is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from .. import _core
from ..model import ModelFunction, Plan
from ..rows import RowType
from ..written import Framework, NamedWeights, named_weights
from .variables import variables

KINDS = {"weight": ("kernel", "gamma"), "bias": ("bias", "beta"), "running_mean": ("moving_mean",),
         "running_var": ("moving_variance",)}


def _names(name: str) -> list[str]:
    """Those of Keras' layers for what a graph calls "head.weight", and for a table "film"."""
    layer, _, kind = name.rpartition(".")
    return [*(f"{layer}/{given}" for given in KINDS.get(kind, ())), f"{name}/embeddings"]


KERAS = Framework("variable", "model", lambda array: np.array(array, np.float32), _names, is_in_out=True)


def weights_of(model: Any, graph: Plan | _core.Graph | ModelFunction, *, names: Mapping[str, str] = {},
               hashed: Mapping[str, Any] = {}, rows: RowType | Mapping[str, RowType] = "f32",
               extra: Literal["refuse", "ignore"] = "refuse") -> NamedWeights:
    """What a graph that is written by hand reads, of the variables of a model or of a file that `variables` takes.

    graph: a plan, a graph or the function that makes it
    names: by the name of a parameter or a table of the graph the variable's, "head.weight": "dense_2/kernel"; nothing
        for "head.weight" where the variable is "head/kernel" (or "head/gamma"; as well bias, beta and moving
        statistics), and for a table "film" where it is "film" or "film/embeddings". Kernels are [in, out], as Keras
        has them.
    hashed: by hashed table the 64-bit ids of its rows, in their order
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    extra: "ignore": the model may have floating-point variables that the graph does not read

    Raises everything that is missing, mis-shaped, not finite or not read together, by its name in the model.
    """
    learned = {name: array for name, array in variables(model).items()
               if array.dtype.kind == "f" or array.dtype.name == "bfloat16"}
    return named_weights(learned, KERAS, graph, names=names, hashed=hashed, rows=rows, extra=extra)
