# SPDX-License-Identifier: Apache-2.0
"""From the text of logs to scores: rows of Criteo's layout through a Keras model with its preprocessing layers, by the
commands alone."""

import random
import sys
from pathlib import Path

import keras
import models
import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import tensorflow as tf
from keras import layers

import warprank as wr
import warprank.keras
from warprank import cli

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/ids")]
import criteo_sample  # noqa: E402

DIN_AXES = {"history": "user/history[]", "film_id": "user/item", "age": "user"}
NAMES = ["label", *criteo_sample.INTEGERS, *criteo_sample.WORDS]


@pytest.fixture
def rows():
    generator = random.Random(5)
    return [criteo_sample.row(generator) for _ in range(500)]


def columns_of(rows):
    """As tf.data reads them from text."""
    fields = dict(zip(NAMES, zip(*(row.split("\t") for row in rows))))
    numbers = {n: np.float32([float(x or "nan") for x in fields[n]])[:, None] for n in criteo_sample.INTEGERS}
    return numbers | {n: np.array(fields[n], object)[:, None] for n in criteo_sample.WORDS}


@pytest.mark.parametrize("name", ["model.keras", "saved_model"])
def test_from_text_to_scores(name, rows, trained, tmp_path, capsys):
    model = trained(models.criteo_deepfm(criteo_sample.BUCKETS + 1))
    if name == "model.keras":
        model.save(tmp_path / name)
    else:
        model.export(str(tmp_path / name), verbose=False)
    data, out, scores = tmp_path / "day.tsv", tmp_path / "served", tmp_path / "scores.parquet"
    data.write_text("".join(row + "\n" for row in rows))
    assert cli.main(["convert", str(tmp_path / name), "--out", str(out), "--output", "ctr"]) == 0
    assert cli.main(["check", str(out), "--most-difference", "1e-5"]) == 0
    assert cli.main(["score", str(out), "--data", str(data), "--columns", ",".join(NAMES), "--keep", "label", "--out",
                     str(scores), "--quiet"]) == 0
    given = columns_of(rows)
    wanted = model({name: tf.constant(column) for name, column in given.items()}).numpy().reshape(-1)
    made = parquet.read_table(scores)
    assert made["label"].to_pylist() == [row[0] for row in rows]
    np.testing.assert_allclose(made["ctr"].to_numpy(), wanted, rtol=0, atol=1e-5)
    # With what Keras expects in the file, as `check` takes it.
    named = tmp_path / "expected.tsv"
    named.write_text("".join("\t".join(line) + "\n" for line in [
        ["expected.ctr", "label.ctr", *NAMES[1:]],
        *([repr(float(score)), *row.split("\t")] for score, row in zip(wanted, rows))]))
    capsys.readouterr()
    assert cli.main(["check", str(out), "--batch", str(named), "--most-difference", "1e-5"]) == 0
    assert "ctr: 500 scores, differ by" in capsys.readouterr().out


def test_ids_are_those_of_keras_and_of_python(rows):
    model = models.criteo_deepfm(criteo_sample.BUCKETS + 1)
    exported = wr.keras.export(model)
    given = columns_of(rows)
    made = exported.transforms.run({name: column.reshape(-1) for name, column in given.items()})
    assert made.keys() == {*criteo_sample.INTEGERS, *criteo_sample.WORDS}
    by_python = criteo_sample.ids_of(rows)
    for name, ids in made.items():
        np.testing.assert_array_equal(ids, by_python[name], name)
        layer = model.get_layer(("interval_" if name in criteo_sample.INTEGERS else "bucket_") + name)
        np.testing.assert_array_equal(ids, np.ravel(layer(tf.constant(given[name]))), name)
    assert exported.check(given)["output"].largest <= 1e-5


@pytest.mark.parametrize("is_saved", [False, True])
def test_lists_of_words(is_saved, rng, trained, tmp_path):
    """A user's history of words is padded in Keras and has any length in logs; each candidate is an item's word."""
    model = trained(models.din(words=["a", "b", "c", "d", "e"]))
    if is_saved:
        model.export(str(tmp_path / "saved"), verbose=False)
    exported = wr.keras.export(tmp_path / "saved" if is_saved else model, axes=DIN_AXES, outputs=["output"])
    assert exported.check()["output"].largest <= 1e-5
    assert sorted(exported.transforms.columns) == ["film_id", "history"]
    is_padding = exported._example["history"] == ""
    assert is_padding.any() and not is_padding[:, 0].any()
    films, histories = ["b", "e", "zzz"], [["a", "b"], [], ["c", "y", "d", "e"]]
    padded = np.array([events + [""] * (6 - len(events)) for events in histories], object)
    batch = {"film_id": np.array(films, object)[:, None], "history": padded, "age": np.float32([[1], [2], [3]])}
    wanted = model({name: tf.constant(array) for name, array in batch.items()}).numpy().reshape(-1)
    assert exported.check(batch)["output"].largest <= 1e-5
    exported.save(tmp_path / "din")
    table = {"film_id": [[film] for film in films], "history": histories, "age": [1.0, 2.0, 3.0]}
    parquet.write_table(pyarrow.table(table), tmp_path / "rows.parquet")
    assert cli.main(["score", str(tmp_path / "din"), "--data", str(tmp_path / "rows.parquet"), "--out",
                     str(tmp_path / "scores.parquet"), "--quiet"]) == 0
    made = parquet.read_table(tmp_path / "scores.parquet")["output"].to_pylist()
    np.testing.assert_allclose(np.ravel(made), wanted, rtol=0, atol=1e-5)


def test_features_of_columns_on_several_axes(rng, trained):
    city, film, hour = (keras.Input((1,), dtype=t, name=n) for n, t in (
        ("city", "string"), ("film", "string"), ("hour", "int64")))
    crossed = layers.HashedCrossing(50, name="city_film")([city, film])
    hours = layers.IntegerLookup(vocabulary=[7, 17], name="hours")(hour)
    ids = [(crossed, 50), (hours, 3), (layers.Hashing(30, salt=7, name="hashed")(film), 30), (hour, 24)]
    shares = layers.CategoryEncoding(3, output_mode="one_hot", name="shares")(hours)
    fields = [layers.Flatten()(layers.Embedding(n, 4)(x)) for x, n in ids] + [shares]
    model = trained(keras.Model([city, film, hour], layers.Dense(1)(layers.Concatenate()(fields))))
    exported = wr.keras.export(model, axes={"city": "user", "film": "user/item", "hour": "user"})
    assert sorted(exported.transforms.features) == ["city_film", "hashed", "hours", "shares"]
    paths = {i.name: i.axis for i in exported._inputs}
    assert paths == {"city_film": "user/item", "hours": "user", "hashed": "user/item", "shares": "user", "hour": "user"}
    batch = {"city": np.array(["a", "b", ""], object), "film": np.array(["x", "y", "z"], object), "hour": [7, 17, 3]}
    batch = {name: np.array(column)[:, None] for name, column in batch.items()}
    assert exported.check()["output"].largest <= 1e-5 and exported.check(batch)["output"].largest <= 1e-5
    with pytest.raises(wr.InvalidArgument, match="'city', 'film': expected columns on one axis, or above it, got"):
        wr.keras.export(model, axes={"city": "user/home", "film": "user/item", "hour": "user"})
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(model, axes={"city": "user", "film": "user/item", "hours": "user"})
    assert [p.what for p in raised.value.problems] == ["axes: input 'hour'", "axes: 'hours'"]


def test_what_preprocessing_cannot_be(trained):
    words, prices = keras.Input((3,), dtype="string", name="words"), keras.Input((2,), name="prices")
    ids = layers.Hashing(9, name="hashed")(words)
    groups = layers.Discretization([1.0], output_mode="int", name="groups")(prices)
    x = layers.Concatenate()([layers.Flatten()(layers.Embedding(9, 2)(i)) for i in (ids, groups)])
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(keras.Model([words, prices], layers.Dense(1)(x)))
    assert sorted((p.what, p.got) for p in raised.value.problems) == [
        ("layer 'groups' (Discretization)", "shape [None, 2] of 'prices'"),
        ("layer 'hashed' (Hashing)", "shape [None, 3] of 'words'")]


class Ranker(keras.Model):
    """A class of a user's own that begins with text."""

    def __init__(self, **options):
        super().__init__(**options)
        self.lookup = layers.StringLookup(vocabulary=["a", "b"], name="lookup")
        self.groups = layers.Discretization([1.0, 2.0], name="groups")
        self.city, self.age = layers.Embedding(3, 4, name="city_table"), layers.Embedding(3, 4, name="age_table")
        self.head = layers.Dense(2, name="head")

    def cleaned(self, words):
        return words

    def call(self, batch, training=False):
        x = self.city(self.lookup(self.cleaned(batch["city"]))) + self.age(self.groups(batch["age"]))
        return {"ctr": self.head(x)[:, 0], "cvr": self.head(x)[:, 1]}


class LowercaseRanker(Ranker):
    def cleaned(self, words):
        return tf.strings.lower(words)  # which keras.ops does not have


def city_batch():
    return {"city": np.array(["a", "b", "c", ""]), "age": np.float32([0.5, 1.5, 2.5, 1])}


def test_classes_with_preprocessing_layers(trained, tmp_path):
    """As of a functional model, and the class itself stays as it is."""
    model, batch = Ranker(), city_batch()
    before = {name: np.asarray(array) for name, array in model({n: tf.constant(a) for n, a in batch.items()}).items()}
    exported = wr.keras.export(model, axes={"city": "user", "age": "user/item"}, example_batch=batch)
    assert sorted(exported.transforms.features) == ["age", "city"]
    assert set(exported.tables) == {"city_table", "age_table"}
    for name, difference in exported.check(batch).items():
        assert difference.largest <= 1e-5
        np.testing.assert_allclose(exported.score(batch)[name], before[name], atol=1e-5)
    exported.save(tmp_path / "model")
    assert (tmp_path / "model/transforms.json").exists()
    model.save(tmp_path / "ranker.keras")
    loaded = keras.models.load_model(tmp_path / "ranker.keras", custom_objects={"Ranker": Ranker})
    np.testing.assert_array_equal(loaded({n: tf.constant(a) for n, a in batch.items()})["ctr"], before["ctr"])


def test_text_that_cannot_be_made_into_ids_is_told_with_its_op(tmp_path):
    model, batch = LowercaseRanker(), city_batch()
    model({n: tf.constant(a) for n, a in batch.items()})
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(model, example_batch=batch)
    (problem,) = raised.value.problems
    assert problem.what.startswith("StringLower '") and "transforms_of" in problem.expected
    price = keras.Input((1,), name="price")
    groups = layers.Discretization([1.0], name="groups")(layers.Rescaling(2.0)(price))
    with pytest.raises(wr.InvalidArgument, match="Bucketize .*: expected columns, and ids of them, got what is comp"):
        wr.keras.export(keras.Model(price, layers.Dense(1)(layers.Flatten()(layers.Embedding(2, 2)(groups)))))


def test_preprocessing_layers_within_others(trained):
    inner = keras.Sequential([keras.Input((1,), dtype="string"), layers.Hashing(9, name="hashed")], name="inner")
    words = keras.Input((1,), dtype="string", name="words")
    nested = trained(keras.Model(words, layers.Dense(1)(layers.Flatten()(layers.Embedding(9, 2)(inner(words))))))
    exported = wr.keras.export(nested)
    assert exported.transforms.features == ["words"]
    assert exported.check({"words": np.array([["a"], ["b"], [""]], object)})["output"].largest <= 1e-5


def test_ids_that_transforms_make_are_row_numbers():
    words = keras.Input((1,), dtype="string", name="words")
    film = layers.Embedding(3, 2, name="film")(layers.StringLookup(vocabulary=["a", "b"])(words))
    with pytest.raises(wr.InvalidArgument, match="hashed: 'film': expected a table of ids that are an input of the mo"):
        wr.keras.export(keras.Model(words, layers.Dense(1)(layers.Flatten()(film))), hashed={"film": [10, 20, 30]})


def test_transforms_of_a_model_that_has_its_own(trained, tmp_path, capsys):
    model = models.din(words=["a"])
    model.save(tmp_path / "din.keras")
    wr.keras.export(model, axes=DIN_AXES).transforms.save(tmp_path / "transforms.json")
    assert cli.main(["convert", str(tmp_path / "din.keras"), "--out", str(tmp_path / "out"), "--transforms",
                     str(tmp_path / "transforms.json"), *(f"--axis={n}={a}" for n, a in DIN_AXES.items())]) == 1
    assert "expected a model without preprocessing layers, got one that has them" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
