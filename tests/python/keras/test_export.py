# SPDX-License-Identifier: Apache-2.0
"""Models as users write them in Keras: their graphs score as Keras does, and what cannot be expressed is told."""

import keras
import models
import numpy as np
import pytest
from keras import layers, ops

import warprank as wr
import warprank.keras
from warprank import cli

B = 7
CLOSE = 1e-5


def check(model, batch, **options):
    exported = wr.keras.export(model, **options)
    for name, difference in exported.check(batch).items():
        assert difference.largest <= CLOSE, (name, difference)
    return exported


def ids(rng, high, *shape, low=0):
    return rng.integers(low, high, (B, *shape))


# --- models


def test_deepfm(rng, trained):
    batch = {name: ids(rng, n, 1) for name, n in {"a": 10, "b": 20, "c": 30}.items()}
    batch["numbers"] = rng.normal(size=(B, 2)).astype(np.float32)
    exported = check(trained(models.deepfm({"a": 10, "b": 20, "c": 30}, 2)), batch)
    assert set(exported.tables) == {f"{part}_{name}" for part in ("embed", "first") for name in "abc"}
    assert exported.weights["linear.weight"].shape == (1, 2)
    assert "batch_normalization.running_var" in exported.weights


def dcn_batch(rng):
    tags = np.maximum(ids(rng, 20, 4, low=-8), 0)
    tags[:, 0] += 1  # Keras' mean of no tag is no number
    return {"user_id": ids(rng, 50, 1), "film_id": ids(rng, 80, 1), "tags": np.minimum(tags, 19),
            "context": rng.normal(size=(B, 3)).astype(np.float32)}


AXES = {"user_id": "user", "context": "user", "film_id": "user/item", "tags": "user/item/tags[]"}


def test_dcn_v2_on_three_axes(rng, trained):
    batch = dcn_batch(rng)
    exported = check(trained(models.dcn_v2()), batch, axes=AXES, outputs={"like": "liked"})
    assert [a.name for a in wr.compile(exported.graph).axes] == ["user", "item", "tags"]
    assert set(exported.outputs) == {"ctr", "liked"}
    assert '"pooling": "mean"' in exported.graph.to_json()
    assert any(name.endswith(".2.weight") for name in exported.weights)  # three crosses in one
    assert "tower/dense_1.weight" in exported.weights
    # What is the user's is computed once for each user, and scores stay.
    data, _ = exported.columns(batch)
    own = {"user_id": np.array([7]), "context": np.float32([[1, 2, 3]])}
    items = {"film_id": np.arange(B), "tags": data["tags"]}
    together = exported.model().score(own | items, {"item": [0, B]})
    repeated = {name: np.repeat(column, B, 0) for name, column in own.items()} | items
    apart = exported.model().score(repeated, {"item": np.arange(B + 1)})
    np.testing.assert_allclose(together["ctr"], apart["ctr"], atol=1e-6)


@pytest.mark.parametrize("softmax", [False, True])
def test_din(rng, trained, softmax):
    history = ids(rng, 40, 6, low=1)
    history[2, 3:] = 0
    history[4, 1:] = 0
    batch = {"history": history, "film_id": ids(rng, 40, 1), "age": rng.normal(size=(B, 1)).astype(np.float32)}
    exported = check(trained(models.din(softmax=softmax)), batch,
                     axes={"history": "row/history[]", "film_id": "row", "age": "row"})
    assert list(exported.tables) == ["film"] and exported.outputs == ["output"]
    data, _ = exported.columns(batch)
    assert len(data["history"].values) == np.count_nonzero(history)


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_files(rng, trained, tmp_path, ending):
    batch = {name: ids(rng, 10, 1) for name in "ab"} | {"numbers": rng.normal(size=(B, 2)).astype(np.float32)}
    model = models.deepfm({"a": 10, "b": 10}, 2)
    if ending == "h5":  # which Keras cannot read where there are ops
        model = keras.Model(model.inputs, layers.Dense(1)(model.get_layer("concatenate_1").output))
    model = trained(model)
    model.save(tmp_path / f"model.{ending}")
    exported = check(tmp_path / f"model.{ending}", batch)
    exported.save(tmp_path / "model")
    scores = wr.load(tmp_path / "model").score(exported.columns(batch)[0])["output"]
    np.testing.assert_allclose(scores, np.ravel(model(list(batch.values()))), atol=CLOSE)


@pytest.mark.parametrize("type, close", [("f16", 1e-3), ("bf16", 1e-2), ("i8", 1e-2)])
def test_rows_of_other_types(rng, trained, tmp_path, type, close):
    batch = {name: ids(rng, 10, 1) for name in "ab"} | {"numbers": rng.normal(size=(B, 2)).astype(np.float32)}
    exported = wr.keras.export(trained(models.deepfm({"a": 10, "b": 10}, 2)), rows={"embed_a": type},
                               example_batch=batch)
    error = exported.row_errors["embed_a"]
    assert error.type == type and 0 < error.largest <= close and exported.row_errors["embed_b"].largest == 0
    assert exported.check()["output"].largest <= max(CLOSE, 10 * error.largest)
    exported.save(tmp_path / "model")
    assert cli.main(["check", str(tmp_path / "model"), "--most-difference", str(10 * close)]) == 0


def test_a_folder_is_whole_or_not_there(rng, trained, tmp_path):
    exported = wr.keras.export(trained(models.deepfm({"a": 10}, 2)))
    exported.save(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    exported.weights["linear.weight"] = np.array(["no number"])
    for folder in ("model", "another"):
        with pytest.raises(TypeError):
            exported.save(tmp_path / folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


# --- layers and ops, each against Keras

X = {
    "activations": lambda x: sum([layers.Activation(a)(x) for a in (
        "relu", "sigmoid", "tanh", "silu", "gelu", "elu", "leaky_relu", "exponential", "softmax", "linear")]),
    "layers of activations": lambda x: sum([
        layers.ReLU(max_value=0.5)(x), layers.ReLU(negative_slope=0.2)(x), layers.LeakyReLU(0.3)(x),
        layers.ELU(0.7)(x), layers.PReLU()(x), layers.Softmax()(x)]),
    "ops": lambda x: sum([ops.exp(x), ops.log(ops.abs(x) + 1), ops.sqrt(ops.square(x)), -x, x**2, ops.relu(x),
                          ops.gelu(x, approximate=True), ops.sigmoid(x), ops.tanh(x), ops.silu(x),
                          ops.sin(x), ops.cos(x), ops.arctan(x), ops.arctan2(x, ops.flip(x, 1))]),
    "numbers": lambda x: 2 - x * 3 + (x / 4 - 1) + ops.maximum(x, 0.1) + ops.minimum(x, 2 * x),
    "constants": lambda x: (x + np.arange(6.0)) * np.arange(1.0, 7) - np.ones(6) / 2 + ops.subtract(np.arange(6.0), x),
    "where": lambda x: ops.where(x > 0.1, x, x * 0.5) + ops.cast(x <= 0.3, "float32"),
    "merges": lambda x: layers.Average()([x, layers.Subtract()([x, 2 * x])]) + layers.Maximum()([x, -x]) +
    layers.Minimum()([x, -x]) + layers.Multiply()([x, x, x]),
    "norms": lambda x: layers.BatchNormalization()(x) + layers.LayerNormalization()(x) + layers.BatchNormalization(
        scale=False)(x) + layers.LayerNormalization(center=False)(x) + layers.BatchNormalization(
            scale=False, center=False)(x),
    "norms of fields": lambda x: layers.Flatten()(layers.BatchNormalization(axis=1)(layers.Reshape((2, 3))(x))),
    "norms by hand": lambda x: (x - ops.mean(x, 1, keepdims=True)) / ops.sqrt(ops.var(x, 1, keepdims=True) + 1e-3),
    "fields": lambda x: layers.Flatten()(layers.LayerNormalization()(layers.Dense(4, "relu")(layers.Reshape((2, 3))(
        x)))),
    "field's slopes": lambda x: layers.Flatten()(layers.PReLU()(layers.Reshape((2, 3))(x))),
    "sums": lambda x: ops.stack([ops.sum(x, 1), ops.mean(x, -1), ops.max(x, 1)], axis=1),
    "sums of fields": lambda x: ops.concatenate([f(ops.reshape(x, (-1, 2, 3)), axis=axis) for f in (
        ops.sum, ops.mean, ops.max) for axis in (1, 2)], -1),
    "sums that keep dimensions": lambda x: x + ops.sum(x, -1, keepdims=True) * ops.mean(
        ops.reshape(x, (-1, 2, 3)), axis=(1, 2))[:, None],
    "sums over fields of fields": lambda x: layers.Flatten()(ops.sum(ops.reshape(x, (-1, 3, 2, 1)), axis=1)),
    "softmax of fields": lambda x: layers.Flatten()(layers.Softmax(axis=1)(layers.Reshape((2, 3))(x))),
    "products": lambda x: ops.concatenate([
        layers.Dot(axes=1)([x, x * 2]), layers.Flatten()(layers.Dot(axes=(2, 2))([
            ops.reshape(x, (-1, 3, 2)), ops.reshape(x, (-1, 3, 2))])), layers.Dot(axes=(2, 1))([
                ops.reshape(x, (-1, 3, 2)), x[:, 1:3]]), layers.Dot(axes=1, normalize=True)([x, x**2]),
        layers.Flatten()(layers.Dot(axes=1)([ops.reshape(x, (-1, 2, 3)), ops.reshape(x, (-1, 2, 3))]))], -1),
    "matrices": lambda x: ops.reshape(ops.matmul(ops.reshape(x, (-1, 2, 3)), ops.reshape(x, (-1, 3, 2))), (-1, 4)),
    "transposes": lambda x: layers.Flatten()(ops.transpose(ops.reshape(x, (-1, 2, 3)), (0, 2, 1)) * 2),
    "indices": lambda x: ops.concatenate([x[:, 1:4], x[:, ::2], x[:, -1:], ops.expand_dims(x[:, 2], -1),
                                          ops.reshape(x, (-1, 2, 3))[:, 1], ops.reshape(x, (-1, 2, 3))[:, :, 1]], 1),
    "repeats": lambda x: layers.Flatten()(layers.RepeatVector(2)(x) + ops.tile(x[:, None, :], (1, 2, 1)) + ops.repeat(
        ops.expand_dims(x, 1), 2, axis=1)),
    "pooling of fields": lambda x: layers.GlobalAveragePooling1D()(layers.Reshape((2, 3))(x)) + layers.
    GlobalMaxPooling1D()(layers.Reshape((2, 3))(x)),
    "squeezes": lambda x: ops.squeeze(ops.reshape(x, (-1, 1, 6)), 1) + ops.squeeze(ops.reshape(x, (-1, 6, 1)), -1),
}


@pytest.mark.parametrize("name", X)
def test_layers(name, rng, trained):
    x = keras.Input((6,), name="x")
    check(trained(keras.Model(x, X[name](x))), rng.normal(size=(B, 6)).astype(np.float32))


S = {
    "pooled": lambda e, _: layers.GlobalMaxPooling1D()(e) + ops.sum(e * 2, axis=1) + ops.mean(e + 1, axis=1),
    "dense": lambda e, _: ops.sum(layers.LayerNormalization()(layers.Dense(5, "relu")(e)), axis=1),
    "weights": lambda e, _: layers.Flatten()(layers.Dot(axes=1)([layers.Dense(1, "sigmoid")(e), e])),
    "with a row's": lambda e, x: ops.sum(layers.Concatenate()([e, layers.RepeatVector(4)(x)]), axis=1),
    "softmax": lambda e, x: ops.sum(ops.softmax(e * x[:, None, :3], axis=1) * e, axis=1),
}


@pytest.mark.parametrize("name", S)
def test_sequences_without_padding(name, rng, trained):
    history, x = keras.Input((4,), dtype="int32", name="history"), keras.Input((6,), name="x")
    model = keras.Model([history, x], S[name](layers.Embedding(9, 3)(history), x))
    exported = check(trained(model), [ids(rng, 9, 4), rng.normal(size=(B, 6)).astype(np.float32)],
                     axes={"history": "row/history[]", "x": "row"})
    assert [i.name for i in wr.compile(exported.graph).ids] == ["history"]


def test_means_by_hand(rng, trained):
    history, x = keras.Input((4,), dtype="int32", name="history"), keras.Input((3,), name="x")
    mask = ops.expand_dims(ops.cast(ops.not_equal(history, 0), "float32"), -1)
    mean = ops.sum(layers.Embedding(9, 3)(history) * mask, axis=1) / ops.sum(mask, axis=1)
    batch = [ids(rng, 9, 4), np.zeros((B, 3), np.float32)]
    batch[0][:, 0] = 1
    check(trained(keras.Model([history, x], mean + x)), batch,
          axes={"history": "row/history[]", "x": "row"})


def test_columns_of_ids_are_inputs_by_themselves(rng, trained):
    x = keras.Input((3,), dtype="int32", name="x")
    shared = layers.Embedding(9, 2)
    exported = check(trained(keras.Model(x, layers.Flatten()(shared(x)))), ids(rng, 9, 3))
    assert [i.name for i in wr.compile(exported.graph).ids] == ["x.0", "x.1", "x.2"]


def test_layers_that_are_used_twice(rng, trained):
    x = keras.Input((4,), name="x")
    layer = layers.Dense(4, name="twice")
    exported = check(trained(keras.Model(x, layer(layer(x)))), rng.normal(size=(B, 4)).astype(np.float32))
    np.testing.assert_array_equal(exported.weights["twice.weight"], exported.weights["twice#2.weight"])


# --- what is wrong


def test_what_cannot_be_expressed_is_told_together_with_its_layer():
    class Own(layers.Layer):
        def call(self, x):
            return ops.cumsum(x, axis=1)

    x = keras.Input((6,), name="x")
    made = layers.Reshape((6, 1))(x)
    made = layers.GRU(2, name="gru")(layers.Conv1D(2, 3, name="conv")(made))
    other = Own(name="own")(x)
    inner = keras.Sequential([layers.Dense(2), layers.Activation("mish", name="act")], name="inner")(x)
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(keras.Model(x, layers.Concatenate()([made, other, inner])))
    assert [(p.what, p.got) for p in raised.value.problems] == [
        ("layer 'gru': While 'while'", "another"),
        ("layer 'own': Cumsum 'Cumsum'", "none that does this"),
        ("layer 'inner/act': Softplus 'Softplus'", "none that does this")]


@pytest.mark.parametrize("make, message", [
    (lambda x: x - ops.mean(x, axis=0), "expected each row by itself, got an op over the batch"),
    (lambda x: x**0, "expected an exponent other than 0, got 0: 1 whatever the batch is"),
    (lambda x: ops.flip(x, axis=0), "expected each row made of itself, and all in one way, got others"),
    (lambda x: layers.GRU(2)(layers.Reshape((3, 2))(x)), "expected a GRU over the events of each row, [batch, events, ..], got another"),
])
def test_what_layers_cannot_be(make, message):
    x = keras.Input((6,), name="x")
    model = keras.Model(x, layers.Flatten()(make(x)))
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(model)
    assert message in str(raised.value)


def test_wrong_axes_and_outputs():
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(models.dcn_v2(), axes={"usr_id": "user", "film_id": "item", "tags": "item/tags[]"})
    assert [(p.what, p.got) for p in raised.value.problems] == [
        ("axes: input 'user_id'", "none"), ("axes: input 'context'", "none"),
        ("axes: 'usr_id'", "none of that name (did you mean 'user_id'?)")]
    with pytest.raises(wr.InvalidArgument, match="sizes that are known, but for the events of an axis"):
        wr.keras.export(models.dcn_v2())
    with pytest.raises(wr.InvalidArgument, match="outputs: 'cvr': expected an output of the model, "):
        wr.keras.export(models.dcn_v2(), axes=AXES, outputs={"cvr": "x"})


def test_batches_that_do_not_fit(rng, trained, tmp_path):
    """All that is wrong of one in one message, before TensorFlow has seen it; nothing is written."""
    exported = wr.keras.export(trained(models.dcn_v2()), axes=AXES, hashed={"user": np.arange(50) * 10**9})
    batch = dcn_batch(rng)
    film, tags = batch["film_id"].copy(), batch["tags"].copy()
    film[2], film[4], tags[3, 1] = 80, -1, 20

    def told(**changed):
        found = []
        for call in exported.check, exported.score, lambda given: exported.save(tmp_path / "model", given):
            with pytest.raises(wr.InvalidArgument) as raised:
                call({name: array for name, array in (batch | changed).items() if array is not None})
            found.append(sorted((p.what.removeprefix("batch: "), p.expected, p.got) for p in raised.value.problems))
        assert found[0] == found[1] == found[2] and not list(tmp_path.iterdir())
        return found[0]

    beyond = batch["user_id"] + 50
    assert told(film_id=film, tags=tags, user_id=beyond) == [
        ("input 'film_id'", "ids of 0 to 79, the rows of table 'film'", "80, and 1 more"),
        ("input 'tags'", "ids of 0 to 19, the rows of table 'tag'", "20"),
        ("input 'user_id'", "ids of 0 to 49, the rows of table 'user'", f"{beyond[0, 0]}, and {B - 1} more")]
    assert told(film_id=None, fil_id=film, tags=tags * 0.5, user_id=np.array([["u"]] * B)) == [
        ("'fil_id'", "an input of the model", "none of that name (did you mean 'film_id'?)"),
        ("input 'film_id'", "an array", "none"), ("input 'tags'", "integers", "float64 values"),
        ("input 'user_id'", "integers", "<U1 values")]
    assert [p[:2] for p in told(film_id=film.astype(np.uint64), tags=[[1], [1, 2]])] == [
        ("input 'film_id'", "values that int64 has"), ("input 'tags'", "rows of one length")]
    assert told(film_id=film[:4], context=batch["context"][:, :2]) == [
        ("input 'context'", f"shape [{B}, 3]", f"[{B}, 2]"), ("input 'film_id'", f"shape [{B}, 1]", "[4, 1]")]
    with pytest.raises(wr.InvalidArgument, match="batch: expected 4 arrays, user_id, film_id, .*, got 2"):
        exported.check([film, tags])


def test_weights_that_are_no_numbers():
    x = keras.Input((2,), name="x")
    model = keras.Model(x, layers.Dense(1, name="head")(x))
    model.get_layer("head").bias.assign([np.nan])
    with pytest.raises(wr.InvalidArgument, match="weight 'head.bias', element .0.: expected a finite number, got nan"):
        wr.keras.export(model)


def test_statistics_that_are_no_numbers(tmp_path):
    """Constants of a graph, which are no variables, and settings of transforms."""
    x = keras.Input((2,), name="x")
    norm = layers.Normalization(mean=[0.0, np.nan], variance=[np.inf, 1.0], axis=-1, name="norm")
    model = keras.Model(x, layers.Dense(1)(norm(x)))
    with pytest.raises(wr.InvalidArgument, match=r"weight 'norm.*', element \[.*1\]: expected a finite number, got -?nan"):
        wr.keras.export(model)
    for mean, variance, told in (np.nan, 1.0, "a mean of finite numbers, got nan"), (
            1.0, np.inf, "a variance of finite numbers, got inf"):
        one = layers.Normalization(mean=mean, variance=variance, axis=None)
        one.build((None,))
        with pytest.raises(wr.InvalidArgument, match=rf"feature 'x' \(Normalization\): expected {told}"):
            wr.keras.transforms_of({"x": (one, "x")})


def test_rows_for_the_steps_of_a_sequence_are_told():
    history, x = keras.Input((4,), dtype="int32", name="history"), keras.Input((12,), name="x")
    steps = layers.Embedding(9, 3)(history) * layers.Reshape((4, 3))(x)
    model = keras.Model([history, x], ops.sum(steps, axis=1))
    with pytest.raises(wr.InvalidArgument, match="numbers that are the same for each event, got others"):
        wr.keras.export(model, axes={"history": "row/history[]", "x": "row"})


@pytest.mark.parametrize("function", [lambda ids: ids + 1, lambda ids: ops.where(ids < 0, ids + 8, ids + 1)])
def test_ids_that_are_computed(function):
    x = keras.Input((1,), dtype="int32", name="x")
    with pytest.raises(wr.InvalidArgument, match="numbers: ids can only be looked up, and compared with padding"):
        wr.keras.export(keras.Model(x, layers.Flatten()(layers.Embedding(9, 3)(function(x)))))


def test_padding_that_is_not_masked():
    history = keras.Input((4,), dtype="int32", name="history")
    x = keras.Input((1,), name="x")
    embedded = layers.Embedding(9, 3)(history)
    mask = ops.cast(ops.not_equal(history, 0), "float32")[:, :, None]
    both = [ops.sum(mask * embedded, axis=1), layers.GlobalAveragePooling1D()(embedded), x]
    with pytest.raises(wr.InvalidArgument, match="a sum in which padding counts nothing, as behind a mask"):
        wr.keras.export(keras.Model([history, x], layers.Concatenate()(both)), axes={
            "history": "row/history[]", "x": "row"})
