# SPDX-License-Identifier: Apache-2.0
"""Which function takes which op of a PyTorch program."""

from __future__ import annotations

from typing import Any

from ..lowering.cells import Value
from ..lowering.handlers import Registry

handles = Registry()  # of functions of an op's arguments in the order of its schema
HANDLERS, OF_EVENTS, OF_CONSTANTS = handles.handlers, handles.of_events, handles.of_constants

MOVES = frozenset("""view _unsafe_view reshape flatten unflatten squeeze unsqueeze transpose permute t select slice
narrow split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk unbind index_select expand
repeat cat stack clone contiguous alias detach flip roll movedim lift_fresh_copy view_as expand_as
repeat_interleave diagonal unfold swapaxes swapdims""".split())
SAME = frozenset("dropout feature_dropout alpha_dropout _assert_tensor_metadata".split())


def name_of(op: Any) -> str:
    """Of an op of PyTorch without its namespace and its overload."""
    return str(op._schema.name.partition("::")[2])


def looks_up(name: str, args: Any) -> bool:
    """Whether an op that moves elements looks up ids in a constant."""
    return name == "index_select" and not isinstance(args[0], Value) and isinstance(args[2], Value)
