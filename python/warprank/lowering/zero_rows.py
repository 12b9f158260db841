# SPDX-License-Identifier: Apache-2.0
"""Masks of padding whose rows are zeros, `embedding.sum(-1) != 0`: what is known of each row before it is looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import source_numbers
from .fields import summed
from .ids import row_of

if TYPE_CHECKING:
    from .program import Program


def compared(p: Program, function: str, sums: Any, number: Any) -> np.ndarray | None:
    """The cells of sums of all columns of look-ups that are compared with 0: look-ups in a table of ones and zeros; None:
    they are others, or of a hashed table, which may get more rows."""
    if function not in ("equal", "not_equal") or isinstance(number, np.ndarray) or number != 0 or \
            not isinstance(sums, np.ndarray):
        return None
    found = []
    for cell in sums.tolist():
        terms = summed(p, cell)
        source = None if terms is None else p.sources.of(int(terms[0]))[0]
        if terms is None or source is None or source.kind != "embed" or len(terms) != source.width or \
                len(np.unique(terms)) != source.width or len(np.unique(source_numbers(terms))) != 1:
            return None
        ids, weight = source.data
        if _may_be_hashed(p, weight):
            return None
        is_zero = p.array(weight).sum(1, keepdims=True) == 0
        found.append(row_of(p, ids, (is_zero == (function == "equal")).astype(np.float32)))
    return np.concatenate(found)


def _may_be_hashed(p: Program, weight: Any) -> bool:
    """Whether a table, or some rows of it, may be one that has ids."""
    path = p.path_of(weight, ".weight")
    return bool(p.hashed) and (path is None or any(name.startswith(path) for name in p.hashed))
