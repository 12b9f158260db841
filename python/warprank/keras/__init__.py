# SPDX-License-Identifier: Apache-2.0
"""From TensorFlow and Keras to a graph with weights and tables, and to files of transforms.

    exported = warprank.keras.export(model, axes={"user_id": "user", "history": "user/history", "film_id": "user"})
    exported.check(batch)                         # how far its scores are from the model's
    exported.save("model")                        # for warprank.load, and for servers

    transforms = warprank.keras.transforms_of(feature_columns)
    transforms.save("transforms.json")            # for Transforms.load, in Python and in C++
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import keras

import warprank as wr

from ..errors import Problems, refuse
from .exported import Difference, Exported
from .program import Input, Program
from .transforms import transforms_of
from .variables import variables, weights_of

__all__ = ["Difference", "Exported", "export", "transforms_of", "variables", "weights_of"]


def export(model: Any, axes: Mapping[str, str] | None = None, *, padding: Mapping[str, int] = {},
           outputs: Mapping[str, str] = {}) -> Exported:
    """Exports a functional or sequential model, or a file of one (`.keras`, `.h5`), in inference.

    axes: by input the axis that it lives on, with the axes above it: "user", "user/item". What depends on the user
        alone is computed once for each user. An input [batch, length] of a sequence may have an axis of its own,
        "user/history", the other inputs' axis being "user"; otherwise each of its columns is an input by itself.
        Nothing: one axis for all.
    padding: by input that is a sequence of ids the one that means none; the model must give it no weight, as with
        mask_zero and with masks of comparisons. Of embeddings with mask_zero it is 0 unless given.
    outputs: by the name of an output of Keras the name that it gets

    Raises everything that cannot be expressed together, each with the path of its layer.
    """
    if isinstance(model, (str, os.PathLike)):
        model = keras.models.load_model(model, compile=False)
    function = model if hasattr(model, "_nodes_by_depth") else getattr(model, "_functional", None)
    if function is None:
        refuse(f"model '{model.name}'", "a functional or a sequential model", type(model).__name__)
    inputs = _inputs(function, axes, padding)
    names = _output_names(model, function, outputs)
    program = Program(inputs)
    graph = program.run(function, dict(zip(names, function.outputs)))
    read = {p.name for p in wr.compile(graph).parameters}
    weights = {name: array for name, array in program.weights.items() if name in read}
    return Exported(graph, weights, program.tables, names, list(inputs.values()), function)


def _inputs(function: Any, axes: Mapping[str, str] | None, padding: Mapping[str, int]) -> dict[str, Input]:
    problems = Problems()
    found: dict[str, Input] = {}
    paths = {axes.get(t.name, "") for t in function.inputs} if axes is not None else {"row"}
    for tensor in function.inputs:
        name, shape = tensor.name, tuple(tensor.shape[1:])
        axis = "row" if axes is None else axes.get(name, "")
        if not axis:
            problems.add(f"axes: input '{name}'", "its axis", "none")
        is_sequence = len(shape) > 0 and axis.rpartition("/")[0] in paths - {axis} and (
            shape[0] is None or shape[0] > 1) and not any(
                other.name != name and axes is not None and axes.get(other.name) == axis and
                tuple(other.shape[1:])[:1] in ((), (1,)) for other in function.inputs)
        if None in shape[is_sequence:]:
            problems.add(f"input '{name}'",
                         "sizes that are known, but for the steps of a sequence on an axis of its own",
                         f"shape {list(tensor.shape)} on '{axis}'")
        is_ids = "int" in tensor.dtype
        if not is_ids and "float" not in tensor.dtype:
            problems.add(f"input '{name}'", "numbers, or ids (see transforms_of)", tensor.dtype)
        found[name] = Input(name, axis, shape, is_ids, is_sequence, padding.get(name))
    for what, given in (("axes", axes or {}), ("padding", padding)):
        for name in given:
            if name not in found:
                near = get_close_matches(name, found, 1)
                problems.add(f"{what}: '{name}'", "an input of the model",
                             "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
            elif what == "padding" and not (found[name].is_ids and found[name].is_sequence):
                problems.add(f"padding: '{name}'", "ids on an axis of their own", f"'{found[name].axis}'")
    _find_masks(function, found)
    problems.raise_if_any()
    return found


def _find_masks(function: Any, inputs: dict[str, Input]) -> None:
    """Sequences that are looked up with mask_zero have a padding of 0."""
    for nodes in function._nodes_by_depth.values():
        for node in nodes:
            if isinstance(node.operation, keras.layers.Embedding) and node.operation.mask_zero:
                given = inputs.get(node.input_tensors[0].name)
                if given is not None and given.is_sequence and given.padding is None:
                    given.padding = 0


def _output_names(model: Any, function: Any, outputs: Mapping[str, str]) -> list[str]:
    struct = getattr(function, "_outputs_struct", None)
    if isinstance(struct, dict):
        names = [name for name, _ in sorted(((k, v) for k, v in struct.items()),
                                            key=lambda kv: [id(t) for t in function.outputs].index(id(kv[1])))]
    elif len(function.outputs) == 1:
        names = ["output"]
    else:
        names = list(model.output_names)
    problems = Problems()
    for name in outputs:
        if name not in names:
            problems.add(f"outputs: '{name}'", "an output of the model, " + ", ".join(names), "none of that name")
    problems.raise_if_any()
    return [outputs.get(name, name) for name in names]
