# SPDX-License-Identifier: Apache-2.0
"""What tensors of a graph are of which columns are known, while ids are made of those; and which functions take ops of
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .tracing import Variable

PLACE_BITS = 32  # of a cell
PLACES = (1 << PLACE_BITS) - 1
EXPECTED = ("hash buckets, ids of a table, crosses or intervals of columns; or a model that takes ids, and a file of "
            "transforms (transforms_of)")


@dataclass(eq=False)
class Cells:
    """A tensor of what is made of columns: for each element the number of a map, and the place of the value."""

    array: np.ndarray


@dataclass(eq=False)
class Known:
    """A constant that a batch's shape says."""

    array: Any


@dataclass(eq=False)
class AtLeast:
    """A number that depends on the batch; None: of which nothing is known."""

    least: int | None = None


def with_least(op: Any, args: list[Any]) -> Any:
    """What an op makes of numbers that depend on the batch: bincount(ids, minlength=n, maxlength=n) has n columns,
    whatever the ids are."""
    constants = [int(x) for x in args if not isinstance(x, AtLeast)]
    least = [x.least for x in args if isinstance(x, AtLeast) and x.least is not None]
    if op.type == "Maximum":
        return AtLeast(max(constants + least, default=None))
    if op.type == "Minimum" and constants and least and constants[0] <= least[0]:
        return Known(np.array(constants[0], op.outputs[0].dtype.as_numpy_dtype))
    return AtLeast()


@dataclass(eq=False)
class Rest:
    """What is no map; why, where its op is the first of which it is known."""

    why: tuple[str, str] | None = None


@dataclass(eq=False)
class Some:
    """Those elements of an array, along its first dimension, for which maps are true: how many, a batch says."""

    array: np.ndarray
    kept: np.ndarray  # cells
    is_cells: bool
    within: np.ndarray | None = None  # of places among elements of which there are some already, for which

    def like(self, array: np.ndarray) -> Some:
        return Some(array, self.kept, True)


@dataclass(eq=False)
class SizeOf:
    """The shape of some elements."""


@dataclass(eq=False)
class Filled:
    """Of a sparse tensor in which rows without a value got one: its indices, their rows, its values, or whether a row
    had none."""

    values: Some
    rows: int
    part: str


@dataclass(eq=False)
class Unique:
    """Of such values each once, or a table's rows for these, or for each value which of them it is."""

    values: Some
    table: Any = None
    is_which: bool = False


@dataclass(eq=False)
class LookedUp:
    """The rows of a table that the ids of each row have, pooled; of -1 none. Until it is known that rows without an id
    have zeros, `values` are those ids."""

    table: Any
    ids: np.ndarray  # cells [batch, ids]
    pooling: str
    values: Some | None = None

    @property
    def shape(self) -> tuple[int, int]:
        table = self.table.array if isinstance(self.table, Variable) else self.table
        return len(self.ids), table.shape[1]


@dataclass(eq=False)
class Examples:
    """tf.Examples, whose features are the columns."""


SPARSE = Some, SizeOf, Filled, Unique, LookedUp, Examples
OF_BATCHES = Cells, Known, AtLeast, Rest, *SPARSE


def places_of(shape: tuple[int, ...]) -> np.ndarray:
    """The indices of all elements, [elements, dimensions]."""
    return np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), 1)


Handler = Callable[..., Any]  # of the walk, the op, and what its inputs are
COLUMN_OPS: dict[str, Handler] = {}
SPARSE_OPS: dict[str, Handler] = {}  # where one of the inputs is of SPARSE


def handles(*names: str, of: dict[str, Handler] = COLUMN_OPS) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        of.update(dict.fromkeys(names, handler))
        return handler
    return register
