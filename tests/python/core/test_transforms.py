# SPDX-License-Identifier: Apache-2.0
"""Transforms in Python make of the columns of tests/ids what TensorFlow makes, from whatever columns are kept in."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import warprank as wr

FOLDER = Path(__file__).resolve().parents[2] / "ids"
sys.path.insert(0, str(FOLDER))
import transform_columns as given  # noqa: E402


@pytest.mark.parametrize("file", ["feature_columns.json", "preprocessing_layers.json"])
def test_features_are_tensorflows(file):
    vectors = json.loads((FOLDER / "transform_vectors.json").read_text())["features"]
    transforms = wr.Transforms.load(FOLDER / file)
    columns = {}
    for name in transforms.columns:
        values, offsets = given.column(name)
        columns[name] = values if offsets is None else (values, offsets)
    features = transforms.run(columns)
    found = 0
    for name in vectors.keys() & features.keys():
        made, wanted = features[name], vectors[name]
        values = made.values if isinstance(made, wr.Ragged) else made
        assert given.checksums(values) == wanted["values"], name
        if "offsets" in wanted:
            assert given.checksums(made.offsets) == wanted["offsets"], name
        found += 1
    assert found in (19, 17)


def test_rows_of_criteos_layout_from_text_to_ids(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "tools"))
    import criteo_sample
    rows = (FOLDER / "criteo.tsv").read_text().splitlines()
    fields = list(zip(*(row.split("\t") for row in rows)))
    columns = dict(zip(criteo_sample.INTEGERS, [[float(x or "nan") for x in f] for f in fields[1:14]]))
    columns |= dict(zip(criteo_sample.WORDS, fields[14:]))
    made = wr.Transforms.load(FOLDER / "criteo_transforms.json").run(columns)
    wanted = criteo_sample.ids_of(rows)
    assert made.keys() == wanted.keys() == json.loads((FOLDER / "criteo_ids.json").read_text()).keys()
    for name, ids in wanted.items():
        np.testing.assert_array_equal(made[name], ids)
        assert given.checksums(ids) == json.loads((FOLDER / "criteo_ids.json").read_text())[name]


def file_of(columns, features):
    return wr.Transforms({"format": "warprank.transforms", "version": 1, "scheme": "warprank-ids-1",
                          "columns": columns, "features": features})


@pytest.fixture
def transforms():
    return file_of([{"name": "city", "type": "text"}, {"name": "tags", "type": "text", "ragged": True},
                    {"name": "xy", "type": "f32", "width": 2}],
                   [{"name": "city", "op": "vocabulary", "of": [{"column": "city"}],
                     "settings": {"texts": ["Zürich", "Bern"], "default_id": 2}},
                    {"name": "tags", "op": "vocabulary", "of": [{"column": "tags"}],
                     "settings": {"texts": ["a", "b"], "default_id": -1}},
                    {"name": "xy", "op": "numbers", "of": [{"column": "xy"}], "settings": {}}])


CITIES, TAGS, XY = ["Bern", "Zürich", "Wien"], [["a"], [], ["b", "c", "a"]], [[1, 2], [3, 4], [5, 6]]


def check(features):
    np.testing.assert_array_equal(features["city"], [1, 0, 2])
    np.testing.assert_array_equal(features["tags"].values, [0, 1, -1, 0])
    np.testing.assert_array_equal(features["tags"].offsets, [0, 1, 1, 4])
    np.testing.assert_array_equal(features["xy"], XY)


@pytest.mark.parametrize("city", [tuple(CITIES), np.array(CITIES), np.array(CITIES, object),
                                  [text.encode() for text in CITIES]])
@pytest.mark.parametrize("tags", [TAGS, (["a", "b", "c", "a"], [0, 1, 1, 4]),
                                  wr.Ragged(np.array(list("abca")), np.array([0, 1, 1, 4], np.int32))])
def test_columns_of_python(transforms, city, tags):
    check(transforms.run({"city": city, "tags": tags, "xy": XY}))


def test_columns_of_arrow_and_pandas(transforms):
    pyarrow = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    table = pyarrow.table({"city": ["x"] + CITIES, "tags": [["z"]] + TAGS})
    both = {name: table.slice(1)[name] for name in ("city", "tags")}
    check(transforms.run(both | {"xy": np.float64(XY)}))
    frame = pandas.DataFrame({"city": CITIES, "tags": TAGS})
    check(transforms.run({"city": frame["city"], "tags": frame["tags"], "xy": XY}))
    with pytest.raises(wr.InvalidArgument, match="column 'city': expected values of type text, got 1 nulls"):
        transforms.run({"city": pyarrow.array(["a", None]), "tags": TAGS[:2], "xy": XY[:2]})


def test_files(transforms, tmp_path):
    transforms.save(tmp_path / "transforms.json")
    loaded = wr.Transforms.load(tmp_path / "transforms.json")
    assert loaded.to_json() == transforms.to_json()
    assert (loaded.columns, loaded.features) == (["city", "tags", "xy"], ["city", "tags", "xy"])
    (tmp_path / "transforms.json").write_text(transforms.to_json().replace('"vocabulary"', '"vocabula"'))
    with pytest.raises(wr.InvalidArgument, match=r"transforms.json.features\[0\]: expected a transform of docs/IDS.md"):
        wr.Transforms.load(tmp_path / "transforms.json")


def test_what_is_wrong_is_told_together(transforms):
    with pytest.raises(wr.InvalidArgument) as raised:
        transforms.run({"tags": ["a", "b"], "xy": ["a"]})
    assert [(p.what, p.got) for p in raised.value.problems] == [
        ("column 'city'", "none"), ("column 'tags'", "text, not lists of it"), ("column 'xy'", "<U1 values")]
    with pytest.raises(wr.InvalidArgument, match="expected as many rows each, got 3 of 'city', 3 of 'tags', 1 of 'xy'"):
        transforms.run({"city": CITIES, "tags": TAGS, "xy": XY[:1]})
    with pytest.raises(wr.InvalidArgument, match="column 'city': expected str or bytes, got int"):
        transforms.run({"city": [1, 2, 3], "tags": TAGS, "xy": XY})
    with pytest.raises(wr.InvalidArgument, match="column 'tags': expected 4 offsets from 0 to 2 that never decrease"):
        transforms.run({"city": CITIES, "tags": (["a", "b"], [0, 2, 1, 2]), "xy": XY})
    for offsets, kind in (([0, 0.5, 1, 2], "float64"), (["0", "1", "1", "2"], "<U1")):
        with pytest.raises(wr.InvalidArgument, match=f"column 'tags': .*, got offsets that are {kind} values"):
            transforms.run({"city": CITIES, "tags": (["a", "b"], offsets), "xy": XY})


def test_integers_above_those_with_a_sign_are_refused():
    hashed = file_of([{"name": "n", "type": "i64"}],
                     [{"name": "n", "op": "hash", "of": [{"column": "n"}], "settings": {"buckets": 1000}}])
    largest = np.array([2**63 - 1], np.uint64)
    np.testing.assert_array_equal(hashed.run({"n": largest})["n"], hashed.run({"n": largest.astype(np.int64)})["n"])
    with pytest.raises(wr.InvalidArgument, match="column 'n': .* i64, got 9223372036854775808, which is above 2"):
        hashed.run({"n": np.array([2**63], np.uint64)})
