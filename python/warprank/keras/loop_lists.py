# SPDX-License-Identifier: Apache-2.0
"""What loops of TensorFlow take and give as lists."""

from __future__ import annotations

from dataclasses import dataclass

from ..lowering.cells import Value


@dataclass
class Events:
    """Of which a loop takes one at each step."""

    value: Value  # [events, batch, ..]


@dataclass
class States:
    """That a loop lists: [events, batch, ..], or [1, batch, ..] of the last alone."""

    value: Value
