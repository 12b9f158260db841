# SPDX-License-Identifier: Apache-2.0
"""The variables of saved models by their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import refuse

PART = re.compile(r"^(.*)/part_(\d+)(/.*)?$")
# What checkpoints have beside what a model learns.
BOOKKEEPING = ("OBJECT_CONFIG", "CHECKPOINTABLE", ".OPTIMIZER_SLOT", "optimizer/", "save_counter", "global_step")
POWERS = re.compile(r"^(.*/)?beta[12]_power(_\d+)?$")  # of Adam in TensorFlow 1


def variables(model: Any) -> dict[str, np.ndarray]:
    """The variables of a Keras model, or of a file: a `.keras`, an `.h5`, a SavedModel or a checkpoint of TensorFlow.

    Those of Keras are named by the paths of their layers, "tower/dense/kernel", others as they are there. Variables
    that were partitioned ("table/part_0", ..) are joined; what optimizers keep is left out.
    """
    if hasattr(model, "variables"):
        return {name: np.asarray(variable.numpy()) for name, variable in named_variables(model)}
    path = os.fspath(model)
    if path.endswith((".keras", ".h5", ".hdf5")):
        import keras
        return variables(keras.models.load_model(path, compile=False))
    import tensorflow as tf
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "saved_model.pb")):
        loaded = tf.saved_model.load(path)
        named = getattr(loaded, "variables", None) or getattr(loaded, "_all_variables", [])
        return _joined({v.name.removesuffix(":0"): v.numpy() for v in named})
    checkpoint = tf.train.latest_checkpoint(path) if os.path.isdir(path) else path
    try:
        reader = tf.train.load_checkpoint(checkpoint or path)
    except (ValueError, tf.errors.OpError) as error:
        refuse(f"variables of '{path}'", "a .keras, an .h5, a SavedModel or a checkpoint", str(error).splitlines()[0])
    names = {name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for name in reader.get_variable_to_shape_map()}
    found = {}
    for name in names:
        # "dense/kernel/Adam" is kept for the variable "dense/kernel"; averages are what one may want to serve.
        is_slot = name.rpartition("/")[0] in names and not name.endswith("/ExponentialMovingAverage")
        if not is_slot and not any(part in name for part in BOOKKEEPING) and not POWERS.match(name):
            stored = name if reader.has_tensor(name) else f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
            found[name] = reader.get_tensor(stored)
    return _joined(found)


def named_variables(model: Any) -> Iterator[tuple[str, Any]]:
    """Of a Keras model, by the paths of their layers. Keras' own are not those that a model had before it was saved."""
    return _of_layers(model, "", set())


def _of_layers(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    inner = list(layer._flatten_layers(include_self=False, recursive=False))
    below = {id(v) for part in inner for v in part.weights}
    for variable in layer.weights:
        if id(variable) not in below and id(variable) not in seen:
            seen.add(id(variable))
            yield prefix + variable.name, variable
    for part in inner:
        yield from _of_layers(part, f"{prefix}{part.name}/", seen)


def _joined(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    parts: dict[str, dict[int, np.ndarray]] = {}
    whole: dict[str, np.ndarray] = {}
    for name, array in found.items():
        match = PART.match(name)
        if match:
            parts.setdefault(match[1] + (match[3] or ""), {})[int(match[2])] = array
        else:
            whole[name] = array
    for name, by_number in parts.items():
        if sorted(by_number) != list(range(len(by_number))):
            refuse(f"variable '{name}'", "all of its parts", f"parts {sorted(by_number)}")
        whole[name] = np.concatenate([by_number[i] for i in range(len(by_number))])
    return dict(sorted(whole.items()))
