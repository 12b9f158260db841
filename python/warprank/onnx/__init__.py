# SPDX-License-Identifier: Apache-2.0
"""From a model of ONNX to a graph with weights and tables.

    exported = warprank.onnx.export("model.onnx", axes={"user_id": "user", "film_id": "user/item"})
    exported.check(batch)                         # how far its scores are from onnxruntime's
    exported.save("model")                        # for warprank.load, and for servers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import refuse
from ..exported import Difference, Exported, ExportedModel
from ..lowering.examples import example_of
from ..rows import RowError, RowType
from ..torch.traced import inputs_of, lowered
from .module import Graph
from .reading import opened
from .shapes import shapes_of
from .trained import Trained

__all__ = ["Difference", "Exported", "RowError", "export"]


def export(model: Any, axes: Mapping[str, str] | None = None, *, outputs: Sequence[str] | None = None,
           rows: RowType | Mapping[str, RowType] = "f32", hashed: Mapping[str, Any] = {},
           example_batch: Mapping[str, Any] | None = None) -> Exported:
    """Exports a model of opset 13 or newer: a file, or an onnx.ModelProto. It is taken as PyTorch's modules are: each
    node becomes what it computes in PyTorch, so that the same ops are recognised.

    axes: by input the axis that it lives on, as warprank.torch.export has them
    outputs: names; otherwise the model's own
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    hashed: by table the 64-bit ids of its rows, in their order: requests have those instead of row numbers
    example_batch: by input its array, of two rows or more: of what shape batches are, and what check() and save() take
        where they get none. Without, they take random ones, and events that may be of any number are a few.

    Raises everything that cannot be expressed together, each with the name of its node.
    """
    read = opened(model)
    trained = Trained(model, read)
    example = None if example_batch is None else trained.arrays(example_batch)
    events = {name for name, axis in (axes or {}).items() if axis.endswith("[]")}
    shapes = shapes_of(read, events) if example is None else {name: array.shape for name, array in example.items()}
    if not shapes:
        refuse("model", "inputs that are read", "none")
    batch = {name: torch.zeros(shape, dtype=getattr(torch, trained.types[name].name))
             for name, shape in shapes.items()}
    graph = Graph(read, batch)
    program = _traced(graph, batch)
    num_rows = len(next(iter(batch.values())))
    names = [output.name for output in read.graph.output] if outputs is None else list(outputs)
    if len(names) != len(read.graph.output):
        refuse("outputs", f"{len(read.graph.output)} names", str(len(names)))
    given = inputs_of(program, (batch,), axes, num_rows)
    fields = lowered(program, given, num_rows, names, rows, hashed, graph.names)
    if example is None:
        example = example_of(list(given.values()), fields.sequences, fields.lookups, shapes)
    return ExportedModel(*fields, trained, example)


def _traced(graph: Graph, batch: Mapping[str, torch.Tensor]) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(graph, (batch,), strict=False).run_decompositions({})
    except Exception as error:
        refuse("model", "ops that torch.export traces", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
