# SPDX-License-Identifier: Apache-2.0
"""Which rows of a table ids name that a program has multiplied and shifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .cells import Sources, Unsupported


@dataclass
class RowNumbers:
    """Of a source whose columns are rows of one table: an input's ids, or their `numbers`, times `factors`, plus
    `offsets`."""

    cells: np.ndarray
    factors: np.ndarray
    offsets: np.ndarray
    numbers: list[np.ndarray | None]  # by id what takes its place


@dataclass
class TableRows:
    """Those of a table that ids name: every `step`th of [begin, end), or by id one of those."""

    begin: int
    end: int
    step: int = 1
    numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(range(self.begin, self.end, self.step)) if self.numbers is None else len(self.numbers)

    def row(self, number: int) -> int:
        """Which row of the table an id names."""
        return range(self.begin, self.end, self.step)[number if self.numbers is None else self.numbers[number]]

    def of(self, array: np.ndarray) -> np.ndarray:
        rows = array[self.begin:self.end:self.step]
        return rows if self.numbers is None else rows[self.numbers]


def rows_of(sources: Sources, cell: int, rows: int) -> tuple[int, TableRows | None]:
    """The input's cell, and the rows of a table of so many that its ids name, up to those of the next offset; None: all
    of them."""
    source, column = sources.of(cell)
    if not isinstance(source.data, RowNumbers):
        return cell, None
    found, begin, step = source.data, int(source.data.offsets[column]), int(source.data.factors[column])
    numbers = found.numbers[column]
    behind = found.offsets[found.offsets > begin] if step == 1 and numbers is None else np.zeros(0)
    taken = TableRows(begin, int(behind.min()) if len(behind) else rows, step, numbers)
    if not begin < taken.end <= rows:
        raise Unsupported(f"offsets below {rows}, the rows of the table", str(begin))
    most = len(range(begin, taken.end, step))
    if numbers is not None and not ((numbers >= 0) & (numbers < most)).all():
        raise Unsupported(f"numbers of 0 to {most - 1}, the rows of the table", f"{numbers.min()} to {numbers.max()}")
    return int(found.cells[column]), taken
