# SPDX-License-Identifier: Apache-2.0
"""From a PyTorch module to a graph with weights and tables.

    exported = warprank.torch.export(module, (user_id, film_id, context), axes={
        "user_id": "user", "context": "user", "film_id": "user/item"})
    exported.check((user_id, film_id, context))   # how far its scores are from the module's
    exported.save("model")                        # for warprank.load, and for servers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch

import warprank as wr

from ..errors import Problems, refuse
from .cells import MOST_ROWS
from .exported import Difference, Exported, arguments, evaluating, leaves
from .program import Input, Program
from .rows import RowError, RowType, convert_rows

__all__ = ["Difference", "Exported", "RowError", "export"]


def export(module: torch.nn.Module | torch.export.ExportedProgram, example_batch: Any = None,
           axes: Mapping[str, str] | None = None, *, outputs: Sequence[str] | None = None,
           rows: RowType | Mapping[str, RowType] = "f32", hashed: Mapping[str, Any] = {}) -> Exported:
    """Exports a module, in evaluation, as it computes the example; or a program of torch.export, which has one.

    example_batch: what the module is called with, of two rows or more: a tensor, a tuple of arguments, or arguments by
        name. All inputs have a row for each row of the batch.
    axes: by input the axis that it lives on, with the axes above it: "user", "user/item". What depends on the user
        alone is computed once for each user, though the module has it for each item. Nothing: one axis for all.
        "user/history[]": of an input [batch, events, ..] the events are rows of that axis. Padding is what the module
        masks: ids that it compares with a number, an input of truth values [batch, events], or one of lengths [batch]
        with which it compares arange(events). Ids and offsets of an EmbeddingBag: "user/tags[]" and "user".
    outputs: names; those of a dictionary are its keys
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    hashed: by table the 64-bit ids of its rows, in their order: requests have those instead of row numbers

    Raises everything that cannot be expressed together, each with the path of its module.
    """
    if isinstance(module, torch.export.ExportedProgram):
        program = module.run_decompositions({})
        args, kwargs = module.example_inputs or ((), {})
        example_batch = example_batch if example_batch is not None else dict(kwargs) if kwargs else tuple(args)
        module = module.module()
    else:
        program = _trace(module, example_batch)
    if not leaves(example_batch):
        refuse("example_batch", "tensors of some rows", "none")
    batch = len(leaves(example_batch)[0])
    inputs = _inputs(program, example_batch, axes, batch)
    names = _output_names(program, outputs)
    keys = {name: np.asarray(ids, np.int64) for name, ids in hashed.items()}
    made = Program(program, inputs, batch, keys)
    graph = made.run(names)
    _check_hashed(made, graph, keys)
    tables, errors = _tables(made.tables, rows)
    read = {p.name for p in wr.compile(graph).parameters}
    weights = {name: array for name, array in made.weights.items() if name in read}
    return Exported(graph, weights, tables, errors, names, list(inputs.values()), made.sequences,
                    made.hashed_inputs, module, example_batch)


def _trace(module: torch.nn.Module, example_batch: Any) -> torch.export.ExportedProgram:
    args, kwargs = arguments(example_batch)
    kind = type(module).__name__
    try:
        with evaluating(module):
            return torch.export.export(module, args, kwargs).run_decompositions({})
    except Exception as error:
        text = str(error).strip().splitlines()
        refuse(f"torch.export of {kind}", "a module whose control flow does not depend on values",
               f"{type(error).__name__}: {text[0] if text else ''}")


def _inputs(program: torch.export.ExportedProgram, example_batch: Any, axes: Mapping[str, str] | None,
            batch: int) -> dict[str, Input]:
    problems = Problems()
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[str, Input] = {}
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if isinstance(name, str) and name in nodes else None
        if not isinstance(value, torch.Tensor):
            continue
        axis = "row" if axes is None else axes.get(name, "")
        if not axis:
            problems.add(f"axes: input '{name}'", "its axis", "none")
        is_events = axis.endswith("[]")
        axis = axis.removesuffix("[]")
        if is_events and "/" not in axis:
            problems.add(f"axes: input '{name}'", "an axis of events that is nested, 'user/history[]'", f"'{axis}[]'")
        is_flat = is_events and value.dim() == 1 and value.shape[0] != batch
        # An EmbeddingBag's offsets may have the end of the last bag, too.
        may_be_offsets = not is_events and value.dtype == torch.int64 and list(value.shape) == [batch + 1]
        if not is_flat and not may_be_offsets and (value.dim() == 0 or value.shape[0] != batch):
            problems.add(f"input '{name}'", f"{batch} rows, as the first input has", f"shape {list(value.shape)}")
        found[name] = Input(name, axis, () if is_flat else tuple(value.shape[1:]), value.dtype, is_events, is_flat)
    for name in axes or {}:
        if name not in found:
            near = get_close_matches(name, found, 1)
            problems.add(f"axes: '{name}'", "an input of the module",
                         "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))
    if not 2 <= batch <= MOST_ROWS:
        problems.add("example_batch", f"2 to {MOST_ROWS} rows", str(batch))
    problems.raise_if_any()
    return found


def _output_names(program: torch.export.ExportedProgram, outputs: Sequence[str] | None) -> list[str]:
    spec = program.call_spec.out_spec
    count = spec.num_leaves
    if outputs is not None:
        if len(outputs) != count:
            refuse("outputs", f"{count} names", str(len(outputs)))
        return list(outputs)
    tree = torch.utils._pytree.tree_unflatten(list(range(count)), spec)
    if isinstance(tree, dict) and sorted(tree.values()) == list(range(count)):
        return sorted(tree, key=lambda name: int(tree[name]))
    return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]


def _check_hashed(made: Program, graph: wr.Graph, keys: Mapping[str, np.ndarray]) -> None:
    problems = Problems()
    hashed = {t.name for t in wr.compile(graph).tables if t.hashed}
    for name, ids in keys.items():
        if name not in hashed:
            problems.add(f"hashed: '{name}'", "a table of the module, " + ", ".join(
                t.name for t in wr.compile(graph).tables), "none of that name")
        values, counts = np.unique(ids, return_counts=True)
        if ids.ndim != 1 or (counts > 1).any():
            problems.add(f"hashed: '{name}'", "a list of ids, each once",
                         f"shape {list(ids.shape)}" if ids.ndim != 1 else f"{values[counts > 1][0]} twice")
    for name, tables in made.hashed_inputs.items():
        if len(tables) > 1:
            problems.add(f"hashed: ids '{name}'", "look-ups with the same ids", "tables " + ", ".join(
                str(t) for t in tables))
    problems.raise_if_any()


def _tables(tables: Mapping[str, np.ndarray],
            rows: RowType | Mapping[str, RowType]) -> tuple[dict[str, np.ndarray], dict[str, RowError]]:
    problems = Problems()
    if not isinstance(rows, str):
        for name in rows:
            if name not in tables:
                problems.add(f"rows: '{name}'", "a table of the module, " + ", ".join(tables), "none of that name")
    tensors: dict[str, np.ndarray] = {}
    errors: dict[str, RowError] = {}
    for name, array in tables.items():
        type = rows if isinstance(rows, str) else rows.get(name, "f32")
        if type not in ("f32", "f16", "bf16", "i8"):
            problems.add(f"rows of table '{name}'", "one of f32, f16, bf16, i8", repr(type))
            continue
        made, errors[name] = convert_rows(name, array, type)
        if not np.isfinite(errors[name].largest):
            problems.add(f"rows of table '{name}'", f"values that {type} can hold", f"{np.abs(array).max()}")
        tensors |= made
    problems.raise_if_any()
    return tensors, errors
