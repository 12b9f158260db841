# SPDX-License-Identifier: Apache-2.0
"""Ops of ONNX, each in a small model: scores as onnxruntime's."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from graphs import kinds, model  # noqa: E402

import warprank as wr  # noqa: E402
import warprank.onnx  # noqa: E402

W = "float[6] w = {0.5, -1.5, 2, 0.25, -0.75, 1}"
FOUR = "float[4] w = {1, -2, 0.5, 3}"
MATRIX = "float[6,2] w = {1, 2, -1, 0.5, 3, -2, 0.25, 1, 1, -1, 2, 0}"
TURNED = "float[2,6] w = {1, 2, -1, 0.5, 3, -2, 0.25, 1, 1, -1, 2, 0}"
FIELDS = "float[N,2,3] x"


def exported(nodes, inputs="float[N,6] x", weights="", opset=20, axes=None):
    made = wr.onnx.export(model(nodes, inputs, weights, opset), axes)
    for difference in made.check().values():
        assert difference.largest < 1e-5
    return made


@pytest.mark.parametrize("nodes", [
    "y = Sin(x)", "y = Cos(x)", "y = Atan(x)",
    "y = Abs(x)", "y = Exp(x)", "y = Neg(x)", "y = Relu(x)", "y = Sigmoid(x)", "y = Tanh(x)", "y = Softplus(x)",
    "y = Softsign(x)", "a = Abs(x) y = Sqrt(a)", "a = Exp(x) y = Log(a)", "a = Exp(x) y = Reciprocal(a)",
    "y = LeakyRelu(x)", "y = LeakyRelu<alpha = 0.3>(x)", "y = Elu<alpha = 0.5>(x)", "y = Selu(x)",
    "y = Celu<alpha = 2.0>(x)", "y = Gelu(x)", 'y = Gelu<approximate = "tanh">(x)', "y = HardSigmoid(x)",
    "y = HardSigmoid<alpha = 0.4, beta = 0.3>(x)", "y = HardSwish(x)", "y = Mish(x)",
    "y = ThresholdedRelu<alpha = 0.5>(x)", "y = Sign(x)",
    "k = Constant<value_ints = [3]>() y, places = TopK(x, k)",
    "k = Constant<value_ints = [2]>() z, places = TopK<largest = 0>(x, k) y = GatherElements<axis = 1>(x, places)", "s = Sigmoid(x) y = Mul(x, s)",
    "y = Softmax(x)", "y = LogSoftmax<axis = 1>(x)", "y = Identity(x)", "y = Dropout(x)", "y = Sum(x, x, x)",
    "a = Neg(x) y = Mean(x, a, x)", "a = Neg(x) y = Min(x, a)", "a = Neg(x) y = Max(x, a)",
    "b = Constant<value_float = 2.0>() y = Pow(x, b)", "b = Constant<value = float {0.5}>() a = Abs(x) y = Pow(a, b)",
    "y = Cast<to = 1>(x)", "y = CastLike(x, x)", "a = Sigmoid(x) y = Concat<axis = -1>(a, x)",
    "a = Sigmoid(x) b = Greater(a, x) y = Where(b, a, x)", "a = Less(x, x) b = Not(a) y = Where(b, x, x)",
    "a = Neg(x) b = GreaterOrEqual(a, x) c = Less(a, x) d = Or(b, c) y = Cast<to = 1>(d)",
    "a = Neg(x) b = LessOrEqual(a, x) c = Less(a, x) d = And(b, c) y = Cast<to = 1>(d)",
    "a = Neg(x) b = Equal(a, x) y = Cast<to = 1>(b)"])
def test_elementwise(nodes):
    exported(nodes)


@pytest.mark.parametrize("nodes, weights", [
    ("y = Add(x, w)", W), ("y = Sub(w, x)", W), ("y = Mul(x, w)", W), ("y = Div(x, w)", W), ("y = PRelu(x, w)", W),
    ("y = PRelu(x, w)", "float w = {0.3}"), ("y = PRelu(x, w)", "float[1,6] w = {0.5, 1, 2, 0.25, 0.75, 1}"),
    ("y = Clip(x, w)", "float w = {-0.5}"), ("y = Clip(x, , w)", "float w = {0.5}"),
    ("y = MatMul(x, w)", MATRIX), ("y = Gemm(x, w)", MATRIX), ("y = Gemm<transB = 1>(x, w)", TURNED),
    ("y = Gemm<transB = 1>(x, w, b)", TURNED + ", float[2] b = {1, 2}"),
    ("t = Gemm<transB = 1>(w, x) y = Transpose(t)", TURNED),
    ("y = Gemm(x, w, b)", MATRIX + ", float[1,2] b = {1, 2}"),
    ("y = Gemm<alpha = 0.5, beta = 2.0>(x, w, b)", MATRIX + ", float[2] b = {1, 2}"),
    ('y = Einsum<equation = "bi,io->bo">(x, w)', MATRIX),
    ("y = LayerNormalization<epsilon = 0.001>(x, w)", W), ("y = LayerNormalization(x, w, w)", W),
    ("y = BatchNormalization<epsilon = 0.01>(x, w, w, w, v)", W + ", float[6] v = {1, 2, 3, 4, 5, 6}"),
    ("y = Gather<axis = 1>(x, w)", "int64[3] w = {4, -1, 0}"), ("y = Gather<axis = 1>(x, w)", "int64 w = {-2}"),
    ("y = Gather<axis = 1>(x, w)", "int64[2,2] w = {0, 1, 2, 3}"),
    ("y = Slice(x, a, b, c)", "int64[1] a = {1}, int64[1] b = {9223372036854775807}, int64[1] c = {1}"),
    ("y = Slice(x, a, b, c, d)", "int64[1] a = {-2}, int64[1] b = {-6}, int64[1] c = {1}, int64[1] d = {-2}"),
    ("y = Slice(x, a, b, a, d)", "int64[1] a = {1}, int64[1] b = {-1}, int64[1] d = {2}"),
    ("a, b = Split<axis = 1>(x, w) y = Concat<axis = 1>(b, a)", "int64[2] w = {2, 4}"),
    ("a, b = Split<axis = 1, num_outputs = 2>(x) y = Mul(a, b)", ""),
    ("y = Reshape(x, w)", "int64[3] w = {0, 2, 3}"), ("y = Reshape(x, w)", "int64[3] w = {-1, 3, 2}"),
    ("y = Unsqueeze(x, w)", "int64[2] w = {1, -1}"), ("a = Unsqueeze(x, w) y = Squeeze(a, w)", "int64[1] w = {1}"),
    ("a = Unsqueeze(x, w) y = Squeeze(a)", "int64[1] w = {1}"),
    ("a = Unsqueeze(x, w) y = Expand(a, v)", "int64[1] w = {1}, int64[3] v = {1, 4, 1}"),
    ("y = Tile(x, w)", "int64[2] w = {1, 3}"), ("y = Pad(x, w)", "int64[4] w = {0, 1, 0, 2}"),
    ("y = Pad(x, w, v, a)", "int64[2] w = {1, -1}, float v = {3}, int64[1] a = {1}"),
    ("e = EyeLike<dtype = 1, k = -2>(w) y = MatMul(x, e)", "int64[6,2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}"),
    ("e = EyeLike<dtype = 1, k = 1>(w) y = MatMul(x, e)", "int64[6,2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}"),
    ("y = CumSum(x, w)", "int64 w = {1}"), ("y = CumSum<exclusive = 1, reverse = 1>(x, w)", "int64 w = {-1}"),
])
def test_with_constants(nodes, weights):
    exported(nodes, weights=weights)


@pytest.mark.parametrize("nodes, weights", [
    ("y = Flatten(x)", ""), ("y = Transpose<perm = [0, 2, 1]>(x)", ""), ("y = Softmax<axis = 1>(x)", ""),
    ("t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(x, t)", ""), ('y = Einsum<equation = "bfd,bgd->bfg">(x, x)', ""),
    ("y = Conv<pads = [1, 1], strides = [2]>(x, w)", "float[1,2,2] w = {1, 2, -1, 0.5}"),
    ("y = MaxPool<kernel_shape = [2], pads = [1, 0]>(x)", ""),
    ("y = AveragePool<kernel_shape = [2], strides = [1]>(x)", ""),
    ("y = GlobalAveragePool(x)", ""), ("y = GlobalMaxPool(x)", ""),
    ("y = Conv(x, w, b)", "float[4,2,1] w = {1, 2, -1, 0.5, 3, -2, 0.25, 1}, float[4] b = {1, 2, 3, 4}"),
    ("y = LayerNormalization<axis = 1>(x, w)", "float[2,3] w = {1, 2, 3, 4, 5, 6}"),
    ("y = PRelu(x, w)", "float[2,1] w = {0.1, 0.5}"),
    ("t = Transpose<perm = [1, 2, 0]>(x) g = GatherND(t, w) y = Transpose(g)", "int64[2,2] w = {0, 1, 1, 2}"),
])
def test_of_fields(nodes, weights):
    exported(nodes, FIELDS, weights)


@pytest.mark.parametrize("nodes, opset", [
    ("y = DFT(p)", 20), ("y = DFT<onesided = 1>(p)", 20), ("y = DFT<inverse = 1>(p)", 20), ("y = DFT(p, five)", 20),
    ("t = DFT(p) y = DFT<inverse = 1>(t)", 20), ("y = DFT(p, , two)", 20), ("y = DFT(p)", 17),
    ("y = DFT<axis = 1, onesided = 1>(p, five)", 17), ("t = DFT(p) s = DFT(t, five) y = DFT<inverse = 1>(s)", 17),
])
def test_fourier_transforms(nodes, opset):
    exported(f"p = Unsqueeze(x, last) {nodes}", weights="int64[1] last = {-1}, int64 five = {5}, int64 two = {-2}",
             opset=opset)


@pytest.mark.parametrize("nodes, message", [
    ("y = DFT(p)", "expected an axis, of which opsets have different defaults, got none"),
    ("t = DFT<onesided = 1, axis = 1>(p) y = DFT<inverse = 1, onesided = 1, axis = 1>(t)",
     "expected onesided of transforms of real numbers, got of others"),
])
def test_fourier_transforms_that_are_refused(nodes, message):
    inputs = FIELDS if "axis" not in nodes else "float[N,6] x"
    with pytest.raises(wr.InvalidArgument, match=message):
        exported(f"p = Unsqueeze(x, last) {nodes}", inputs, "int64[1] last = {-1}", 17)


@pytest.mark.parametrize("inputs", ["float[4,2,3] x", FIELDS])
def test_masked_select_as_exporters_write_it(inputs):
    """With the places of each row that a batch has."""
    exported("s = Shape(x) m = Expand(w, s) n = NonZero(m) t = Transpose(n) g = GatherND(x, t) y = Reshape(g, v)", inputs,
             "bool[2,3] w = {0, 1, 1, 0, 0, 1}, int64[2] v = {-1, 3}")


def test_constants_of_a_batch_have_one_row():
    """An exporter computes what no input reaches for as many rows as its example has, each with its own rounding."""
    def of(rows):
        return f"float[4,2] w = {{{', '.join(map(str, np.ravel(rows)))}}}"
    one = np.float32([[0.1, 2]])
    rows = np.concatenate([one, one, np.nextafter(one, np.float32(9)), one])
    exported("y = Mul(x, w)", "float[4,2] x", of(rows))
    rows[2, 0] = 0.10001
    with pytest.raises(wr.InvalidArgument, match="a constant that is the same for every row"):
        exported("y = Mul(x, w)", "float[4,2] x", of(rows))


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"])
def test_reductions(op):
    """Axes are an attribute of ReduceMean before opset 18, and of ReduceSum before 13."""
    exported(f"y = Reduce{op}(x, w)", weights="int64[1] w = {1}")
    exported(f"y = Reduce{op}<keepdims = 0>(x, w)", FIELDS, "int64[2] w = {-1, 1}")
    if op != "Sum":
        exported(f"y = Reduce{op}<axes = [2], keepdims = 0>(x)", FIELDS, opset=13)


@pytest.mark.parametrize("opset", [13, 14, 17, 19, 21, 23, 25])
def test_opsets(opset):
    exported("a = MatMul(x, w) b = Relu(a) y = Softmax(b)", weights=MATRIX, opset=opset)


def test_lookups():
    made = exported("a = Gather(w, i) b = Cast<to = 7>(j) c = Gather(v, b) y = Concat<axis = 1>(a, c)",
                    "int64[N] i, int32[N] j", "float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2,2] v = {1, 2, 3, 4}")
    assert {name: array.shape for name, array in made.tables.items()} == {"w": (3, 2), "v": (2, 2)}


def test_one_hot_is_a_table():
    made = exported("y = OneHot(i, d, v)", "int64[N] i", "int64 d = {4}, float[2] v = {0, 1}")
    np.testing.assert_array_equal(next(iter(made.tables.values())), np.eye(4))


def test_columns_of_numbers_are_ids():
    made = exported("c, d = Split<axis = 1, num_outputs = 2>(x) b = Cast<to = 7>(c) a = Gather(w, b) e = Flatten(a) "
                    "y = Concat<axis = 1>(e, d)", "float[N,2] x", "float[3,2] w = {1, 2, 3, 4, 5, 6}")
    assert "x.0" in [i.name for i in wr.compile(made.graph).ids]


BELOW_ZERO = "c = Cast<to = 1>(i) b = Less(c, zero) e = Add(i, three) "
SUM = "n = Not(b) p = Cast<to = 7>(b) q = Cast<to = 7>(n) u = Mul(p, e) v = Mul(i, q) s = Add(u, v) y = Gather(w, s)"
TABLE = "float zero = {0}, int64 three = {3}, float[3,2] w = {1, 2, 3, 4, 5, 6}"


@pytest.mark.parametrize("nodes", [SUM, SUM.replace("Add(u, v)", "Add(v, u)").replace("Mul(i, q)", "Mul(q, i)"),
                                   "s = Where(b, e, i) y = Gather(w, s)"])
def test_look_ups_of_tensorflow_take_rows_from_the_end(nodes):
    """Of ids that are negative, of which requests have none."""
    made = exported(BELOW_ZERO + nodes, "int64[N] i", TABLE)
    assert kinds(made).count('"op":') == 1
    with pytest.raises(wr.InvalidArgument, match="expected ids of 0 to 2, the rows of table 'w', got -1"):
        made.check({"i": np.array([0, -1])})
    with pytest.raises(wr.InvalidArgument, match="arithmetic on ids"):
        exported(BELOW_ZERO.replace("zero", "one") + nodes, "int64[N] i", TABLE + ", float one = {1}")


SHAPES = """s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, axis) r = Range(zero, six, one) k = Size(r)
    l = Unsqueeze(k, axis) o = Concat<axis = 0>(m, l) z = ConstantOfShape<value = float[1] {2.0}>(o)
    e = EyeLike(z) t = Trilu<upper = 0>(z) q = ReduceSum(e, axis) c = Mod(six, four) d = Div(six, four) f = Equal(d, one)
    g = Where(f, c, six) u = Cast<to = 1>(g) v = Add(x, u) p = Reshape(v, o)"""
NUMBERS = "int64 zero = {0}, int64 one = {1}, int64 four = {4}, int64 six = {6}, int64[1] axis = {0}"


def test_arithmetic_of_shapes_is_folded():
    made = exported(SHAPES + " y = MatMul(p, w)", weights=f"{NUMBERS}, {MATRIX}")
    assert [kinds(made).count(f'"op": "{op}"') for op in ("linear", "elementwise")] == [1, 1]  # and what it adds


def test_a_known_condition_takes_its_branch():
    branches = """then_branch = t () => (float[] a) { a = Relu(x) },
        else_branch = e () => (float[] b) { b = Hardmax(x) }"""
    exported(f"s = Shape(x) z = Size(s) c = Equal(z, two) y = If<{branches}>(c)", weights="int64 two = {2}")


def test_a_loop_over_rows():
    """Each turn of rows of its own, as an EmbeddingBag has it."""
    turn = """d = Identity(c) u = Unsqueeze(i, axis) v = Add(u, one) r = Slice(x, u, v) s = Relu(r)
        e = ReduceSum(s, axis)"""
    loop = f"a = Loop<body = b (int64 i, bool c) => (bool d, float[] e) {{ {turn} }}>(n, t)"
    exported(f"k = Shape(x) n = Gather(k, zero) {loop} y = Squeeze(a, one)",
             weights="int64[1] axis = {0}, int64[1] one = {1}, int64 zero = {0}, bool t = {1}")


def test_weights_have_the_names_of_the_model():
    made = exported("a = Gemm<transB = 1>(x, top.weight, top.bias) y = Sigmoid(a)".replace("top.", "top_"),
                    weights="float[1,6] top_weight = {1, 2, 3, 4, 5, 6}, float[1] top_bias = {1}")
    assert sorted(made.weights) == ["top_weight.bias", "top_weight.weight"]
