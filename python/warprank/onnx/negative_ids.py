# SPDX-License-Identifier: Apache-2.0
"""Look-ups of TensorFlow take rows from a table's end for ids that are negative; in requests there are none."""

from __future__ import annotations

import onnx
from onnx import helper, numpy_helper


def replace_negative_ids(graph: onnx.GraphProto) -> None:
    """Makes ids of where(ids < 0, ids + rows, ids), which tf2onnx writes as a sum of products, too."""
    made = {output: node for node in graph.node for output in node.output}
    constants = {t.name: t for t in graph.initializer if not any(n > 1 for n in t.dims)}

    def inputs(name: str, op: str) -> list[str]:
        node = made.get(name)
        return list(node.input) if node is not None and node.op_type == op else []

    def number(name: str) -> float | None:
        if name not in constants:
            return None
        array = numpy_helper.to_array(constants[name])
        return float(array.flat[0]) if array.dtype.kind in "if" and array.size == 1 else None

    def uncast(name: str) -> str:
        return next(iter(inputs(name, "Cast")), name)

    def negative(name: str) -> str | None:
        """The ids of ids < 0."""
        x = inputs(uncast(name), "Less")
        return uncast(x[0]) if x and number(x[1]) == 0 else None

    def from_the_end(name: str, ids: str | None) -> bool:
        x = inputs(name, "Add")
        return bool(x) and ids == x[0] and (number(x[1]) or 0) > 0

    def of_sum(a: list[str], b: list[str]) -> str | None:
        """The ids of (ids + rows) * (ids < 0) + ids * not(ids < 0)."""
        for c, end in (a, a[::-1]):
            for ids, rest in (b, b[::-1]):
                below = inputs(uncast(rest), "Not")
                if below and uncast(c) == below[0] and negative(c) == ids and from_the_end(end, ids):
                    return ids
        return None

    for node in graph.node:
        ids = None
        if node.op_type == "Where" and negative(node.input[0]) == node.input[2] and \
                from_the_end(node.input[1], node.input[2]):
            ids = node.input[2]
        if node.op_type == "Add":
            a, b = (inputs(name, "Mul") for name in node.input)
            ids = of_sum(a, b) or of_sum(b, a) if a and b else None
        if ids is not None:
            node.CopyFrom(helper.make_node("Identity", [ids], list(node.output), node.name))
