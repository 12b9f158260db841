# SPDX-License-Identifier: Apache-2.0
"""Branches on whether any rows of a batch are so: a trace takes them as in a batch of which some rows are, and some not.

That is right where a row's scores do not depend on the other rows, and masks on the batch, which the example is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import refuse
from .exported import evaluating

_ASSERTIONS = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size"}
_ANSWERS = {torch.Tensor.any: True, torch.any: True, torch.Tensor.all: False, torch.all: False}
_SELECTS = {torch.Tensor.masked_select, torch.masked_select}
_VIEWS = {torch.Tensor.view, torch.Tensor.reshape, torch.reshape}
MOST_ROWS = 64  # of an example that are computed one by one
TOLERANCE = 1e-4  # of scores, of which other batches have other sums in FP32


class OfSomeRows(TorchFunctionMode):  # type: ignore[misc]
    """`if mask.any()` is true and `if mask.all()` is not, and x[mask] has several rows, as long as this lasts.

    x.masked_select(mask.view(-1, 1, 1)), of whole rows, is x[mask], too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_taken = False  # whether there is such a branch
        self._answers: list[tuple[torch.Tensor, bool]] = []
        self._masks: list[tuple[torch.Tensor, torch.Tensor]] = []  # [rows, 1, 1], and the mask of rows that it views

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        answer = next((a for made, a in self._answers if made is args[0]), None) if function is torch.Tensor.__bool__ \
            else None
        if answer is not None:
            self.is_taken = True
            return answer
        if function in _SELECTS and not kwargs:
            of_rows = next((rows for made, rows in self._masks if made is args[1] and made.dim() == args[0].dim()), None)
            if of_rows is not None:
                return args[0][of_rows].reshape(-1)
        made = function(*args, **(kwargs or {}))
        if function in _VIEWS and args[0].dtype == torch.bool and args[0].dim() == 1 and made.dim() > 1 and \
                all(size == 1 for size in made.shape[1:]):
            self._masks.append((made, args[0]))
        if function in _ANSWERS and made.dim() == 0:
            self._answers.append((made, _ANSWERS[function]))
        index = args[1] if function is torch.Tensor.__getitem__ else None
        first = index[0] if isinstance(index, tuple) and index else index
        if isinstance(first, torch.Tensor) and first.dtype == torch.bool and isinstance(made.shape[0], torch.SymInt):
            torch._check(made.shape[0] > 1)
            self.is_taken = True
        return made


def check_branches(module: torch.nn.Module, program: torch.export.ExportedProgram, args: Any, kwargs: Any) -> None:
    """That the program of a module has its scores of an example, and that the module has the same of a row of it where all
    rows of a batch are like that."""
    rows = {len(x) for x in _tensors((args, kwargs)) if x.dim() > 0}
    if len(rows) != 1:  # of requests that have offsets
        return
    count = rows.pop()

    def scores(called: Callable[..., Any], of_batch: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        given, named = torch.utils._pytree.tree_map_only(torch.Tensor, of_batch, (args, kwargs))
        return [x for x in _tensors(called(*given, **named)) if x.dim() > 0 and len(x) == len(of_batch(torch.zeros(count)))]

    def check(row: int, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], where: str) -> None:
        for one, other in zip(found, wanted):
            limit = TOLERANCE * max(1.0, float(other.abs().max()))
            if not torch.allclose(one, other, rtol=0, atol=limit, equal_nan=True):
                place = int((one - other).abs().argmax())
                refuse(f"torch.export of {type(module).__name__}", "scores of a row that do not depend on the others of a "
                       "batch, also behind 'if mask.any()' and x[mask]", f"row {row} with {other.flatten()[place]:g}, and "
                       f"with {one.flatten()[place]:g} {where}")

    with torch.no_grad(), evaluating(module):
        wanted = scores(module, lambda x: x)
        traced = program.module()
        leave_out_assertions(traced.graph)  # that x[mask] has several rows
        traced.recompile()
        made = scores(traced, lambda x: x)
        for row in range(min(count, MOST_ROWS)):
            of_row = [x[row] for x in wanted]
            check(row, [x[row] for x in made], of_row, "as it is traced, of a batch of which some rows are so")
            try:
                alone = scores(module, lambda x: x[[row, row]])
            except Exception:  # of a module that has no scores of such a batch
                continue
            check(row, [x[0] for x in alone], of_row, "in a batch of its like")


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def leave_out_assertions(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if getattr(getattr(node.target, "_schema", None), "name", "").partition("::")[2] in _ASSERTIONS:
            graph.erase_node(node)
