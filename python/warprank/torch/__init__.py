# SPDX-License-Identifier: Apache-2.0
"""From a PyTorch module to a graph with weights and tables.

    exported = warprank.torch.export(module, (user_id, film_id, context), axes={
        "user_id": "user", "context": "user", "film_id": "user/item"})
    exported.check((user_id, film_id, context))   # how far its scores are from the module's
    exported.save("model")                        # for warprank.load, and for servers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from ..errors import refuse
from ..exported import Difference, Exported
from ..rows import RowError, RowType
from ..written import NamedWeights
from .branches import OfSomeRows, check_branches
from .exported import ExportedModule, arguments, as_arguments, evaluating, leaves
from .gru_ops import CELLS
from .jagged import ExportedJagged, Jagged, has_jagged
from .packed import padded_sequences
from .packed_loops import Loop, as_ops, loops_in
from .traced import inputs_of, lowered, output_names
from .written import weights_of

__all__ = ["Difference", "Exported", "NamedWeights", "RowError", "export", "weights_of"]


def export(module: torch.nn.Module | torch.export.ExportedProgram, example_batch: Any = None,
           axes: Mapping[str, str] | None = None, *, outputs: Sequence[str | None] | None = None,
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
    outputs: names, None for one that is no score, as a loss; those of a dictionary are its keys, of which these may be
        some
    rows: the type of the tables' rows, "f32", "f16", "bf16" or "i8", also by table
    hashed: by table the 64-bit ids of its rows, in their order: requests have those instead of row numbers

    Raises everything that cannot be expressed together, each with the path of its module.
    """
    jagged = None
    if isinstance(module, torch.nn.Module):
        example_batch = as_arguments(module, example_batch)
    if isinstance(module, torch.export.ExportedProgram):
        program = module.run_decompositions(dict(CELLS))
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
    inputs = inputs_of(program, example_batch, axes if jagged is None else jagged.axes, batch)
    if jagged is not None:
        inputs = jagged.named(inputs)
    names = output_names(program, outputs)
    fields = (*lowered(program, inputs, batch, names, rows, hashed), module, example_batch)
    exported = ExportedModule(*fields) if jagged is None else ExportedJagged.of(jagged, *fields)
    exported._kept = [i for i, name in enumerate(names) if name is not None]
    return exported


def _trace(module: torch.nn.Module, example_batch: Any) -> torch.export.ExportedProgram:
    args, kwargs = arguments(example_batch)
    loops: Mapping[torch.nn.Module, Loop] = {}
    try:
        program, branches = _traced(module, args, kwargs, loops)
    except Exception as error:  # whatever the tracer raises
        loops, others = loops_in(module, args, kwargs)
        if not loops:
            _refuse_trace(module, error, others)
        try:
            program, branches = _traced(module, args, kwargs, loops)
        except Exception as second:
            _refuse_trace(module, second, others)
    if branches.is_taken or loops:
        check_branches(module, program, args, kwargs)
    return program


def _traced(module: torch.nn.Module, args: Any, kwargs: Any,
            loops: Mapping[torch.nn.Module, Loop]) -> tuple[torch.export.ExportedProgram, OfSomeRows]:
    with evaluating(module), padded_sequences(module), as_ops(loops), OfSomeRows() as branches:
        return torch.export.export(module, args, kwargs).run_decompositions(dict(CELLS)), branches


def _refuse_trace(module: torch.nn.Module, error: Exception, others: Sequence[str]) -> NoReturn:
    text = (str(error).strip().splitlines() or [""])[0]
    more = "; packed sequences are taken by nn.GRU and pad_packed_sequence" if "Packed" in text or others else ""
    more += "".join(f", and by GRUs with shares of attention (AUGRU, AGRU), which {x} is not" for x in others[:1])
    refuse(f"torch.export of {type(module).__name__}", f"a module whose control flow does not depend on values{more}",
           f"{type(error).__name__}: {text}")
