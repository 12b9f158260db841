# SPDX-License-Identifier: Apache-2.0
"""Which function takes which op of a TensorFlow graph."""

from __future__ import annotations

from ..lowering.handlers import Registry

handles = Registry()  # of functions of the program, the op, and what the op's inputs are
HANDLERS, OF_EVENTS, OF_CONSTANTS = handles.handlers, handles.of_events, handles.of_constants

MOVES = frozenset("""Reshape ConcatV2 Transpose StridedSlice Slice Pack Unpack Split SplitV ExpandDims Squeeze Tile
BroadcastTo ReverseV2 Roll GatherNd""".split())
SAME = frozenset("""Identity IdentityN StopGradient PreventGradient Snapshot EnsureShape CheckNumerics
PlaceholderWithDefault""".split())
CALLS = frozenset("PartitionedCall StatefulPartitionedCall".split())
SIZES = frozenset("Shape Rank Size ZerosLike OnesLike".split())
