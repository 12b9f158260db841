# SPDX-License-Identifier: Apache-2.0
"""Look-ups of Keras take rows from a table's end for ids that are negative; in graphs there are none."""

from __future__ import annotations

from typing import Any

from ..lowering.cells import Unsupported


class FromTheEnd:
    """Ids that are negative, as rows from a table's end: as look-ups of Keras take them, of which there are none."""


def without_negative_ids(op: Any, args: list[Any]) -> Any:
    """Of ids those that are not."""
    from_the_end = [isinstance(x, FromTheEnd) for x in args]
    if op.type not in ("Select", "SelectV2") or from_the_end != [True, True, False]:
        raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")
    return args[2]
