# SPDX-License-Identifier: Apache-2.0
"""Scores against NumPy, from every form of columns; and what is said of wrong ones."""

import re
import runpy
import sys
import threading
import time

import cards
import numpy as np
import pytest
from rank_films import din_mmoe, made_up_users

import warprank as wr
from warprank import _core, columns

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


def clicks(b):
    user = b.axis("user")
    item = b.axis("item", user)
    genres = b.axis("genres", item)
    x = b.concat([b.expand(b.dense("context", user, 2), item), b.expand(b.dense("age", user, 1, default_value=3), item),
                  b.embed(b.ids("film_id", item), b.table("film", dim=4)),
                  b.embed_bag(b.ids("genre", genres), b.table("genre", dim=4), "sum")])
    return {"ctr": b.sigmoid(b.linear("head", x, 1)), "both": b.linear("two", x, 2)}


LENGTHS, GENRES = [2, 0, 3], [1, 0, 2, 2, 1]


class Case:
    def __init__(self, rng):
        self.plan = wr.compile(clicks)
        self.weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in self.plan.parameters}
        self.tables = {"film": rng.normal(size=(10, 4)).astype(np.float32),
                       "genre": rng.normal(size=(5, 4)).astype(np.float32)}
        self.model = wr.bind(self.plan, wr.Weights.from_arrays(self.weights),
                             wr.Tables.load(self.plan, wr.Weights.from_arrays(self.tables)))
        self.offsets = np.cumsum([0] + LENGTHS)
        self.genre_offsets = np.cumsum([0] + GENRES)
        self.context = rng.normal(size=(3, 2)).astype(np.float32)
        self.age = rng.normal(size=3).astype(np.float32)
        self.film = rng.integers(0, 10, 5)
        self.genre = rng.integers(0, 5, 6)
        self.data = {"context": self.context, "age": self.age, "film_id": (self.film, self.offsets),
                     "genre": wr.Ragged(self.genre, self.genre_offsets)}
        bags = np.stack([self.tables["genre"][self.genre[b:e]].sum(0)
                         for b, e in zip(self.genre_offsets, self.genre_offsets[1:])])
        own = np.repeat(np.column_stack([self.context, self.age]), LENGTHS, 0)
        self.x = np.column_stack([own, self.tables["film"][self.film], bags])
        logits = self.x @ self.weights["head.weight"].T + self.weights["head.bias"]
        self.expected = 1 / (1 + np.exp(-logits[:, 0]))
        self.both = self.x @ self.weights["two.weight"].T + self.weights["two.bias"]

    def nested(self, values, offsets):
        return [list(values[b:e]) for b, e in zip(offsets, offsets[1:])]


@pytest.fixture
def case(rng):
    return Case(rng)


def check(case, scores):
    assert list(scores) == ["both", "ctr"] or list(scores) == ["ctr", "both"]
    np.testing.assert_allclose(scores["ctr"], case.expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(scores["both"], case.both, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(scores.offsets["ctr"], case.offsets)
    np.testing.assert_array_equal(scores.of("ctr", 2), scores["ctr"][2:])
    assert scores.failed == {}


def test_values_with_offsets(case):
    check(case, case.model.score(case.data))


def test_offsets_apart(case):
    data = case.data | {"film_id": case.film, "genre": case.genre}
    check(case, case.model.score(data, offsets={"item": case.offsets, "genres": list(case.genre_offsets)}))


def test_lists_of_lists(case):
    genre = case.nested(case.nested(case.genre, case.genre_offsets), case.offsets)
    check(case, case.model.score(case.data | {"film_id": case.nested(case.film, case.offsets), "genre": genre}))


def test_pandas(case):
    frame = pd.DataFrame({"label": [0, 1, 0], "age": case.age, "context": list(case.context)})
    frame["film_id"] = [case.film[b:e] for b, e in zip(case.offsets, case.offsets[1:])]
    frame["genre"] = case.nested(case.nested(case.genre, case.genre_offsets), case.offsets)
    check(case, case.model.score(frame))


def arrow_table(case):
    genre = pa.ListArray.from_arrays(pa.array(case.genre_offsets, pa.int32()), pa.array(case.genre))
    return pa.table({
        "label": [0, 1, 0], "age": case.age,
        "context": pa.FixedSizeListArray.from_arrays(pa.array(case.context.ravel()), 2),
        "film_id": pa.LargeListArray.from_arrays(pa.array(case.offsets), pa.array(case.film)),
        "genre": pa.ListArray.from_arrays(pa.array(case.offsets, pa.int32()), genre)})


def test_arrow(case):
    check(case, case.model.score(arrow_table(case)))
    check(case, case.model.score(arrow_table(case).to_batches()[0]))
    check(case, case.model.score(arrow_table(case).to_pandas(types_mapper=pd.ArrowDtype)))


def test_slices_and_chunks_of_arrow(case):
    table = arrow_table(case)
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 2)])
    check(case, case.model.score(chunked))
    for cut in (table.slice(2, 1), table.to_batches()[0].slice(2, 1)):
        np.testing.assert_allclose(case.model.score(cut)["ctr"], case.expected[2:], atol=2e-6)


def test_rectangles(case):
    data = {"context": case.context, "film_id": np.arange(6).reshape(3, 2), "genre": np.zeros((3, 2, 1), np.int32)}
    ragged = {
    "context": case.context, "film_id": (
        np.arange(6), [
            0, 2, 4, 6]), "genre": (
                np.zeros(
                    6, int), np.arange(7))}
    expected = case.model.score(ragged | {"age": [3, 3, 3]})  # the default of age
    np.testing.assert_array_equal(case.model.score(data)["ctr"], expected["ctr"])


def test_other_types_become_those_of_the_engine(case):
    data = case.data | {"context": case.context.astype(np.float64), "age": case.age.astype(">f4"),
                        "film_id": (case.film.astype(np.int16), case.offsets.astype(np.uint8)),
                        "genre": (case.genre.astype(np.uint64)[::-1][::-1], case.genre_offsets)}
    check(case, case.model.score(data))


def test_ids_without_a_sign_are_no_padding(case):
    wanted = columns.inputs_of(case.plan)
    largest = np.array([2**64 - 1, 2**64 - 2, 5], np.uint64)
    for name, table in [(n, i) for n, i in wanted.items() if i.kind == "ids"]:
        assert columns._ids(largest, table.pads_minus_one).tolist() == [-2 if table.pads_minus_one else -1, -2, 5]
        assert columns._ids(np.array([-1, 5]), table.pads_minus_one).tolist() == [-1, 5]
    assert all(i.pads_minus_one for i in wanted.values() if i.kind == "ids"), "all tables are direct"

    def hashed(b):
        return {"x": b.embed(b.ids("key", b.axis("user")), b.hashed_table("t", dim=2))}
    assert not columns.inputs_of(wr.compile(hashed))["key"].pads_minus_one


def test_offsets_are_told_as_they_came(case):
    for offsets, got in [(np.array([0, 2**63, 2**63], np.uint64), "expected offsets below 2^63, got 9223372036854775808"),
                         (np.array([0.5, 1, 2]), "expected integers as offsets, got float64 values")]:
        with pytest.raises(wr.InvalidArgument, match=re.escape(got)):
            case.model.score(case.data | {"film_id": (case.film, offsets)})
        with pytest.raises(wr.InvalidArgument, match=re.escape("offsets of axis 'item': " + got)):
            case.model.score({"context": case.context}, offsets={"item": offsets})


def test_what_lies_as_it_is_read_is_not_copied(case):
    wanted = columns.inputs_of(case.plan)
    flat = columns._flatten((case.film, case.offsets), wanted["film_id"])
    assert np.shares_memory(columns._ids(flat.values, True), case.film) and flat.offsets[0] is case.offsets
    rows = case.context
    assert np.shares_memory(columns._dense(columns._flatten(rows, wanted["context"]).values, 2), rows)
    large = pa.LargeListArray.from_arrays(pa.array(case.offsets), pa.array(case.film))
    values = columns._flatten(large, wanted["film_id"]).values
    assert values.__array_interface__["data"][0] == large.values.buffers()[1].address


def test_threads_and_batches_do_not_change_a_bit(rng):
    plan = wr.compile(clicks)
    case = Case(rng)
    lengths = rng.integers(0, 9, 500)
    film = rng.integers(0, 10, lengths.sum())
    data = {"context": rng.normal(size=(500, 2)), "film_id": (film, np.cumsum([0, *lengths])),
            "genre": (film % 5, np.arange(len(film) + 1))}
    one = case.model.score(data)
    assert plan.outputs == ["ctr", "both"]
    for threads, rows in ((1, 1), (2, 50), (3, 7), (0, 4096)):
        scores = case.model.score(data, threads=threads, rows_per_batch=rows)
        np.testing.assert_array_equal(scores["both"], one["both"])
        np.testing.assert_array_equal(scores.offsets["both"], one.offsets["both"])
    context = case.model.context()
    np.testing.assert_array_equal(context.score(data)["ctr"], one["ctr"])
    counters = context.counters()
    assert counters["embed.film_id"]["ids"] == len(film) and counters["embed.film_id"]["out_of_range"] == 0


def test_no_requests(case):
    scores = case.model.score({"context": np.empty((0, 2)), "film_id": ([], [0]), "genre": (np.empty(0, int), [0])}
                              | {"film_id": (np.empty(0, int), [0])})
    assert scores["ctr"].shape == (0,) and scores["both"].shape == (0, 2) and list(scores.offsets["ctr"]) == [0]


def test_other_threads_of_python_go_on(case):
    lengths = np.full(20000, 20)
    film = np.zeros(lengths.sum(), np.int64)
    data = {"context": np.zeros((20000, 2), np.float32), "film_id": (film, np.cumsum([0, *lengths])),
            "genre": (film, np.arange(len(film) + 1))}
    cols = columns.columns_of(case.plan, data, {})
    done = threading.Event()
    ticks = 0

    def score():
        case.model._core.score(cols, 1, 4096)
        done.set()

    thread = threading.Thread(target=score)
    thread.start()
    while not done.is_set():
        time.sleep(0.0005)
        ticks += 1
    thread.join()
    assert ticks > 3


def test_wrong_requests_are_told_and_do_not_disturb_others(case):
    case.context[1, 0] = np.nan
    with pytest.raises(wr.InvalidArgument, match="request 1: expected one that can be scored, got .*context"):
        case.model.score(case.data)
    scores = case.model.score(case.data, errors="keep")
    assert list(scores.failed) == [1]
    np.testing.assert_allclose(scores["ctr"], case.expected, atol=2e-6)  # it has no items


def test_all_that_is_wrong_with_columns_is_told_together(case):
    with pytest.raises(wr.InvalidArgument) as raised:
        case.model.score({"contxt": case.context, "age": ["young", "old", "older"],
                          "film_id": (case.film * 0.5, case.offsets),
                          "genre": np.zeros((3, 2, 2, 2), int)})
    assert [(p.what, p.got) for p in raised.value.problems] == [
        ("column 'contxt'", "none of that name (did you mean 'context'?)"), ("column 'age'", "<U5 values"),
        ("column 'film_id'", "float64 values"), ("column 'genre'", "an array of shape [3, 2, 2, 2]")]


@pytest.mark.parametrize("as_table", [False, True])
def test_columns_that_are_missing_are_told_together(case, as_table):
    """Once, and not for each request; those of which no row is wanted may be missing."""
    data = {"contxt": case.context, "film": case.nested(case.film, case.offsets), "age": case.age,
            "genre": case.nested(case.nested(case.genre, case.genre_offsets), case.offsets)}
    if as_table:
        data = pd.DataFrame({name: list(column) for name, column in data.items()})
    else:
        del data["contxt"], data["film"]
    near = {"context": " (did you mean 'contxt'?)", "film_id": " (did you mean 'film'?)"} if as_table else {}
    with pytest.raises(wr.InvalidArgument) as raised:
        case.model.score(data, errors="keep")
    assert sorted((p.what, p.expected, p.got) for p in raised.value.problems) == [
        (f"column '{name}'", f"{rows} rows, since it has no default", "none" + near.get(name, ""))
        for name, rows in (("context", 3), ("film_id", 5))]
    no_items = case.model.score({"context": case.context}, {"item": [0, 0, 0, 0]})
    assert no_items["ctr"].shape == (0,)


@pytest.mark.parametrize("change, message", [
    ({"film_id": (np.arange(5), [0, 2, 1, 5])},
     "offsets of axis 'item': expected 4 from 0 on that never decrease, got 1 "),
    ({"film_id": (np.arange(4), [0, 2, 2, 5])}, "ids 'film_id': expected 5 rows, as axis 'item' has, got 4"),
    ({"film_id": (np.arange(5), [0, 5])}, "requests: expected as many in all columns, got 3 in 'context'"),
    ({"context": np.zeros((3, 3))},
     "dense 'context': expected 3 rows, as axis 'user' has, of 2 columns, got 3 rows of 3"),
    ({"age": ([1, 2, 3], [0, 1, 2, 3])}, "column 'age': expected one row for each request"),
    ({"film_id": [1, 2, 3]},
     "column 'film_id': expected a sequence of rows for each row of the axis above, 1 deep, got int"),
    ({"film_id": pa.array([[1, 2], None, [3, 4, 5]])}, "column 'film_id': expected no nulls, got 1 of them"),
])
def test_columns_that_do_not_fit(case, change, message):
    with pytest.raises(wr.InvalidArgument) as raised:
        case.model.score(case.data | change)
    assert message in str(raised.value)


def test_offsets_of_one_axis_must_agree(case):
    plan = wr.compile(din_mmoe)
    users = made_up_users(3, 4)
    users["hist_rating"] = (users["hist_rating"][0], np.maximum(users["hist_rating"][1] - 1, 0))
    with pytest.raises(wr.InvalidArgument, match="offsets of axis 'history': expected those of 'hist_film_id'"):
        columns.columns_of(plan, users, {})


def small_model(b):
    user = b.axis("user")
    history = b.axis("history", user)
    films = b.table("film", dim=4, rows=10)
    seen = b.embed_bag(b.ids("seen", history), films, "sum")
    rated = b.pool(b.dense("rating", history, 2), "sum")
    x = b.concat([b.embed(b.ids("film", user), films), seen, rated, b.dense("age", user, 1)])
    return {"score": b.linear("out", x, 1)}


def small_batch():
    offsets = np.array([0, 2, 2, 5])
    return {"film": np.array([1, 2, 3]), "age": np.ones((3, 1), np.float32),
            "seen": wr.Ragged(np.arange(5), offsets), "rating": wr.Ragged(np.ones((5, 2), np.float32), offsets.copy())}


@pytest.mark.parametrize("name, column", [
    ("film", [1, 2, 3]), ("film", np.array([1, 2, 3], np.int32)), ("film", np.array([1, 2, 3], np.uint64)),
    ("film", np.array([1, 0, 2, 0, 3, 0])[::2]), ("age", np.ones(3, np.float32)), ("age", np.ones((3, 1))),
    ("seen", [[0, 1], [], [2, 3, 4]]), ("seen", (np.arange(5), [0, 2, 2, 5])),
    ("seen", wr.Ragged(np.arange(5), [0, 2, 2, 5])), ("seen", wr.Ragged(list(range(5)), np.array([0, 2, 2, 5]))),
])
def test_arrays_that_lie_as_they_are_read_give_what_others_give(name, column):
    plan, batch = wr.compile(small_model), small_batch()
    weights = wr.Weights.from_arrays({"out.weight": np.arange(11, dtype=np.float32)[None], "out.bias": np.ones(1, np.float32)})
    tables = wr.Tables.load(plan, wr.Weights.from_arrays({"film": np.arange(40, dtype=np.float32).reshape(10, 4)}))
    model = wr.bind(plan, weights, tables)
    assert columns.columns_of(plan, batch, {}).num_requests == 3
    assert _core.Columns.as_read(plan, batch, wr.Ragged) is not None
    assert _core.Columns.as_read(plan, batch | {name: column}, wr.Ragged) is None
    np.testing.assert_array_equal(model.score(batch)["score"], model.score(batch | {name: column})["score"])
    films = np.arange(40).reshape(10, 4)
    x = np.concatenate([films[[1, 2, 3]], [films[:2].sum(0), films[:0].sum(0), films[2:5].sum(0)],
                        [[2, 2], [0, 0], [3, 3]], np.ones((3, 1))], 1)
    np.testing.assert_array_equal(model.score(batch)["score"], x @ np.arange(11) + 1)


@pytest.mark.parametrize("change, message", [
    ({"fil": np.arange(3)}, "column 'fil': expected an input of the model"),
    ({"film": np.arange(2)}, "requests: expected as many in all columns"),
    ({"age": np.ones((3, 2), np.float32)}, "dense 'age': expected 3 rows"),
    ({"seen": np.arange(4)}, "ids 'seen': expected 5 rows"),
    ({"seen": wr.Ragged(np.arange(5), np.array([0, 1, 2, 5]))}, "offsets of axis 'history': expected those of"),
    ({"seen": wr.Ragged(np.arange(4), np.array([0, 2, 2, 5]))}, "ids 'seen': expected 5 rows"),
    ({"film": None}, "column 'film'"),
])
def test_arrays_that_do_not_fit_are_told_as_others_are(change, message):
    plan, batch = wr.compile(small_model), small_batch() | change
    batch = {name: column for name, column in batch.items() if column is not None}
    with pytest.raises(wr.InvalidArgument, match=re.escape(message)):
        columns.columns_of(plan, batch, {})


def test_threads_change_no_score(case):
    alone, team = case.model.context().score(case.data), case.model.context(threads=2).score(case.data)
    assert list(alone) == list(team)
    for name in alone:
        np.testing.assert_array_equal(alone[name], team[name])
    with pytest.raises(wr.InvalidArgument, match="threads: expected 1 or more, got 0"):
        case.model.context(threads=0)


def test_taps_show_values(case):
    context = case.model.context(keep_intermediates=True)
    context.score(case.data)
    np.testing.assert_array_equal(context.tap("embed.film_id"), case.tables["film"][case.film])
    with pytest.raises(wr.InvalidArgument, match="keep_intermediates"):
        case.model.context().tap("embed.film_id")
    assert sum(case.model.memory().values()) > 0 and sum(context.memory().values()) > 0


def test_histories_keep_the_last(root):
    plan = wr.compile(din_mmoe)
    weights = root / "examples/movielens/weights"
    model = wr.bind(plan, wr.Weights.open(weights / "dense.safetensors"),
                    wr.Tables.load(plan, weights / "tables.safetensors"))
    users = made_up_users(2, 5)
    long = np.arange(1, 151)
    data = users | {"hist_film_id": (np.tile(long, 2), [0, 150, 300]),
                    "hist_rating": (np.tile(long % 5 + 1, 2), [0, 150, 300]),
                    "hist_genre": (np.tile(long % 19, 2), np.arange(301))}
    last = users | {"hist_film_id": np.tile(long, (2, 1))[:, 50:], "hist_rating": np.tile(long % 5 + 1, (2, 1))[:, 50:],
                    "hist_genre": np.tile(long % 19, (2, 1))[:, 50:, None]}
    np.testing.assert_array_equal(model.score(data)["ctr"], model.score(last)["ctr"])


def test_the_example_runs(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rank_films.py", "--weights",
                        str(root / "examples/movielens/weights"), "--users", "5"])
    runpy.run_path(str(root / "python/examples/rank_films.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "500 films for 5 users in" in out and out.count("P(rating >= 4)") == 5


def test_the_readme_tells_the_truth(root, tmp_path, monkeypatch, rng):
    code = re.search(r"^```python\n(.*?)^```", (root / "python/README.md").read_text(), re.M | re.S)[1]
    model = {"tower.0.weight": (16, 9), "tower.0.bias": (16,), "tower.1.weight": (1, 16), "tower.1.bias": (1,)}
    monkeypatch.chdir(tmp_path)
    wr.write_safetensors("dense.safetensors", {n: rng.normal(size=s).astype(np.float32) for n, s in model.items()})
    wr.write_safetensors("tables.safetensors", {"film": rng.normal(size=(9, 8)).astype(np.float32)})
    names = {"ages": np.arange(4.0), "film_ids": np.arange(9), "offsets": np.array([0, 2, 3, 3, 9])}
    exec(code, names)
    assert names["scores"].of("ctr", 3).shape == (6,)


def test_precisions(rng):
    def model(b):
        return {"y": b.linear("wide", b.dense("x", b.axis("user"), 33), 20)}

    plan = wr.compile(model)
    weights = {"wide.weight": rng.normal(size=(20, 33)).astype(np.float32), "wide.bias": np.zeros(20, np.float32)}
    x = rng.normal(size=(50, 33)).astype(np.float32)

    def bound(precision, weights=weights):
        tables = wr.Tables.load(plan, wr.Weights.from_arrays({}))
        return wr.bind(plan, wr.Weights.from_arrays(weights), tables, precision=precision)

    assert "precision fp32, as asked for" in bound("fp32").describe()
    sizes = np.abs(x) @ np.abs(weights["wide.weight"]).T
    for precision in "bf16", "automatic":
        model = bound(precision)
        difference = np.abs(model.score({"x": x})["y"] - bound("fp32").score({"x": x})["y"])
        is_bf16 = "precision bf16" in model.describe()
        assert (difference <= 2.0**-6.9 * sizes).all() and (difference.max() > 1e-4) == is_bf16
        if is_bf16:
            with pytest.raises(wr.InvalidArgument, match="weight 'wide.weight', element 0: .*the largest of BF16"):
                bound(precision, weights | {"wide.weight": np.full((20, 33), 3.4e38, np.float32)})
    model = bound("int8_weights")
    difference = np.abs(model.score({"x": x})["y"] - bound("automatic").score({"x": x})["y"])
    scales = np.abs(weights["wide.weight"]).max(axis=1) / 127
    assert "weights int8, as asked for" in model.describe()
    assert (difference <= np.abs(x).sum(axis=1, keepdims=True) * scales).all() and difference.max() > 1e-4
    with pytest.raises(wr.InvalidArgument, match="weight 'wide.weight', element 0: expected a .*, got nan"):
        bound("int8_weights", weights | {"wide.weight": np.full((20, 33), np.nan, np.float32)})
    with pytest.raises(wr.InvalidArgument, match="precision: expected fp32, bf16, int8_weights or automatic, got 'fp16'"):
        bound("fp16")


def test_devices_that_are_not_there_are_told(case):
    with pytest.raises(wr.InvalidArgument, match="device: expected host.*, got 'gpu'"):
        wr.Tables.load(case.plan, wr.Weights.from_arrays(case.tables), "gpu")


def test_columns_on_a_card_are_told(case):
    """Without a card nobody reads what is at these addresses."""
    def on_card(array, dtype=None, device=0):
        return cards.OnCard(array.ctypes.data, array.shape, dtype or array.dtype, device)

    def message(**columns):
        with pytest.raises(wr.InvalidArgument) as caught:
            case.model.score(case.data | columns)
        return str(caught.value)

    film, context = on_card(case.film), on_card(case.context)
    assert "on a device" in message(film_id=(film, case.offsets))
    assert film.asked == [1], "values are asked for behind the default stream's work"
    assert "expected 5 rows, as axis 'item' has, of int64, got [5] of int32" in message(
        film_id=(on_card(case.film, np.int32), case.offsets))
    assert "got [2] of int64" in message(film_id=(on_card(case.film[:2]), case.offsets))
    assert "dense 'context' on a device: expected 3 rows, as axis 'user' has, of 2 columns of float32, got [3, 2] of " \
           "float64" in message(context=on_card(case.context, np.float64))
    assert "on a device" in message(context=context, age=on_card(case.age))
    offsets = on_card(case.offsets)
    assert "expected values in the host's memory, or one array of all rows on a device" in message(
        film_id=(case.film, offsets))
    with pytest.raises(wr.InvalidArgument, match="on a device|on a GPU"):
        case.model.context().score_on_device(case.data)


def test_an_axis_of_which_only_those_below_have_inputs(rng):
    def model(b):
        item = b.axis("item", b.axis("user"))
        bag = b.embed_bag(b.ids("tags", b.axis("tags", item)), b.table("tag", dim=1), "sum")
        return {"sum": bag}
    plan = wr.compile(model)
    values = rng.normal(size=(5, 1)).astype(np.float32)
    bound = wr.bind(plan, wr.Weights.from_arrays({}), wr.Tables.load(plan, wr.Weights.from_arrays({"tag": values})))
    scores = bound.score({"tags": ([1, 2, 3, 4], [0, 2, 2, 3, 4])}, {"item": [0, 3, 3, 4]})
    np.testing.assert_allclose(scores["sum"], [values[1, 0] + values[2, 0], 0, values[3, 0], values[4, 0]], atol=1e-6)
    assert scores.offsets["sum"].tolist() == [0, 3, 3, 4]
    with pytest.raises(wr.InvalidArgument, match="column 'tags': expected 2 rows, since it has no default, got none"):
        bound.score({}, {"item": [0, 1], "tags": [0, 2]})
