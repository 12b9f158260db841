# SPDX-License-Identifier: Apache-2.0
"""Models of ONNX that cannot be converted: all problems in one message, and nothing is left."""

import os

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx  # noqa: E402
from graphs import model  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import warprank as wr  # noqa: E402
import warprank.onnx  # noqa: E402
from warprank import cli  # noqa: E402

MATRIX = "float[6,2] w = {1, 2, -1, 0.5, 3, -2, 0.25, 1, 1, -1, 2, 0}"


def problems(given, *args, **options):
    """Each as 'what: expected, got'."""
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.onnx.export(given, *args, **options)
    return [f"{p.what}: expected {p.expected}, got {p.got}" for p in raised.value.problems]


def convert(path, out):
    return cli.main(["convert", str(path), "--out", str(out)])


def test_all_ops_that_cannot_be_expressed_are_told_together():
    given = model("a = Compress(x, x) b = Hardmax(x) c = Det(x) y = Relu(x)")
    given.graph.node[1].name = "/head/Hardmax"
    given.graph.node[3].attribute.append(helper.make_attribute("alpha", 2.0))
    assert problems(given) == [
        "node 'Compress of 'a'' (Compress): expected an op that can be expressed, got none that warprank.onnx knows",
        "node '/head/Hardmax' (Hardmax): expected an op that can be expressed, got none that warprank.onnx knows",
        "node 'Det of 'c'' (Det): expected an op that can be expressed, got none that warprank.onnx knows",
        "node 'Relu of 'y'' (Relu): expected attributes that are known, got 'alpha'"]


def test_what_the_language_has_not_is_told_with_its_nodes():
    given = model("s = Transpose(x) z = MatMul(s, x) a = Ceil(x) b = Round(x) y = Add(a, b)")
    given.graph.node[2].name, given.graph.node[3].name = "/head/Ceil", "/head/Round"
    told = problems(given)
    assert [t.partition(": ")[0] for t in told] == ["module 'head/Ceil' (Ceil)", "module 'head/Round' (Round)"]


def loop(nodes, given="n, t", more=""):
    """Whose turns give e."""
    return f"y = Loop<body = b (int64 i, bool c{more}) => (bool d, float[] e) {{ d = Identity(c) {nodes} }}>({given})"


OTHER_LOOP = ("node 'Loop of 'y'' (Loop): expected a loop whose every turn computes the same of rows of its own, got "
              "control flow")
OWN_ROWS = "u = Unsqueeze(i, o) v = Add(u, o1) r = Slice(x, u, v) "
CONTROL_FLOW = [
    (loop("e = Relu(x)"), OTHER_LOOP),
    (loop("e = Add(s, x)", "n, t, x", ", float[] s"), OTHER_LOOP),
    (loop("e = Identity(z)", ", t"), OTHER_LOOP),
    (loop(OWN_ROWS + "k = Cast<to = 1>(i) e = Add(r, k)"), OTHER_LOOP),
    (loop(OWN_ROWS.replace("Add(u, o1)", "Add(u, o2)") + "e = Relu(r)"), OTHER_LOOP),
    (loop("h = Hardmax(x) e = Relu(h)"),
     "node 'Hardmax of 'h'' (Hardmax): expected an op that can be expressed, got none that warprank.onnx knows"),
    ("y = Scan<num_scan_inputs = 1, body = b (float[6] i) => (float[6] e) { e = Relu(i) }>(x)",
     "node 'Scan of 'y'' (Scan): expected a graph without loops, got control flow"),
    ("s = SequenceEmpty() q = SequenceInsert(s, x) y = ConcatFromSequence<axis = 0>(q)",
     "node 'ConcatFromSequence of 'y'' (ConcatFromSequence): expected a sequence of what the turns of a loop make, got "
     "another"),
    ("""m = ReduceMax<keepdims = 0>(x) c = Greater(m, z) y = If<then_branch = t () => (float[] a) { a = Relu(x) },
        else_branch = e () => (float[] b) { b = Neg(x) }>(c)""",
     "node 'If of 'y'' (If): expected a condition that is known without a batch, got control flow by values"),
]


@pytest.mark.parametrize("nodes, told", CONTROL_FLOW)
def test_control_flow(nodes, told):
    assert problems(model(nodes, weights="int64 n = {11}, bool t = {1}, float z = {0}, "
                          "int64[1] o = {0}, int64[1] o1 = {1}, int64[1] o2 = {2}")) == [told]


def test_numbers_that_depend_on_the_batch():
    told = problems(model("i = Cast<to = 7>(x) s = ReduceSum(i, o) y = Reshape(x, s)", "float[2] x",
                          "int64[1] o = {0}"))
    assert told == ["node 'Reshape of 'y'' (Reshape): expected 'shape' that is known without a batch, "
                    "got 's', which is computed of one"]


@pytest.mark.parametrize("opset", [12, 7, 999])
def test_unknown_opsets(opset):
    given = model("y = Relu(x)")
    given.opset_import[0].version = opset
    newest = onnx.defs.onnx_opset_version()
    assert problems(given) == [f"opset: expected 13 to {newest}, which the installed onnx knows, got {opset}"]


def test_custom_domains():
    given = model("a = Relu(x) b = Relu(a) y = Relu(b)")
    for node, domain in zip(given.graph.node, ("com.microsoft", "ai.onnx.ml", "")):
        node.domain = domain
        node.op_type = {"com.microsoft": "FusedGemm", "ai.onnx.ml": "Scaler"}.get(domain, "Relu")
        if domain:
            given.opset_import.append(helper.make_opsetid(domain, 1))
    assert problems(given) == [
        "node 'FusedGemm of 'a'' (com.microsoft.FusedGemm): expected an op of ONNX itself, got one of domain "
        "'com.microsoft'",
        "node 'Scaler of 'b'' (ai.onnx.ml.Scaler): expected an op of ONNX itself, got one of domain 'ai.onnx.ml'"]


def test_functions_of_the_model_are_inlined():
    given = model("y = own.Twice(x)")
    given.graph.node[0].op_type, given.graph.node[0].domain = "Twice", "own"
    body = [helper.make_node("Add", ["a", "a"], ["b"]), helper.make_node("Relu", ["b"], ["c"])]
    given.functions.append(helper.make_function("own", "Twice", ["a"], ["c"], body, [helper.make_opsetid("", 20)]))
    given.opset_import.append(helper.make_opsetid("own", 1))
    assert wr.onnx.export(given).check()["y"].largest < 1e-6


def test_inputs_that_are_no_numbers_or_have_no_rows():
    given = model("y = Add(x, z)", "float[6] x, float[1,6] z, float[N,K] k, float s")
    given.graph.input.append(helper.make_tensor_value_info("city", TensorProto.STRING, ["N"]))
    given.graph.input.append(helper.make_tensor_sequence_value_info("tags", TensorProto.INT64, ["N"]))
    assert problems(given) == [
        "input 'city': expected a tensor of numbers, ids or truth values, got text",
        "input 'tags': expected a tensor of numbers, ids or truth values, got sequence_type"]
    del given.graph.input[4:]
    assert problems(given) == [
        "input 'z': expected any number of rows, by an exporter's dynamic_shapes or dynamic_axes, got one row",
        "input 'k': expected sizes that are known, but for rows and the events of an axis ('user/history[]'), "
        "got shape [N, K]",
        "input 's': expected a number or more for each row, got one number"]
    assert problems(model("y = Relu(x)"), {"x": "row", "z": "row"}) == [
        "axes: 'z': expected an input of the model, got none of that name"]
    assert problems(model("y = Relu(x)"), outputs=["a", "b"]) == ["outputs: expected 1 names, got 2"]


def test_files_that_are_not_whole(tmp_path, capsys):
    path, out = tmp_path / "model.onnx", tmp_path / "model"
    onnx.save(model("y = MatMul(x, w)", weights=MATRIX), path)
    whole = path.read_bytes()
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert convert(path, out) == 1
        assert "model.onnx': expected a whole file of ONNX, got " in capsys.readouterr().err
    path.write_text("no model")
    assert convert(path, out) == 1
    assert convert(tmp_path / "none.onnx", out) == 1
    told = capsys.readouterr().err
    assert "expected a whole file of ONNX, got " in told and "none.onnx': expected a file, got none" in told
    assert os.listdir(tmp_path) == ["model.onnx"]


def save_apart(given, path):
    """With its tensors in a file beside it, which takes them as bytes."""
    for tensor in given.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(given, path, save_as_external_data=True, location="data.bin", size_threshold=0)


def test_missing_external_data(tmp_path, capsys):
    path, out = tmp_path / "model.onnx", tmp_path / "model"
    given = model("a = MatMul(x, w) b = Add(a, v) y = Hardmax(b)", weights=MATRIX + ", float[2] v = {1, 2}")
    save_apart(given, path)
    (tmp_path / "data.bin").write_bytes(b"\0" * 50)
    assert convert(path, out) == 1
    told = capsys.readouterr().err
    assert "initializer 'v': expected its data in file '" in told and "data.bin', " in told
    assert "got 50" in told and "node 'Hardmax of 'y''" in told
    (tmp_path / "data.bin").unlink()
    assert convert(path, out) == 1
    told = capsys.readouterr().err
    assert told.count("no such file") == 2 and "node 'Hardmax of 'y''" in told
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_external_data_that_is_there(tmp_path):
    given = model("y = MatMul(x, w)", weights=MATRIX)
    save_apart(given, tmp_path / "model.onnx")
    exported = wr.onnx.export(tmp_path / "model.onnx")
    assert exported.check()["y"].largest < 1e-5 and exported.weights["w.weight"][1].tolist() == [2, 0.5, -2, 1, -1, 0]


def test_weights_that_are_not_finite():
    given = model("y = MatMul(x, w)", weights=MATRIX)
    array = numpy_helper.to_array(given.graph.initializer[0]).copy()
    array[2, 1] = np.nan
    given.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    assert problems(given) == ["weight 'w', element [2, 1]: expected a finite number, got nan"]
