# SPDX-License-Identifier: Apache-2.0
"""A model of ONNX as onnxruntime runs it, with whose scores those of exports are compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.helper import tensor_dtype_to_np_dtype

from ..errors import Problems, refuse
from ..torch.exported import check_arguments
from .reading import inputs_of


class Trained:
    def __init__(self, model: Any, read: onnx.ModelProto):
        self.types = {given.name: tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
                      for given in inputs_of(read)}
        self._source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else os.fspath(model)
        self._session: Any = None

    def arrays(self, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """A batch, by input its array. Raises everything that is missing, or of another name, together."""
        if not isinstance(given, Mapping):
            refuse("batch", "arrays by the names of the model's inputs", type(given).__name__)
        problems = Problems()
        check_arguments(given, list(self.types), problems)
        problems.raise_if_any()
        return {name: np.asarray(given[name]) for name in self.types}

    def scores(self, batch: Mapping[str, Any]) -> list[np.ndarray]:
        if self._session is None:
            self._session = onnxruntime.InferenceSession(self._source, providers=["CPUExecutionProvider"])
        return self._session.run(None, {name: array.astype(self.types[name])
                                        for name, array in self.arrays(batch).items()})
