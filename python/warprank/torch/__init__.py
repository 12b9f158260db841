# SPDX-License-Identifier: Apache-2.0
"""From a PyTorch module to a graph with weights and tables.

    exported = warprank.torch.export(module, (user_id, film_id, context), axes={
        "user_id": "user", "context": "user", "film_id": "user/item"})
    exported.check((user_id, film_id, context))   # how far its scores are from the module's
    exported.save("model")                        # for warprank.load, and for servers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import warprank as wr

from ..errors import Problems, refuse
from ..exported import Difference, Exported
from ..lowering.cells import MOST_ROWS
from ..lowering.inputs import Input, axes_of
from ..rows import RowError, RowType, convert_tables
from ..written import NamedWeights
from . import layers, lookups, ops  # noqa: F401: they register what they handle
from .exported import ExportedModule, arguments, as_arguments, evaluating, leaves
from .jagged import ExportedJagged, Jagged, has_jagged
from .program import Program
from .written import weights_of

__all__ = ["Difference", "Exported", "NamedWeights", "RowError", "export", "weights_of"]


def export(module: torch.nn.Module | torch.export.ExportedProgram, example_batch: Any = None,
           axes: Mapping[str, str] | None = None, *, outputs: Sequence[str] | None = None,
           rows: RowType | Mapping[str, RowType] = "f32", hashed: Mapping[str, Any] = {}) -> Exported:
    """Exports a module, in evaluation, as it computes the example; or a program of torch.export, which has one.

    example_batch: what the module is called with, of two rows or more: a tensor, a tuple of arguments, arguments by
        name, or the dict that is its one argument, whose keys are the inputs' names; also an object that has a tensor
        by each of the names over which it iterates. All inputs have a row for each row of the batch.
    axes: by input the axis that it lives on, with the axes above it: "user", "user/item". What depends on the user
        alone is computed once for each user, though the module has it for each item. Nothing: one axis for all.
        "user/history[]": of an input [batch, events, ..] the events are rows of that axis. Padding is what the module
        masks: ids that it compares with a number, an input of truth values [batch, events], or one of lengths [batch]
        with which it compares arange(events). Ids and offsets of an EmbeddingBag: "user/tags[]" and "user". The keys of
        a KeyedJaggedTensor of torchrec are inputs, all on its axis or each on its own, with an axis of their names for
        their ids.
    outputs: names; those of a dictionary are its keys
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    hashed: by table the 64-bit ids of its rows, in their order: requests have those instead of row numbers

    Raises everything that cannot be expressed together, each with the path of its module.
    """
    jagged = None
    if isinstance(module, torch.nn.Module):
        example_batch = as_arguments(module, example_batch)
    if isinstance(module, torch.export.ExportedProgram):
        program = module.run_decompositions({})
        args, kwargs = module.example_inputs or ((), {})
        example_batch = example_batch if example_batch is not None else dict(kwargs) if kwargs else tuple(args)
        module = module.module()
    elif has_jagged(example_batch):
        jagged = Jagged(module, example_batch, axes)
        with jagged.taking_tensors(module, example_batch):
            program = _trace(module, jagged.example(example_batch))
    else:
        program = _trace(module, example_batch)
    if not leaves(example_batch):
        refuse("example_batch", "tensors of some rows", "none")
    batch = len(leaves(example_batch)[0]) if jagged is None else jagged.rows
    inputs = _inputs(program, example_batch, axes if jagged is None else jagged.axes, batch)
    if jagged is not None:
        inputs = jagged.named(inputs)
    names = _output_names(program, outputs)
    made = Program(program, inputs, batch, hashed)
    graph = made.run(names)
    problems = Problems()
    tables, errors = convert_tables(made.tables, rows, problems)
    problems.raise_if_any()
    read = {p.name for p in wr.compile(graph).parameters}
    weights = {name: array for name, array in made.weights.items() if name in read}
    fields = (graph, weights, tables, errors, names, list(inputs.values()), made.sequences, made.lookups, module,
              example_batch)
    return ExportedModule(*fields) if jagged is None else ExportedJagged.of(jagged, *fields)


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
    if not 2 <= batch <= MOST_ROWS:
        problems.add("example_batch", f"2 to {MOST_ROWS} rows", str(batch))
    problems.raise_if_any()
    return found


def _labels(program: torch.export.ExportedProgram, example_batch: Any) -> dict[str, str]:
    """By input of a program of one dict its keys."""
    args, kwargs = arguments(example_batch)
    if kwargs or len(args) != 1 or not isinstance(args[0], Mapping):
        return {}
    return dict(zip(program.graph_signature.user_inputs, _names_of(args[0])))  # type: ignore[arg-type]


def _names_of(tree: Any) -> list[str]:
    """The keys on the way to each leaf."""
    paths, _ = torch.utils._pytree.tree_flatten_with_path(tree)
    return ["_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) for path, _ in paths]


def _output_names(program: torch.export.ExportedProgram, outputs: Sequence[str] | None) -> list[str]:
    spec = program.call_spec.out_spec
    count = spec.num_leaves
    if outputs is not None:
        if len(outputs) != count:
            refuse("outputs", f"{count} names", str(len(outputs)))
        return list(outputs)
    tree = torch.utils._pytree.tree_unflatten(list(range(count)), spec)
    if not isinstance(tree, dict):
        return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    return _names_of(tree)
