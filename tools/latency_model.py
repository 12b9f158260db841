# SPDX-License-Identifier: Apache-2.0
"""How long a launch takes that has little to do, from what the executor of kernels counts of its busiest warp:

    us = begin + TRIP * rounds of loads that wait for one another + operation * operations of the vocabulary

tests/counts.json has the counts, so whoever makes a kernel longer sees it there, and in docs/PERFORMANCE.md what it
costs. TRIP was measured; the other two constants are fitted to prototypes of the kernels that were measured on a card
(the program "prototypes" of a record), to every other one in the order of their times; the rest says how far off it
is."""

import policies

PROTOTYPES = "prototypes"
TRIP = 0.145  # us of a load from an H100's second-level cache, by a chain of them
OPERATIONS, ROUNDS = "operations", "rounds of loads"

# What was measured, by the first words of its name, beside the row of tests/counts.json that has the same work for a
# warp. A kernel may have been counted with fewer blocks than were measured, where those that run side by side do alike.
COUNTED = {
    "fm/fields:24+36/dim:16/": ("LongestWarps.OfKernelsOfRows", ["fm", "24 + 36 fields of 16"]),
    "fm/fields:24+36/dim:64/": ("LongestWarps.OfKernelsOfRows", ["fm", "24 + 36 fields of 64"]),
    "dot/fields:13+14/dim:16/": ("LongestWarps.OfKernelsOfRows", ["dot", "13 + 14 fields of 16"]),
    "dot/fields:13+14/dim:128/": ("LongestWarps.OfKernelsOfRows", ["dot", "13 + 14 fields of 128"]),
    "row_programs/": ("LongestWarps.OfKernelsOfRows", ["row_programs", "sigmoid(a b + c), 64 columns"]),
    "attention/heads:1/dim:64/events:200/": ("AttentionCounts.OfTheLongestWarp", ["200", "1 x 64"]),
    "attention/heads:2/dim:32/events:200/": ("AttentionCounts.OfTheLongestWarp", ["200", "2 x 32"]),
    "attention/heads:1/dim:64/events:1000/": ("AttentionCounts.OfTheLongestWarp", ["1000", "1 x 64"]),
    "din_attention/dim:64/events:100/": ("DinCounts.OfTheLongestWarp", ["100", "64"]),
    "din_attention/dim:64/events:1000/": ("DinCounts.OfTheLongestWarp", ["1000", "64"]),
    "embedding_bag/rows of 64 bytes, one id/": ("EmbeddingBagCounts.OfTheLongestWarp", ["F16", "one"]),
    "linear/in:256/": ("LinearCounts.OfTheLongestWarp", ["256-64", "16"]),
    "linear/in:600/": ("LinearCounts.OfTheLongestWarp", ["600-64", "16"]),
    "linear/in:1024/": ("LinearCounts.OfTheLongestWarp", ["1024-64", "16"]),
}


def counted_rows(counts):
    """{test: [{column: text}]} of all tables of busiest warps whose rounds of loads are known."""
    found = {}
    for tests in counts["tests"].values():
        for test, (head, *rows) in tests.items():
            if OPERATIONS in head and ROUNDS in head:
                rows = [dict(zip(head, row)) for row in rows]
                found.setdefault(test, []).extend(row for row in rows if row[ROUNDS].isdigit())
    return found


def row_of(rows, test, first_cells):
    """The row that begins so."""
    for row in rows.get(test, []):
        if list(row.values())[:len(first_cells)] == first_cells:
            return row
    raise ValueError(f"tests/counts.json: expected a row {first_cells} of {test}, got none")


def trips(row):
    return TRIP * int(row[ROUNDS])


class LatencyModel:
    def __init__(self, measurements, counts):
        """`measurements` of the program "prototypes"."""
        rows = counted_rows(counts)
        self.cases = []  # (name, row, microseconds), by time
        for m in sorted(measurements, key=lambda m: m["min_us"]):
            for begin, (test, first_cells) in COUNTED.items():
                if m["name"].startswith(begin):
                    self.cases.append((m["name"], row_of(rows, test, first_cells), m["min_us"]))
        fitted = self.cases[::2]
        if len(self.cases) < 6:
            raise ValueError(f"{PROTOTYPES}: expected 6 measurements or more that were counted, got {len(self.cases)}")
        self.begin, self.operation = policies.least_squares(
            [[1, int(row[OPERATIONS])] for _, row, _ in fitted], [us - trips(row) for _, row, us in fitted],
            [1 / us for *_, us in fitted])

    def predicted(self, row):
        return self.begin + trips(row) + self.operation * int(row[OPERATIONS])

    def errors(self):
        """Of the cases that were not fitted, relative."""
        return [abs(self.predicted(row) / us - 1) for _, row, us in self.cases[1::2]]


def cells_of(row):
    """What a row of counts is of: all before its operations."""
    cells = []
    for column, text in row.items():
        if column == OPERATIONS:
            return cells
        cells.append(f"{column} {text}" if text[0].isdigit() else text)
    return cells
