# SPDX-License-Identifier: Apache-2.0
"""From TensorFlow and Keras to a graph with weights and tables, and to files of transforms.

    exported = warprank.keras.export(model, axes={"user_id": "user", "history": "user/history[]", "film_id": "user"})
    exported.check(batch)                         # how far its scores are from the model's
    exported.save("model")                        # for warprank.load, and for servers

    transforms = warprank.keras.transforms_of(feature_columns)
    transforms.save("transforms.json")            # for Transforms.load, in Python and in C++
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import warprank as wr

from ..errors import Problems, refuse
from ..exported import Difference, Exported, ExportedModel
from ..lowering.examples import BATCH, LENGTH, example_of
from ..lowering.inputs import Input, axes_of
from ..rows import RowError, RowType, convert_tables
from ..written import NamedWeights
from . import column_ops, column_sparse, convolutions, layers, ops, recurrent  # noqa: F401: they register what they handle
from .column_walk import divided
from .preprocessing import example_of as random_columns
from .program import Program
from .tracing import Model, opened, shapes, traced
from .transforms import transforms_of
from .variables import variables
from .written import weights_of

__all__ = ["Difference", "Exported", "NamedWeights", "RowError", "export", "transforms_of", "variables", "weights_of"]


def export(model: Any, axes: Mapping[str, str] | None = None, *, outputs: Mapping[str, str] | Sequence[str] = {},
           rows: RowType | Mapping[str, RowType] = "f32", hashed: Mapping[str, Any] = {},
           example_batch: Any = None) -> Exported:
    """Exports a model of Keras, or a file of one (`.keras`, `.h5`), or a SavedModel's signature, in inference.

    What makes ids of text and numbers at a model's beginning, layers as StringLookup or a SavedModel's ops, becomes the
    export's `transforms`. The graph has their ids as inputs. Batches are the model's; where it parses tf.Examples they
    have their features, a list for each row of those that have any length.

    axes: by input the axis that it lives on, with the axes above it: "user", "user/item". What depends on the user
        alone is computed once for each user, though the model has it for each item. Nothing: one axis for all.
        "user/history[]": of an input [batch, events, ..] the events are rows of that axis. Padding is what the model
        masks: ids that are compared with a number, as mask_zero does, or an input of truth values [batch, events].
    outputs: by the name of an output of the model the name that it gets, or names for all
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    hashed: by table the 64-bit ids of its rows, in their order: requests have those instead of row numbers
    example_batch: by input its array, or a list of arrays: of what shape batches are, where the model leaves that open,
        and what check() and save() take where they get none. Without, they take random ones.

    Raises everything that cannot be expressed together, each with the path of its layer.
    """
    trained = opened(model, example_batch, axes)
    example = None if example_batch is None else trained.batch(example_batch)
    batch_shapes = shapes(trained, example)
    graph_of_ops = None if trained.begins_with_numbers else divided(trained, batch_shapes, axes)
    found = trained.preprocessing
    if found is not None:
        batch_shapes = found.shapes(batch_shapes)
    if not batch_shapes:
        refuse("model", "inputs that are read", "none")
    inputs = _inputs(trained, axes if found is None else found.axes(axes), batch_shapes)
    if graph_of_ops is None:
        graph_of_ops = traced(trained, batch_shapes)
    graph_of_ops.outputs = _renamed(graph_of_ops.outputs, outputs)
    batch = next(iter(batch_shapes.values()))[0]
    program = Program(graph_of_ops, inputs, batch, hashed)
    graph = program.run()
    problems = Problems()
    for name in () if found is None else found.made:
        for table in program.lookups.get(name, {}).keys() & hashed.keys():
            problems.add(f"hashed: '{table}'", "a table of ids that are an input of the model",
                         f"'{name}', of which transforms make row numbers")
    tables, errors = convert_tables(program.tables, rows, problems)
    problems.raise_if_any()
    read = {p.name for p in wr.compile(graph).parameters}
    weights = {name: array for name, array in program.weights.items() if name in read}
    given = list(inputs.values())
    if example is None:
        example = (example_of(given, program.sequences, program.lookups, batch_shapes) if found is None else
                   random_columns(found, BATCH, LENGTH))
    return ExportedModel(graph, weights, tables, errors, list(graph_of_ops.outputs), given, program.sequences,
                         program.lookups, trained, example,
                         transforms=found.transforms if found is not None and found.made else None)


def _inputs(model: Model, axes: Mapping[str, str] | None, of: Mapping[str, tuple[int, ...]]) -> dict[str, Input]:
    problems = Problems()
    found: dict[str, Input] = {}
    batch = next(iter(of.values()))[0]
    for name, (axis, is_events) in axes_of(list(model.inputs), axes, problems).items():
        dtype, spec = model.inputs[name].dtype, model.inputs[name]
        kind: Any = "ids" if dtype.is_integer else "numbers" if dtype.is_floating else "mask"
        if kind == "mask" and dtype.name != "bool":
            problems.add(f"input '{name}'", "numbers, ids, text or truth values", dtype.name)
        if None in spec.shape[1 + is_events:]:
            problems.add(f"input '{name}'", "sizes that are known, but for the events of an axis ('user/history[]')",
                         f"shape {list(spec.shape)} on '{axis}'")
        if of[name][:1] != (batch,):
            problems.add(f"input '{name}'", f"{batch} rows, as the first input has", f"shape {list(of[name])}")
        found[name] = Input(name, axis, tuple(of[name][1:]), kind, is_events)
    problems.raise_if_any()
    return found


def _renamed(made: Mapping[str, Any], outputs: Mapping[str, str] | Sequence[str]) -> dict[str, Any]:
    problems = Problems()
    if not isinstance(outputs, Mapping):
        if len(outputs) != len(made):
            refuse("outputs", f"{len(made)} names", str(len(outputs)))
        outputs = dict(zip(made, outputs))
    for name in outputs:
        if name not in made:
            problems.add(f"outputs: '{name}'", "an output of the model, " + ", ".join(made), "none of that name")
    problems.raise_if_any()
    return {outputs.get(name, name): tensor for name, tensor in made.items()}
