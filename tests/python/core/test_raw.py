# SPDX-License-Identifier: Apache-2.0
"""Files with the columns of logs, which transforms.json makes into a model's inputs: scored, and compared."""

import json
import os

import numpy as np
import pytest

import warprank as wr
from warprank import cli, folder, offline, raw

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 40  # requests
CITIES, GENRES = ["Bern", "Zürich", "Wien"], ["drama", "comedy", "war", "news"]


def clicks(b):
    user = b.axis("user")
    item = b.axis("item", user)
    tags = b.axis("tags", item)
    dim = 4
    own = b.concat([b.embed(b.ids("city", user), b.table("city", dim=dim)), b.dense("grid", user, 2),
                    b.embed(b.ids("age_group", user), b.table("age", dim=dim))])
    x = b.concat([b.expand(own, item), b.embed(b.ids("genre", item), b.table("genre", dim=dim)),
                  b.embed(b.ids("city_x_genre", item), b.table("cross", dim=dim)),
                  b.embed_bag(b.ids("tags", tags), b.table("tag", dim=dim), "sum",
                              weights=b.dense("tags.weights", tags, 1)),
                  b.embed(b.ids("film_id", item), b.table("film", dim=dim)),
                  b.dense("price", item, 1, default_value=0)])
    return {"ctr": b.sigmoid(b.linear("head", x, 1)), "taste": b.linear("own", own, 2)}


def of(*columns):
    return [{"column": c} for c in columns]


TRANSFORMS = {
    "format": "warprank.transforms", "version": 1, "scheme": "warprank-ids-1",
    "columns": [{"name": "city", "type": "text"}, {"name": "genre", "type": "text"}, {"name": "age", "type": "f32"},
                {"name": "words", "type": "text", "ragged": True}, {"name": "grid", "type": "f32", "width": 2},
                {"name": "strength", "type": "f32", "ragged": True}],
    "features": [
        {"name": "city", "op": "vocabulary", "of": of("city"), "settings": {"texts": CITIES, "default_id": 3}},
        {"name": "genre", "op": "vocabulary", "of": of("genre"), "settings": {"texts": GENRES}},
        {"name": "city_x_genre", "op": "cross", "of": of("city", "genre"), "settings": {"buckets": 50}},
        {"name": "words", "op": "hash", "of": of("words"), "settings": {"buckets": 30}},
        {"name": "tags", "op": "weigh", "of": [{"feature": "words"}, {"column": "strength"}]},
        {"name": "age_group", "op": "bucketize", "of": of("age"), "settings": {"boundaries": [20.0, 40.0]}},
        {"name": "grid", "op": "numbers", "of": of("grid"), "settings": {"mean": [1.0, 2.0], "divisor": [2.0, 4.0]}},
    ]}


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)])


def lists(offsets, values):
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


class Case:
    def __init__(self, rng, path, items=None):
        plan = wr.compile(clicks)
        weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in plan.parameters}
        rows = {"city": 4, "age": 3, "genre": 4, "cross": 50, "tag": 30, "film": 9}
        tables = {name: rng.normal(size=(n, 4)).astype(np.float32) for name, n in rows.items()}
        self.dir = str(path / "model")
        folder.write_folder(self.dir, plan.graph, weights, tables)
        self.transforms = wr.Transforms(TRANSFORMS)
        self.transforms.save(path / "model/transforms.json")
        self.model = wr.load(self.dir)
        self.items = offsets_of(rng.integers(0, 4, N) if items is None else np.full(N, items))
        count = self.items[-1]
        self.tags = offsets_of(rng.integers(0, 3, count))
        self.city = [[*CITIES, "Oslo"][i] for i in rng.integers(0, 4, N)]
        self.age = rng.uniform(10, 60, N).round(1)
        self.grid = rng.normal(size=(N, 2)).astype(np.float32)
        self.genre = [GENRES[i] for i in rng.integers(0, 4, count)]
        self.film = rng.integers(0, 9, count)
        self.words = [f"w{i}" for i in rng.integers(0, 100, self.tags[-1])]
        self.strength = rng.uniform(0.5, 2, self.tags[-1]).astype(np.float32)
        self.data, self.out = str(path / "log.parquet"), str(path / "scores.parquet")

    def write(self, table=None, name=None):
        pq.write_table(self.table() if table is None else table, name or self.data, row_group_size=15)

    def table(self):
        words, strength = lists(self.tags, pa.array(self.words)), lists(self.tags, pa.array(self.strength))
        return pa.table({
            "user": np.arange(N), "city": pa.array(self.city).dictionary_encode(), "age": self.age,
            "grid": pa.FixedSizeListArray.from_arrays(pa.array(self.grid.ravel()), 2),
            "genre": lists(self.items, pa.array(self.genre).dictionary_encode()),
            "film_id": lists(self.items, pa.array(self.film)), "words": lists(self.items, words),
            "strength": lists(self.items, strength)})

    def scores(self):
        """By ids that are made column by column."""
        user = np.repeat(np.arange(N), np.diff(self.items))
        all_items = wr.Transforms(TRANSFORMS).run({
            "city": [self.city[u] for u in user], "genre": self.genre, "age": self.age[user], "grid": self.grid[user],
            "words": (self.words, self.tags), "strength": (self.strength, self.tags)})
        groups = np.searchsorted([20.0, 40.0], self.age, side="right")
        cities = [CITIES.index(c) if c in CITIES else 3 for c in self.city]
        grid = (self.grid - np.float32([1, 2])) / np.float32([2, 4])
        tags = all_items["tags"]
        return self.model.score(
            {"city": cities, "age_group": groups, "grid": grid, "genre": all_items["genre"],
             "city_x_genre": all_items["city_x_genre"], "tags": tags.values,
             "tags.weights": all_items["tags.weights"].values, "film_id": self.film},
            {"item": self.items, "tags": tags.offsets})


@pytest.fixture
def case(rng, tmp_path):
    return Case(rng, tmp_path)


def run(*arguments):
    return cli.main([str(a) for a in arguments])


def flat(column):
    return np.array([x for row in column.to_pylist() for x in row], np.float32)


def test_rows_with_lists(case):
    case.write()
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--keep", "user", "--quiet") == 0
    table, wanted = pq.read_table(case.out), case.scores()
    assert table.column_names == ["user", "ctr", "taste"] and table["user"].to_pylist() == list(range(N))
    np.testing.assert_array_equal(flat(table["ctr"]), wanted["ctr"])
    assert [len(row) for row in table["ctr"].to_pylist()] == np.diff(case.items).tolist()
    np.testing.assert_array_equal(flat(table["taste"]).reshape(-1, 2), wanted["taste"])


def lines(case):
    """One item a line."""
    return case.table().set_column(4, "genre", pa.array(case.genre)).set_column(
        5, "film_id", pa.array(case.film)).set_column(6, "words", lists(case.tags, pa.array(case.words))).set_column(
        7, "strength", lists(case.tags, pa.array(case.strength)))


def test_lines_with_an_item_each(rng, tmp_path):
    case = Case(rng, tmp_path, items=1)
    case.write(lines(case))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    table = pq.read_table(case.out)
    np.testing.assert_array_equal(table["ctr"].to_numpy(), case.scores()["ctr"])
    assert table.schema.field("ctr").type == pa.float32()
    case.write(lines(case).slice(0, 0))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    assert pq.read_table(case.out).schema == table.schema


def test_lists_are_of_the_innermost_axes(tmp_path, rng):
    def model(b):
        item = b.axis("item", b.axis("user"))
        bag = b.embed_bag(b.ids("tags", b.axis("tags", item)), b.table("tag", dim=2), "sum")
        return {"y": b.linear("l", b.concat([bag, b.dense("price", item, 1)]), 1)}
    plan = wr.compile(model)
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in plan.parameters}
    folder.write_folder(tmp_path / "model", plan.graph, weights, {"tag": rng.normal(size=(5, 2)).astype(np.float32)})
    pq.write_table(pa.table({"tags": [[1, 2], [], [3]], "price": [0.5, 1.0, 2.0]}), tmp_path / "log.parquet")
    assert run("score", tmp_path / "model", "--data", tmp_path / "log.parquet", "--out", tmp_path / "s.parquet") == 0
    wanted = wr.load(tmp_path / "model").score({"tags": ([1, 2, 3], [0, 2, 2, 3]), "price": [[0.5], [1.0], [2.0]]},
                                               {"item": [0, 1, 2, 3]})
    np.testing.assert_array_equal(pq.read_table(tmp_path / "s.parquet")["y"].to_numpy(), wanted["y"])


def test_no_rows_of_lists(case):
    case.write(case.table().slice(0, 0))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    assert pq.read_table(case.out).schema.field("ctr").type == pa.list_(pa.float32())


def test_a_run_goes_on_only_with_the_same_transforms(case, scored):
    case.write()
    with pytest.raises(KeyboardInterrupt):
        run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet")
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    assert scored == [15, 15, 15, 10]
    np.testing.assert_array_equal(flat(pq.read_table(case.out)["ctr"]), case.scores()["ctr"])
    scored.clear()
    with pytest.raises(KeyboardInterrupt):
        offline.score_file(case.model, case.data, case.out, transforms=case.transforms)
    others = json.loads(json.dumps(TRANSFORMS).replace("[20.0, 40.0]", "[30.0]"))
    offline.score_file(case.model, case.data, case.out, transforms=wr.Transforms(others))
    assert scored == [15, 15, 15, 15, 10]


# --- CSV


def simple(b):
    row = b.axis("row")
    x = [b.embed(b.ids(n, row), b.table(n, dim=3)) for n in ("city", "age_group", "shop")] + [b.dense("rate", row, 1)]
    return {"ctr": b.sigmoid(b.linear("head", b.concat(x), 1))}


@pytest.fixture
def simple_case(rng, tmp_path):
    plan = wr.compile(simple)
    tables = {name: rng.normal(size=(n, 3)).astype(np.float32) for name, n in (("city", 4), ("age_group", 3),
                                                                             ("shop", 6))}
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in plan.parameters}
    folder.write_folder(tmp_path / "model", plan.graph, weights, tables)
    kept = [c for c in TRANSFORMS["columns"] if c["name"] in ("city", "age")]
    wr.Transforms(TRANSFORMS | {"columns": kept, "features": [
        f for f in TRANSFORMS["features"] if f["name"] in ("city", "age_group")]}).save(
            tmp_path / "model/transforms.json")
    return tmp_path


ROWS = [("Bern", "20", "007", "0.5"), ("Oslo", "", "3", "-1"), ("Zürich", "39.5", "5", "1e-3")]


@pytest.mark.parametrize("ending, separator", [("csv", ","), ("tsv", "\t")])
def test_lines_of_text(simple_case, monkeypatch, ending, separator):
    monkeypatch.setattr("warprank.files.BLOCK_BYTES", 64)  # several blocks
    data, out = simple_case / f"log.{ending}", simple_case / "scores.parquet"
    rows = ROWS * 20
    data.write_text(separator.join(["city", "age", "shop", "rate"]) + "\n" + "".join(
        separator.join(row) + "\n" for row in rows), encoding="utf-8")
    assert run("score", simple_case / "model", "--data", data, "--out", out, "--keep", "shop", "--keep", "age") == 0
    table = pq.read_table(out)
    wanted = wr.load(simple_case / "model").score({"city": [0, 3, 1] * 20, "age_group": [1, 2, 1] * 20,
                                                   "shop": [7, 3, 5] * 20, "rate": [0.5, -1, 1e-3] * 20})
    np.testing.assert_array_equal(table["ctr"].to_numpy(), wanted["ctr"])
    assert table["shop"].to_pylist()[:3] == [7, 3, 5] and pq.ParquetFile(out).num_row_groups > 1


def test_wrong_lines(simple_case, capsys):
    data, out = simple_case / "log.csv", simple_case / "scores.parquet"

    def told(text):
        data.write_text(text)
        assert run("score", simple_case / "model", "--data", data, "--out", out, "--quiet") == 1
        assert sorted(os.listdir(simple_case)) == ["log.csv", "model"]
        return capsys.readouterr().err
    text = told("city,age,shop,rate\nBern,20,x,0.5\nBern,20,1,many\n")
    assert "log.csv, rows 0 to 1: column 'shop': expected integers, got" in text and "'x'" in text

    assert "rows 0 to 1: column 'rate': expected numbers, got" in text and "'many'" in text
    text = told("city,age,shop,rate\nBern,20,1\n")
    assert "expected rows of CSV under a line of names, got CSV parse error" in text
    text = told("city,age,shop,rate\nBern,20,,0.5\n")
    assert "column 'shop': expected no nulls, got 1 of them" in text
    assert "expected each column once, got city again" in told("city,age,shop,rate,city\nBern,20,1,0.5,Bern\n")
    assert "expected rows of CSV under a line of names" in told("")


def test_lines_of_text_without_names(simple_case, capsys):
    named, bare = simple_case / "named.csv", simple_case / "bare.csv"
    bare.write_text("".join(",".join(row) + "\n" for row in ROWS), encoding="utf-8")
    named.write_text("city,age,shop,rate\n" + bare.read_text(encoding="utf-8"), encoding="utf-8")

    def score(data, out, *options):
        return run("score", simple_case / "model", "--data", data, "--out", simple_case / out, "--quiet", *options)
    assert score(named, "a") == 0 and score(bare, "b", "--columns", "city,age,shop,rate") == 0
    assert pq.read_table(simple_case / "a").equals(pq.read_table(simple_case / "b"))
    for columns in ("city,age,shop", "city,age,shops,rate", "city,age,shop,city"):
        assert score(bare, "c", "--columns", columns) == 1
    told = capsys.readouterr().err
    assert "expected rows of CSV of 3 columns, got" in told and "did you mean 'shops'?" in told
    assert "expected each column once, got city again" in told
    assert score(simple_case / "a", "d", "--columns", "x") == 1
    assert "expected CSV, where names of columns are given, got another" in capsys.readouterr().err
    assert sorted(os.listdir(simple_case)) == ["a", "b", "bare.csv", "model", "named.csv"]


def test_ids_without_a_sign_are_the_same_in_lines_and_in_parquet(tmp_path):
    def shops(b):
        user = b.axis("user")
        x = b.concat([b.embed(b.ids("shop", user), b.table("shops", dim=1)),
                      b.embed(b.ids("key", user), b.hashed_table("keys", dim=1))])
        return {"y": b.linear("l", x, 1, bias=False)}
    plan = wr.compile(shops)
    ids = np.array([2**64 - 1, 2**63, 2**63 - 1, 1, 2], np.uint64)
    tables = {"shops": np.float32([[1], [2], [3]]), "shops.default": np.float32([50]),
              "keys.keys": ids.view(np.int64), "keys.rows": np.float32([[100], [200], [300], [400], [500]])}
    model = wr.bind(plan, wr.Weights.from_arrays({"l.weight": np.float32([[1, 1]])}),
                    wr.Tables.load(plan, wr.Weights.from_arrays(tables)))
    lines, parquet = tmp_path / "log.csv", tmp_path / "log.parquet"
    lines.write_text("shop,key\n" + "".join(f"{i},{i}\n" for i in ids))
    pq.write_table(pa.table({"shop": ids, "key": ids}), parquet)
    expected = [150, 250, 350, 402, 503]  # the first three are no rows of "shops", and no padding
    for data in (lines, parquet):
        out = tmp_path / "scores.parquet"
        assert offline.score_file(model, data, out, keep=["key"]) == 5
        table = pq.read_table(out)
        assert table["y"].to_pylist() == expected, data
        assert np.array_equal(table["key"].to_numpy().astype(np.uint64), ids), data
    lines.write_text("shop,key\n18446744073709551616,1\n")
    with pytest.raises(wr.InvalidArgument, match="column 'shop': expected integers, got"):
        offline.score_file(model, lines, tmp_path / "none.parquet")


# --- what is wrong


def test_all_columns_that_are_missing_or_of_another_type_are_told(case, capsys):
    table = case.table().rename_columns(["user", "cty", "age", "grid", "genre", "film_id", "words", "strength"])
    table = table.set_column(2, "age", pa.array(["x"] * N)).set_column(5, "film_id", pa.array(np.zeros(N)))
    table = table.set_column(3, "grid", pa.array(np.zeros(N))).set_column(
        6, "words", pa.array([[[["a"]]]] * N)).set_column(7, "strength", pa.array(np.zeros(N)))
    case.write(table)
    assert run("score", case.dir, "--data", case.data, "--out", case.out) == 1
    text = capsys.readouterr().err
    for told in (f"column 'city': expected a column of {case.data}, got none of that name (did you mean 'cty'?)",
                 f"column 'age' of {case.data}: expected numbers, got string",
                 f"column 'film_id' of {case.data}: expected integers, or lists of them up to 1 deep, got double",
                 f"column 'grid' of {case.data}: expected lists of 2 numbers, got double",
                 f"column 'words' of {case.data}: expected lists of text, or lists of them up to 1 deep, got list",
                 f"column 'strength' of {case.data}: expected lists of numbers, or lists of them up to 1 deep, got"):
        assert told in text
    assert sorted(os.listdir(os.path.dirname(case.out))) == ["log.parquet", "model"]


def test_wrong_rows_leave_nothing(case, capsys):
    case.genre[case.items[33]] = "opera"
    case.write()
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 1
    text = capsys.readouterr().err
    assert f"{case.data}, rows 30 to 39: " in text and "expected a value of the vocabulary, got 'opera'" in text
    assert sorted(os.listdir(os.path.dirname(case.out))) == ["log.parquet", "model"]


def test_nulls_and_lists_that_do_not_fit(case, capsys):
    table = case.table()
    cities = pa.array([None, *case.city[1:]])
    films = case.film.tolist()
    shorter = [films[b:e][:-1] for b, e in zip(case.items, case.items[1:])]
    case.write(table.set_column(1, "city", cities).set_column(5, "film_id", pa.array(shorter, pa.list_(pa.int64()))))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 1
    assert "lists of axis 'item': expected those of 'film_id', got others of 'genre'" in capsys.readouterr().err
    case.write(table.set_column(1, "city", cities))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 1
    assert "column 'city': expected values of type text, got 1 nulls" in capsys.readouterr().err
    case.write(table.set_column(6, "words", pa.array([None] * N, table.schema.field("words").type)))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 1
    assert "column 'words': expected no nulls, got 15 of them" in capsys.readouterr().err
    case.write(table.set_column(3, "grid", pa.array([[1.0]] * N)))
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 1
    assert "column 'grid': expected lists of 2 numbers, got others" in capsys.readouterr().err


def test_numbers_that_may_be_missing():
    assert wr.Transforms(TRANSFORMS).buckets_only == {"age"}
    more = TRANSFORMS["features"] + [{"name": "years", "op": "numbers", "of": of("age"), "settings": {}}]
    assert wr.Transforms(TRANSFORMS | {"features": more}).buckets_only == set()


def test_transforms_that_do_not_fit_the_model():
    def wrong(b):
        row = b.axis("row")
        return {"y": b.linear("l", b.concat([b.dense("city", row, 1), b.dense("grid", row, 3)]), 1)}
    plan = wr.compile(wrong)
    with pytest.raises(wr.InvalidArgument) as raised:
        raw.Requests(plan, wr.Transforms(TRANSFORMS))
    assert "input 'city': expected numbers, got a feature of ids" in str(raised.value)
    assert "input 'grid': expected 3 numbers, got a feature of 2 numbers" in str(raised.value)
    plan = wr.compile(lambda b: {"y": b.embed(b.ids("words", b.axis("row")), b.table("t", dim=2))})
    with pytest.raises(wr.InvalidArgument, match="expected one value for each request, got a feature of any number"):
        raw.Requests(plan, wr.Transforms(TRANSFORMS))


# --- check


def test_check_of_rows(case, capsys, tmp_path):
    wanted = case.scores()
    expected = wanted["ctr"].copy()
    expected[0] += 0.25
    labels = (np.arange(len(expected)) % 3 == 0).astype(np.float32)
    table = case.table().append_column("expected.ctr", lists(case.items, pa.array(expected))).append_column(
        "label.ctr", lists(case.items, pa.array(labels.astype(bool)))).append_column(
        "expected.taste", pa.FixedSizeListArray.from_arrays(pa.array(wanted["taste"].ravel()), 2))
    batch = tmp_path / "batch.parquet"
    case.write(table, batch)
    assert run("check", case.dir, "--batch", batch) == 0
    told = capsys.readouterr().out
    area = wr.metrics.auc(labels, wanted["ctr"])
    assert f"ctr: {len(expected)} scores, differ by 0.25 at most" in told and f"AUC {area:.6f}, the framework's" in told
    assert f"taste: {N} scores, differ by 0 at most" in told
    assert run("check", case.dir, "--batch", batch, "--most-difference", 0.2) == 1
    case.write(table.drop_columns(["city"]), batch)
    assert run("check", case.dir, "--batch", batch) == 1
    assert f"column 'city': expected a column of {batch}, got none" in capsys.readouterr().err
    wrong = table.drop_columns(["expected.ctr", "label.ctr"]).append_column("expected.ctr", pa.array(["x"] * N))
    case.write(wrong.append_column("label.ctr", pa.array([None] * N, pa.float32())), batch)
    assert run("check", case.dir, "--batch", batch) == 1
    told = capsys.readouterr().err
    assert f"{batch}: column 'expected.ctr': expected numbers, got string" in told
    assert f"{batch}: column 'label.ctr': expected numbers, got {N} nulls of type float" in told
