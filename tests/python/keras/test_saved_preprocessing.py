# SPDX-License-Identifier: Apache-2.0
"""SavedModels that begin with ops that make ids: the transforms make the same ids, the exports the same scores."""

import keras
import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import tensorflow as tf
from keras import layers

import warprank as wr
import warprank.keras
from warprank import cli

ROWS = 4000
WORDS = ["Berlin", "Bonn", "Köln", "東京", "a", " ", "x" * 70, "17", "-3"]
LIMITS = [-2**63, 2**63 - 1, -2**31, 2**31, 2**53 + 1]


@pytest.fixture
def columns(rng):
    """Text with what is empty or not ASCII, integers of both signs, numbers with those that lie on boundaries."""
    random = ["".join(map(chr, rng.integers(32, 0x2FF, n))) for n in rng.integers(0, 40, 500)]
    words = np.array([*WORDS, "", *random], object)
    integers = np.concatenate([np.arange(-40, 40), rng.integers(-2**63, 2**63 - 1, 200), LIMITS])
    numbers = np.concatenate([rng.normal(size=500) * 3, [-1, 0, -0.0, 0.5, 2.5, 1e30, np.inf, -np.inf, np.nan]])

    def some(values):
        return values[np.concatenate([np.arange(len(values)), rng.integers(0, len(values), ROWS - len(values))])]
    return {"word": some(words), "city": some(words), "tag": some(words), "number": some(integers),
            "film": some(integers), "hour": some(np.arange(-40, 40)), "price": some(numbers.astype(np.float32))}


TYPES = {"word": "string", "city": "string", "tag": "string", "number": "int64", "film": "int64", "hour": "int32",
         "price": "float32"}


def saved(path, model):
    """A function of columns that the SavedModel computes."""
    tf.saved_model.save(model, str(path)) if isinstance(model, tf.Module) else model.export(str(path), verbose=False)
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    return lambda given: {name: made.numpy() for name, made in signature(
        **{name: tf.constant(array) for name, array in given.items()}).items()}


def given_to(columns, names):
    return {name: columns[name].astype(TYPES[name] if TYPES[name] != "string" else object)[:, None] for name in names}


# By kind the columns, what makes ids of them, and beyond which number there are none.
LAYERS = {
    "hash": (["word"], lambda x: layers.Hashing(50)(x), 50),
    "hash of integers": (["number"], lambda x: layers.Hashing(50)(x), 50),
    "hash with a mask": (["word"], lambda x: layers.Hashing(50, mask_value="")(x), 50),
    "hash of integers with a mask": (["hour"], lambda x: layers.Hashing(50, mask_value=-3)(x), 50),
    "strong hash": (["word"], lambda x: layers.Hashing(50, salt=[7, -9])(x), 50),
    "strong hash of integers": (["number"], lambda x: layers.Hashing(50, salt=7, mask_value=0)(x), 50),
    "vocabulary": (["word"], lambda x: layers.StringLookup(vocabulary=WORDS)(x), 10),
    "vocabulary with a mask": (["word"], lambda x: layers.StringLookup(vocabulary=WORDS, mask_token="")(x), 11),
    "vocabulary with buckets": (["word"], lambda x: layers.StringLookup(
        vocabulary=WORDS, num_oov_indices=5, mask_token="")(x), 15),
    "integers": (["number"], lambda x: layers.IntegerLookup(vocabulary=[-40, 7, 2**53 + 1])(x), 4),
    "integers with buckets": (["number"], lambda x: layers.IntegerLookup(
        vocabulary=[-40, 7, -1], num_oov_indices=6, mask_token=0)(x), 10),
    "intervals": (["price"], lambda x: layers.Discretization([-1.0, 0.5, 2.5])(x), 4),
    "intervals of integers": (["number"], lambda x: layers.Discretization([-1.0, 0.5, 2.5])(x), 4),
    "cross": (["word", "number"], lambda *x: layers.HashedCrossing(70)(x), 70),
    "cross of ids": (["word", "hour"], lambda word, hour: layers.HashedCrossing(70)([
        layers.StringLookup(vocabulary=WORDS)(word), hour]), 70),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind, columns, tmp_path):
    names, make, num_ids = LAYERS[kind]
    inputs = [keras.Input((1,), dtype=TYPES[name], name=name) for name in names]
    ids = make(*inputs)
    row = keras.initializers.Constant(np.arange(num_ids, dtype=np.float32)[:, None])  # so that a score is an id
    scores = layers.Flatten()(layers.Embedding(num_ids, 1, embeddings_initializer=row)(ids))
    given = given_to(columns, names)
    made = saved(tmp_path / "ids", keras.Model(inputs, {"ids": ids}))(given)["ids"].ravel()
    wanted = saved(tmp_path / "scores", keras.Model(inputs, scores))(given)["output_0"].ravel()
    assert len(set(made)) > min(num_ids, 30) / 2 and (made == wanted).all()
    exported = wr.keras.export(tmp_path / "scores")
    (feature,) = exported.columns(given)[0]
    np.testing.assert_array_equal(exported.transforms.run({n: columns[n] for n in names})[feature], made)
    np.testing.assert_array_equal(exported.score(given)["output_0"].ravel(), wanted)
    assert exported.check()["output_0"].largest == 0


class Module(tf.Module):
    """Ops as users write them who know nothing of Keras, within functions."""

    def __init__(self, folder):
        (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
        self.of_file = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(
            str(folder / "words.txt"), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), 4)
        self.of_constants = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.constant(["-3", "17", "007"]), tf.constant([2, 1, 3], tf.int64)), 0)
        self.table = tf.Variable(np.arange(400, dtype=np.float32)[:, None], name="rows")
        types = {"word": tf.string, "city": tf.string, "number": tf.int64, "hour": tf.int32}
        self.ids = tf.function(self._ids, [{n: tf.TensorSpec([None, 1], t, n) for n, t in types.items()}])
        self.scores = tf.function(self._scores, self.ids.input_signature)

    def _ids(self, given):
        words = tf.strings.to_hash_bucket_fast(tf.concat([given["word"], given["city"]], 1), 50)
        words += tf.constant([0, 50], tf.int64)  # of one table, each from its own row on
        number = tf.reshape(given["number"], [-1])
        known = tf.where(number == 7, tf.constant(100, tf.int64), tf.strings.to_hash_bucket_strong(
            tf.as_string(number), 60, [2, 5]) + 101)
        tables = self._tables(given["word"], tf.as_string(given["hour"]))
        missing = tf.where(tf.squeeze(given["city"], 1) == "", "none", tf.squeeze(given["city"], 1))
        dense = tf.cast(tf.strings.to_hash_bucket_fast(missing, 30), tf.int32)
        return {"words": words, "known": known, "word": tables[0], "hour": tables[1], "missing": dense,
                "remainder": tf.math.floormod(given["number"], 9)}

    @tf.function
    def _tables(self, word, hour):
        return tf.squeeze(self.of_file.lookup(word) + 200, 1), tf.squeeze(self.of_constants.lookup(hour), 1)

    def _scores(self, given):
        ids = self.ids(given)
        return {name: tf.squeeze(tf.gather(self.table, of), -1) for name, of in ids.items()}


def test_ops_of_functions(columns, tmp_path):
    module, given = Module(tmp_path), given_to(columns, ["word", "city", "number", "hour"])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.scores)
    wanted = {name: array.numpy() for name, array in module.ids({n: tf.constant(a) for n, a in given.items()}).items()}
    (tmp_path / "words.txt").unlink()  # of which the SavedModel has its own
    exported = wr.keras.export(tmp_path / "model")
    made = exported.transforms.run(columns)
    expected = {"word_hash": wanted["words"][:, 0], "word_vocabulary": wanted["word"], "hour": wanted["hour"],
                "city_hash.1": wanted["words"][:, 1], "city_hash": wanted["missing"], "number_hash": wanted["known"],
                "number_vocabulary": wanted["remainder"].ravel()}
    assert sorted(exported.transforms.features) == sorted(expected)
    for name, ids in expected.items():
        np.testing.assert_array_equal(made[name], ids, name)
    scores = exported.score(given)
    for name, ids in wanted.items():
        np.testing.assert_array_equal(scores[name].ravel(), ids.ravel(), name)


def test_what_cannot_be_expressed_is_told_together(tmp_path, capsys):
    numbered = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.constant(["a", "b", "c"]), tf.constant([3, 9, 27], tf.int64)), 0)

    class Scores(tf.Module):
        def __init__(self):
            self.table, self.numbered = tf.Variable(tf.ones([50, 1]), name="rows"), numbered

        @tf.function(input_signature=[tf.TensorSpec([None], *of) for of in (
            (tf.string, "word"), (tf.string, "city"), (tf.float64, "price"), (tf.float32, "x"))])
        def __call__(self, word, city, price, x):
            ids = [tf.strings.to_hash_bucket_fast(tf.strings.lower(word), 9),
                   tf.strings.to_hash_bucket_fast(tf.strings.join([word, city], "_"), 9),
                   tf.strings.to_hash_bucket_fast(city, 9), self.numbered.lookup(word),
                   tf.cast(tf.raw_ops.Bucketize(input=price, boundaries=[1.0]), tf.int64),
                   tf.cast(tf.raw_ops.Bucketize(input=tf.math.log(x), boundaries=[1.0]), tf.int64),
                   tf.cast(tf.strings.to_number(word), tf.int64),
                   tf.cast(tf.raw_ops.Bucketize(input=x, boundaries=[1.0]), tf.int64) + 5]
            return {"y": tf.add_n([tf.squeeze(tf.gather(self.table, i), 1) for i in ids]) + tf.math.digamma(x)}
    scores, out = Scores(), tmp_path / "out"
    tf.saved_model.save(scores, str(tmp_path / "model"), signatures=scores.__call__)
    assert cli.main(["convert", str(tmp_path / "model"), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    problems = {line.split(" '")[0].strip(): line for line in told.splitlines() if "expected" in line}
    assert problems.keys() == {"StringLower", "StringJoin", "LookupTableFindV2", "Bucketize", "StringToNumber",
                               "ResourceGather", "Digamma"}
    assert told.count("Bucketize '") == 2 and "got float64" in told and "got what is computed of columns" in told
    assert "expected a table whose ids follow one another, but for one, got 3 and 9" in problems["LookupTableFindV2"]
    assert "got arithmetic on ids" in problems["ResourceGather"]  # intervals that are shifted
    assert "transforms_of" in problems["StringLower"] and not out.exists()


@pytest.mark.parametrize("type", ["string", "int64"])
def test_values_that_the_model_refuses(type, tmp_path):
    """Without buckets for others, Keras asserts that there are none."""
    lookup = layers.StringLookup if type == "string" else layers.IntegerLookup
    values, other = (["a", "b", "c"], "z") if type == "string" else ([5, -7, 9], 4)
    x = keras.Input((1,), dtype=type, name="x")
    ids = lookup(vocabulary=values, num_oov_indices=0)(x)
    saved(tmp_path / "model", keras.Model(x, layers.Flatten()(layers.Embedding(3, 2)(ids))))
    exported = wr.keras.export(tmp_path / "model")
    given = np.array(values, object if type == "string" else np.int64)
    np.testing.assert_array_equal(exported.transforms.run({"x": given})["x"], [0, 1, 2])
    assert exported.check({"x": given[:, None]})["output_0"].largest <= 1e-6
    assert exported.check()["output_0"].largest <= 1e-6
    with pytest.raises(wr.InvalidArgument, match="feature 'x', row 0: expected a value of the vocabulary, got"):
        exported.transforms.run({"x": [other]})


def test_columns_that_nothing_reads(tmp_path):
    class Scores(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec(*of) for of in (
            ([None], tf.string, "word"), ([None], tf.int64, "unread"), ([None, 2], tf.float32, "x"))])
        def __call__(self, word, unread, x):
            return {"y": tf.reduce_sum(x, 1)}
    scores = Scores()
    tf.saved_model.save(scores, str(tmp_path / "model"), signatures=scores.__call__)
    exported = wr.keras.export(tmp_path / "model")
    assert exported.transforms is None and exported.check()["y"].largest <= 1e-6
    exported.save(tmp_path / "out")


def test_encoded_ids_and_numbers(columns, trained, tmp_path):
    names = ["word", "city", "number", "hour", "price"]
    word, city, number, hour, price = inputs = [keras.Input((1,), dtype=TYPES[name], name=name) for name in names]
    fields = [layers.StringLookup(vocabulary=WORDS, output_mode="one_hot")(word),
              layers.StringLookup(vocabulary=WORDS, num_oov_indices=3, output_mode="multi_hot")(city),
              layers.StringLookup(vocabulary=WORDS, output_mode="count")(city), layers.Hashing(
                  9, output_mode="one_hot")(number), layers.CategoryEncoding(40, output_mode="multi_hot")(hour),
              layers.Discretization([0.5], output_mode="one_hot")(price),
              layers.Flatten()(layers.Embedding(3, 2)(layers.Discretization([-1.0, 1.0])(price)))]
    scores = layers.Dense(2, name="head")(layers.Concatenate()(fields))
    given = given_to(columns, names)
    given["hour"] %= 40
    saved(tmp_path / "model", trained(keras.Model(inputs, scores)))
    exported = wr.keras.export(tmp_path / "model")
    assert exported.check()["output_0"].largest <= 1e-5 and exported.check(given)["output_0"].largest <= 1e-5
    assert {"word", "number", "hour", "city_encode", "price_encode"} <= set(exported.transforms.features)


def categories(folder):
    fc = tf.feature_column
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    city = fc.categorical_column_with_hash_bucket("city", 20)
    group = fc.bucketized_column(fc.numeric_column("price"), [0.5, 2.5])
    of_file = fc.categorical_column_with_vocabulary_file("tag", str(folder / "words.txt"), num_oov_buckets=4)
    return [city, fc.categorical_column_with_vocabulary_list("word", WORDS), of_file,
            fc.categorical_column_with_hash_bucket("number", 30, tf.int64),
            fc.categorical_column_with_vocabulary_list("hour", [-3, 7, 8], tf.int64),
            fc.categorical_column_with_identity("film", 30, default_value=3),
            fc.crossed_column(["city", group], 50), fc.crossed_column(["tag", "city"], 70, hash_key=9)]


def estimator(folder, receiver, columns):
    """Saves what an estimator of TensorFlow 1 does; receiver: gives inputs, and of each column its tensor."""
    fc, v1 = tf.feature_column, tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(5)
        inputs, given = receiver()
        x = v1.feature_column.input_layer(given, columns)
        y = tf.sigmoid(tf.matmul(x, v1.get_variable("head/kernel", [x.shape[1], 1])))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.saved_model.simple_save(session, str(folder / "model"), inputs, {"ctr": y},
                                   legacy_init_op=v1.tables_initializer())


def columns_of(of):
    fc = tf.feature_column
    return [*(fc.embedding_column(c, 4, combiner) for c, combiner in zip(of, ["mean", "sum", "sqrtn"] * 3)),
            fc.indicator_column(of[1]), fc.numeric_column("price"), of[6].keys[1]]


def test_feature_columns(columns, tmp_path):
    """Of a tensor [batch, 1] for each column."""
    of = categories(tmp_path)

    def receiver():
        given = {name: tf.compat.v1.placeholder(type, [None, 1], name) for name, type in TYPES.items()}
        return given, given
    estimator(tmp_path, receiver, columns_of(of))
    exported = wr.keras.export(tmp_path / "model")
    columns["price"] = np.where(np.isfinite(columns["price"]), columns["price"], 0).clip(-9, 9)
    given = given_to(columns, TYPES)
    assert exported.check()["ctr"].largest <= 1e-5 and exported.check(given)["ctr"].largest <= 1e-5
    exported.save(tmp_path / "out")
    assert cli.main(["check", str(tmp_path / "out"), "--most-difference", "1e-5"]) == 0
    found = [ids.tobytes() for ids in exported.transforms.run(columns).values()]
    for column in of:
        ids = wr.keras.transforms_of([column], dense=list(TYPES)).run(columns)[column.name]
        if isinstance(ids, wr.Ragged):  # without those that mean none, which are -1 here
            padded = np.full(ROWS, -1)
            padded[np.diff(ids.offsets) == 1] = ids.values
            ids = padded
        assert ids.tobytes() in found, column.name


def test_examples(columns, rng, tmp_path):
    """Of serialized tf.Examples, where columns have any number of values a row, but for those of numbers."""
    of = categories(tmp_path)
    columns["price"] = np.where(np.isfinite(columns["price"]), columns["price"], 0).clip(-9, 9)
    data = {"price": columns.pop("price")}
    for name, values in columns.items():
        ends = np.sort(rng.integers(0, ROWS, ROWS // 2))
        data[name] = np.split(values, ends)[:ROWS // 2]
    data["price"] = data["price"][:ROWS // 2]

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None], "examples")
        spec = tf.feature_column.make_parse_example_spec(columns_of(of))
        return {"examples": examples}, tf.io.parse_example(examples, spec)
    estimator(tmp_path, receiver, columns_of(of))
    exported = wr.keras.export(tmp_path / "model", axes=dict.fromkeys(TYPES, "user"))
    assert exported.check()["ctr"].largest <= 1e-5
    assert exported.check(data | {"price": data["price"][:, None]})["ctr"].largest <= 1e-5
    # The ids of the columns themselves.
    made = exported.transforms.run(data)
    found = [ids.values.tobytes() for ids in made.values() if isinstance(ids, wr.Ragged)]
    for column in of:
        ids = wr.keras.transforms_of([column]).run(data)[column.name]
        assert ids.values.tobytes() in found, column.name
    # From logs to scores, by the commands alone; the model's own of Examples that are not made by the package.
    rows = [{name: np.ravel(data[name][i]).tolist() for name in data} for i in range(200)]
    lists = {str: ("bytes_list", tf.train.BytesList), int: ("int64_list", tf.train.Int64List)}
    examples = [tf.train.Example(features=tf.train.Features(feature={
        name: tf.train.Feature(**{kind: of_kind(value=[v.encode() if isinstance(v, str) else v for v in values])})
        for name, values in row.items()
        for kind, of_kind in [lists.get(type(values[0]) if values else int, ("float_list", tf.train.FloatList))]
        if values})).SerializeToString() for row in rows]
    wanted = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"](tf.constant(examples))["ctr"]
    table = {name: [row[name] if name != "price" else row[name][0] for row in rows] for name in data}
    parquet.write_table(pyarrow.table(table), tmp_path / "rows.parquet")
    out = tmp_path / "out"
    assert cli.main(["convert", str(tmp_path / "model"), "--out", str(out)]) == 0
    assert cli.main(["check", str(out), "--most-difference", "1e-5"]) == 0
    assert cli.main(["score", str(out), "--data", str(tmp_path / "rows.parquet"), "--out",
                     str(tmp_path / "scores.parquet"), "--quiet"]) == 0
    scores = parquet.read_table(tmp_path / "scores.parquet")["ctr"].to_numpy()
    np.testing.assert_allclose(scores, np.ravel(wanted), rtol=0, atol=1e-5)


def test_keras_2(columns, tmp_path):
    """Its layers, and feature columns as a layer of it."""
    import tf_keras
    layers, fc = tf_keras.layers, tf.feature_column
    inputs = {name: tf_keras.Input((1,), dtype=TYPES[name], name=name) for name in ("word", "city", "number", "price")}
    word, city, number, price = inputs.values()
    city_hash = fc.categorical_column_with_hash_bucket("city", 20)
    group = fc.bucketized_column(fc.numeric_column("price"), [0.5, 2.5])
    dense = layers.DenseFeatures([
        fc.embedding_column(city_hash, 4), fc.indicator_column(city_hash), group,
        fc.embedding_column(fc.categorical_column_with_identity("number", 30, default_value=3), 4, "sum"),
        fc.embedding_column(fc.crossed_column(["city", group], 50), 4)])(inputs)
    ids = [(layers.StringLookup(vocabulary=WORDS, num_oov_indices=4, mask_token="")(word), 14),
           (layers.Hashing(30, mask_value=7)(number), 30), (layers.HashedCrossing(70)([word, number]), 70),
           (layers.IntegerLookup(vocabulary=[-40, 7], num_oov_indices=3)(number), 5)]
    fields = [dense, layers.StringLookup(vocabulary=WORDS, output_mode="multi_hot")(word),
              *(layers.Flatten()(layers.Embedding(n, 4)(of)) for of, n in ids)]
    model = tf_keras.Model(inputs, layers.Dense(1, activation="sigmoid", name="ctr")(layers.Concatenate()(fields)))
    model.save(str(tmp_path / "model"), save_format="tf")
    exported = wr.keras.export(tmp_path / "model")
    columns["price"] = np.where(np.isfinite(columns["price"]), columns["price"], 0).clip(-9, 9)
    assert exported.check()["ctr"].largest <= 1e-5
    assert exported.check(given_to(columns, inputs))["ctr"].largest <= 1e-5


def test_what_examples_cannot_have(tmp_path):
    fc = tf.feature_column
    tags = fc.categorical_column_with_hash_bucket("tags", 20)
    column = fc.embedding_column(fc.weighted_categorical_column(tags, "weights"), 4)

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None], "examples")
        return {"examples": examples}, tf.io.parse_example(examples, fc.make_parse_example_spec([column]))
    estimator(tmp_path, receiver, [column])
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(tmp_path / "model")
    assert sorted(p.what for p in raised.value.problems) == ["input 'tags'", "input 'weights'"]
    assert "transforms_of" in raised.value.problems[0].expected


@pytest.mark.parametrize("kind", ["pooled", "sequence", "default"])
def test_examples_that_users_parse(kind, tmp_path):
    """Sequences of ids that are not pooled are told, and a row's default in the place of zeros."""
    class Scores(tf.Module):
        def __init__(self):
            self.table = tf.Variable(tf.random.normal([20, 4], seed=3), name="rows")

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
        def __call__(self, examples):
            parsed = tf.io.parse_example(examples, {
                "tags": tf.io.VarLenFeature(tf.string), "x": tf.io.FixedLenFeature([2], tf.float32)})
            tags = parsed["tags"]
            ids = tf.SparseTensor(tags.indices, tf.strings.to_hash_bucket_fast(tags.values, 20), tags.dense_shape)
            if kind == "sequence":
                made = tf.reduce_max(tf.gather(self.table, tf.sparse.to_dense(ids)), 1)
            else:
                made = tf.nn.safe_embedding_lookup_sparse(self.table, ids, default_id=3 if kind == "default" else None)
            return {"y": tf.reduce_sum(made, 1) + tf.reduce_sum(parsed["x"], 1)}
    scores = Scores()
    tf.saved_model.save(scores, str(tmp_path / "model"), signatures=scores.__call__)
    if kind != "pooled":
        with pytest.raises(wr.InvalidArgument, match="input 'tags': expected hash buckets, .*got another use of it"):
            wr.keras.export(tmp_path / "model")
        return
    exported = wr.keras.export(tmp_path / "model")
    batch = {"tags": [["a", "b", "a"], [], ["ü"]], "x": np.float32([[1, 2], [3, 4], [5, 6]])}
    assert exported.check()["y"].largest <= 1e-5 and exported.check(batch)["y"].largest <= 1e-5
    with pytest.raises(wr.InvalidArgument, match="batch: input 'tags': expected text, got"):
        exported.check(batch | {"tags": [[1], [2], [3]]})
