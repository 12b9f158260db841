# SPDX-License-Identifier: Apache-2.0
"""Files of ONNX, read and checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import inliner
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

from ..errors import Problems, refuse
from .handlers import OPS
from .negative_ids import replace_negative_ids

OLDEST = 13
STANDARD = ("", "ai.onnx")
CONTROL_FLOW = frozenset("Scan SequenceMap".split())
OF_SEQUENCES = frozenset("SequenceEmpty SequenceInsert ConcatFromSequence".split())
WITH_GRAPHS = frozenset("If Loop".split())  # which are known when what they depend on is


def opened(model: Any) -> onnx.ModelProto:
    """A model, or that of a file, with its own functions inlined. Raises everything that is wrong with it together."""
    path = None if isinstance(model, onnx.ModelProto) else os.fspath(model)
    problems = Problems()
    read = model if path is None else _read(path)
    folder = "" if path is None else os.path.dirname(os.path.abspath(path))
    _check_data(read, folder, problems)
    _check_opset(read, problems)
    if not len(problems):
        read = _inlined(read)
    for node in read.graph.node:
        check_op(node, problems)
    for given in inputs_of(read):
        kind = given.type.WhichOneof("value")
        if kind != "tensor_type" or given.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            problems.add(f"input '{given.name}'", "a tensor of numbers, ids or truth values",
                         "text" if kind == "tensor_type" else str(kind))
    for sparse in read.graph.sparse_initializer:
        problems.add(f"initializer '{sparse.values.name}'", "a dense tensor", "a sparse one")
    problems.raise_if_any()
    load_external_data_for_model(read, folder)
    _check(read)
    replace_negative_ids(read.graph)
    return read


def inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Those without a value of their own."""
    kept = {t.name for t in model.graph.initializer}
    return [given for given in model.graph.input if given.name not in kept]


def name_of(node: onnx.NodeProto) -> str:
    """As messages call it, and layers whose weights have no name."""
    return node.name or f"{node.op_type} of '{next(iter(node.output), '')}'"


def check_op(node: onnx.NodeProto, problems: Problems) -> None:
    """That it can be computed, wherever it stands."""
    what = f"node '{name_of(node)}' ({'.'.join(filter(None, [node.domain, node.op_type]))})"
    if node.domain not in STANDARD:
        problems.add(what, "an op of ONNX itself", f"one of domain '{node.domain}'")
    elif node.op_type in CONTROL_FLOW:
        problems.add(what, "a graph without loops", "control flow")
    elif node.op_type not in OPS.keys() | WITH_GRAPHS | OF_SEQUENCES:
        problems.add(what, "an op that can be expressed", "none that warprank.onnx knows")
    elif node.op_type in OPS:
        for name in sorted({a.name for a in node.attribute} - OPS[node.op_type].attributes):
            problems.add(what, "attributes that are known", f"'{name}'")


def _read(path: str) -> onnx.ModelProto:
    if not os.path.exists(path):
        refuse(f"model '{path}'", "a file", "none")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # of protobuf, whose classes differ by version
        refuse(f"model '{path}'", "a whole file of ONNX", f"{type(error).__name__}: {str(error).splitlines()[0]}")
    if not model.HasField("graph") or not model.opset_import:
        refuse(f"model '{path}'", "a whole file of ONNX", "one without a graph or without opsets")
    return model


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for attribute in (a for node in graph.node for a in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("g"):
            yield from _tensors(attribute.g)


def _check_data(model: onnx.ModelProto, folder: str, problems: Problems) -> None:
    for tensor in _tensors(model.graph):
        if not uses_external_data(tensor):
            continue
        info = ExternalDataInfo(tensor)
        path = os.path.join(folder, info.location)
        there = os.path.getsize(path) if os.path.isfile(path) else None
        end = (info.offset or 0) + (info.length or 0)
        if there is None or there < end:
            problems.add(f"initializer '{tensor.name}'", f"its data in file '{path}', {end} bytes or more",
                         "no such file" if there is None else f"{there}")


def _check_opset(model: onnx.ModelProto, problems: Problems) -> None:
    newest = onnx.defs.onnx_opset_version()
    versions = [o.version for o in model.opset_import if o.domain in STANDARD]
    if not versions or not OLDEST <= versions[0] <= newest:
        problems.add("opset", f"{OLDEST} to {newest}, which the installed onnx knows",
                     str(versions[0]) if versions else "none of ONNX itself")


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without functions of the model's own, and with standard ops that are defined by others as those."""
    kept = [("", name) for name in OPS]
    try:
        return inliner.inline_selected_functions(model, kept, exclude=True, inline_schema_functions=True)
    except Exception as error:
        refuse("model", "functions that can be inlined", f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _check(model: onnx.ModelProto) -> None:
    for output in model.graph.output:  # whose shape the checker wants, though others do without
        output.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # ValidationError, or of a model beyond 2 GB
        if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
            refuse("model", "a valid one", str(error).strip().splitlines()[0])
