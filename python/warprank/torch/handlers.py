# SPDX-License-Identifier: Apache-2.0
"""Which function takes which op of a PyTorch program, and how an op is computed for each event of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .cells import Unsupported, Value

if TYPE_CHECKING:
    from .program import Program

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}  # of an op's arguments in the order of its schema
OF_EVENTS: set[str] = set()  # ops that compute over events, or know of them
OF_CONSTANTS: set[str] = set()  # ops whose constants may be others for each event

MOVES = frozenset("""view _unsafe_view reshape flatten unflatten squeeze unsqueeze transpose permute t select slice
narrow split split_with_sizes chunk unbind index index_select expand repeat cat stack clone contiguous alias detach flip
roll movedim lift_fresh_copy view_as expand_as repeat_interleave""".split())
SAME = frozenset("dropout feature_dropout alpha_dropout _assert_tensor_metadata".split())


def handles(*names: str, events: bool = False, constants: bool = False) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        if events:
            OF_EVENTS.update(names)
        if constants:
            OF_CONSTANTS.update(names)
        return handler
    return register


def numbers(x: Any) -> Value:
    """A batch of numbers, for ops that compute."""
    if not isinstance(x, Value):
        raise Unsupported("a batch of numbers", type(x).__name__)
    if x.is_ids:
        raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")
    return x


def row_dimension(x: Value, dim: int) -> int:
    """A dimension that is not the batch's, from the left."""
    dim = dim + x.cells.ndim if dim < 0 else dim
    if dim == x.batch + x.cells.ndim:
        raise Unsupported("each row by itself", "an op over the batch")
    return dim


def constant_rows(p: Program, x: torch.Tensor, like: Value) -> np.ndarray:
    """A constant that is the same for every row, without the batch."""
    array = x.detach().to(torch.float32).numpy()
    if array.ndim >= -like.batch and array.shape[like.batch] == p.batch > 1:
        one = array.take([0], like.batch)
        if not (array == one).all():
            raise Unsupported("a constant that is the same for every row", f"one of shape {list(array.shape)}")
        array = one
    return array


def by_event(p: Program, name: str, args: Any, kwargs: Any) -> Any:
    """Calls a handler for one event, whose results serve all."""
    from .lookups import of_positions
    values = [x for x in (*args, *kwargs.values()) if isinstance(x, Value)]
    found = {}  # of the dimensions, from the right, along which events lie: how many
    for x in values:
        dimension, _ = p.sources.split_events(x.cells)
        if dimension is not None:
            found[dimension] = x.cells.shape[dimension]
    if not found:
        return HANDLERS[name](p, *args, **kwargs)
    if len(found) > 1:
        raise Unsupported("events along one dimension", "events with events")
    (dimension, length), = found.items()

    def one(x: Any) -> Any:
        if isinstance(x, Value):
            split, cells = p.sources.split_events(x.cells)
            if split is None and x.cells.ndim >= -dimension and x.cells.shape[dimension] == length:
                cells = x.cells.take([0], dimension)
                if not (x.cells == cells).all():
                    raise Unsupported("numbers that are the same for each event", "others")
            # Events may be merged with the batch: as many as there were are left behind.
            merged = split == x.batch or (split is None and dimension == x.batch)
            return Value(cells, x.is_ids, x.batch, 1 if merged else x.inner)
        if isinstance(x, torch.Tensor) and name in OF_CONSTANTS and x.dim() >= -dimension and \
                x.shape[dimension] == length > 1:
            first = x.narrow(dimension, 0, 1)
            return first if bool((x == first).all()) else of_positions(p, x, dimension, values)
        return x

    def all_events(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(all_events(each) for each in x)
        if not isinstance(x, Value):
            return x
        place = dimension - 1 if name == "embedding" else dimension
        return Value(p.sources.with_events(x.cells, place, length), x.is_ids, x.batch, inner)

    inner = next(x.inner for x in values if p.sources.split_events(x.cells)[0] is not None)
    return all_events(HANDLERS[name](p, *map(one, args), **{k: one(v) for k, v in kwargs.items()}))
