# SPDX-License-Identifier: Apache-2.0
"""From a program of torch.export to what an export has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import warprank as wr

from .. import _core
from ..errors import Problems, refuse
from ..lowering import cells
from ..lowering.inputs import Input, axes_of
from ..rows import RowError, RowType, convert_tables
from . import layers, lookups, ops, picked, recurrent  # noqa: F401: they register what they handle
from .branches import leave_out_assertions
from .exported import arguments, names_of
from .program import Program
from .unrolled import join_loops


class Lowered(NamedTuple):
    """What an Exported begins with."""

    graph: _core.Graph
    weights: dict[str, np.ndarray]
    tables: dict[str, np.ndarray]
    row_errors: dict[str, RowError]
    outputs: list[str]
    inputs: list[Input]
    sequences: dict[str, cells.Sequence]
    lookups: dict[str, dict[str, int]]


def lowered(program: torch.export.ExportedProgram, inputs: Mapping[str, Input], batch: int, outputs: Sequence[str | None],
            rows: RowType | Mapping[str, RowType], hashed: Mapping[str, Any],
            names: Mapping[str, str] = {}) -> Lowered:
    """A program without training ops, of inputs by placeholder, whose example has `batch` rows. names: see Program"""
    leave_out(program.graph, outputs)
    join_loops(program, inputs)
    made = Program(program, inputs, batch, hashed, names)
    kept = [name for name in outputs if name is not None]
    graph = made.run(kept)
    problems = Problems()
    tables, errors = convert_tables(made.tables, rows, problems)
    problems.raise_if_any()
    read = {p.name for p in wr.compile(graph).parameters}
    weights = {name: array for name, array in made.weights.items() if name in read}
    return Lowered(graph, weights, tables, errors, kept, list(inputs.values()), made.sequences, made.lookups)


def leave_out(graph: torch.fx.Graph, outputs: Sequence[str | None]) -> None:
    """Outputs that have no name, what they are made of, and assertions."""
    last = graph.output_node()
    last.args = ([n for n, name in zip(last.args[0], outputs) if name is not None],)  # type: ignore[arg-type]
    leave_out_assertions(graph)
    graph.eliminate_dead_code()


def inputs_of(program: torch.export.ExportedProgram, example_batch: Any, axes: Mapping[str, str] | None,
              batch: int) -> dict[str, Input]:
    problems = Problems()
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    given = {name: nodes[name].meta.get("val") for name in program.graph_signature.user_inputs
             if isinstance(name, str) and name in nodes}
    given = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    labels = _labels(program, example_batch)
    placeholders = {labels.get(name, name): name for name in given}
    found: dict[str, Input] = {}
    for name, (axis, is_events) in axes_of(list(placeholders), axes, problems).items():
        value = given[placeholders[name]]
        is_flat = is_events and value.dim() == 1 and value.shape[0] != batch
        # An EmbeddingBag's offsets may have the end of the last bag, too.
        may_be_offsets = not is_events and value.dtype == torch.int64 and list(value.shape) == [batch + 1]
        if not is_flat and not may_be_offsets and (value.dim() == 0 or value.shape[0] != batch):
            problems.add(f"input '{name}'", f"{batch} rows, as the first input has", f"shape {list(value.shape)}")
        kind: Any = "numbers" if value.dtype.is_floating_point else "mask" if value.dtype == torch.bool else "ids"
        shape = () if is_flat else tuple(value.shape[1:])
        found[placeholders[name]] = Input(name, axis, shape, kind, is_events, is_flat)
    if not 2 <= batch <= cells.MOST_ROWS:
        problems.add("example_batch", f"2 to {cells.MOST_ROWS} rows", str(batch))
    problems.raise_if_any()
    return found


def _labels(program: torch.export.ExportedProgram, example_batch: Any) -> dict[str, str]:
    """By input of a program of one dict its keys."""
    args, kwargs = arguments(example_batch)
    if kwargs or len(args) != 1 or not isinstance(args[0], Mapping):
        return {}
    return dict(zip(program.graph_signature.user_inputs, names_of(args[0])))  # type: ignore[arg-type]


def output_names(program: torch.export.ExportedProgram, outputs: Sequence[str | None] | None) -> list[str | None]:
    """By output its name; None: it is left out."""
    spec = program.call_spec.out_spec
    count = spec.num_leaves
    tree = torch.utils._pytree.tree_unflatten(list(range(count)), spec)
    keys = names_of(tree) if isinstance(tree, dict) else None
    if outputs is not None:
        if keys is not None and None not in outputs and len(outputs) < count and set(outputs) <= set(keys):
            return [key if key in outputs else None for key in keys]
        if len(outputs) != count or not any(outputs):
            refuse("outputs", f"{count} names" + (f", or some of {', '.join(keys)}" if keys else ", None for one that is "
                                                  "no score"), f"{len(outputs)}: {', '.join(map(str, outputs))}")
        return list(outputs)
    return [*(keys or (["output"] if count == 1 else [f"output_{i}" for i in range(count)]))]
