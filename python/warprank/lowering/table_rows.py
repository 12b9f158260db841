# SPDX-License-Identifier: Apache-2.0
"""Which rows of a table ids name that a program has multiplied and shifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .cells import Sources, Unsupported


@dataclass
class RowNumbers:
    """Of a source whose columns are rows of one table: an input's ids times `factors`, plus `offsets`."""

    cells: np.ndarray
    factors: np.ndarray
    offsets: np.ndarray


@dataclass
class TableRows:
    """Those of a table that ids name: every `step`th of [begin, end)."""

    begin: int
    end: int
    step: int = 1

    def __len__(self) -> int:
        return len(range(self.begin, self.end, self.step))


def rows_of(sources: Sources, cell: int, rows: int) -> tuple[int, TableRows | None]:
    """The input's cell, and the rows of a table of so many that its ids name, up to those of the next offset; None: all
    of them."""
    source, column = sources.of(cell)
    if not isinstance(source.data, RowNumbers):
        return cell, None
    found, begin, step = source.data, int(source.data.offsets[column]), int(source.data.factors[column])
    behind = found.offsets[found.offsets > begin] if step == 1 else np.zeros(0)
    taken = TableRows(begin, int(behind.min()) if len(behind) else rows, step)
    if not begin < taken.end <= rows:
        raise Unsupported(f"offsets below {rows}, the rows of the table", str(begin))
    return int(found.cells[column]), taken
