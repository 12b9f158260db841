# SPDX-License-Identifier: Apache-2.0
"""Models of ONNX from their text."""

import onnx.parser


def model(nodes, inputs="float[N,6] x", weights="", opset=20):
    """Of nodes that make y."""
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) <{weights}> {{ {nodes} }}'
    made = onnx.parser.parse_model(text)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def kinds(exported):
    return exported.graph.to_json()
