# SPDX-License-Identifier: Apache-2.0
"""Folders of models, and the commands on them."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import warprank as wr
from warprank import cli, folder, offline, whole

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def clicks(b):
    user = b.axis("user")
    item = b.axis("item", user)
    x = b.concat([b.expand(b.dense("context", user, 2), item), b.embed(b.ids("film_id", item), b.table("film", dim=4))])
    return {"ctr": b.sigmoid(b.linear("head", x, 1)), "both": b.linear("two", x, 2),
            "user": b.linear("own", b.dense("age", user, 1, default_value=1), 1)}


class Case:
    def __init__(self, rng, path):
        plan = wr.compile(clicks)
        self.weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in plan.parameters}
        self.tables = {"film": rng.normal(size=(10, 4)).astype(np.float32)}
        self.dir = str(path / "model")
        self.graph = plan.graph
        lengths = rng.integers(0, 4, 50)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self.films = rng.integers(0, 10, self.offsets[-1])
        self.context = rng.normal(size=(50, 2)).astype(np.float32)
        folder.write_folder(self.dir, self.graph, self.weights, self.tables, self.samples())
        self.model = wr.load(self.dir)
        self.scores = self.model.score(self.samples().data)
        self.data = str(path / "data.parquet")
        self.out = str(path / "scores.parquet")
        pq.write_table(self.table(), self.data, row_group_size=20)

    def samples(self, **more):
        return folder.Samples({"context": self.context, "film_id": wr.Ragged(self.films, self.offsets)}, **more)

    def table(self):
        films = pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), pa.array(self.films))
        return pa.table({"context": pa.FixedSizeListArray.from_arrays(pa.array(self.context.ravel()), 2),
                         "film_id": films, "name": [f"user {i}" for i in range(50)]})


@pytest.fixture
def case(rng, tmp_path):
    return Case(rng, tmp_path)


def run(*arguments):
    return cli.main([str(a) for a in arguments])


# --- folders


def test_samples_come_back(case, tmp_path):
    labels = {"ctr": np.float32([0, 1])}
    case.samples(expected={"both": case.scores["both"]}, labels=labels, seconds=0.5,
                 offsets={"item": case.offsets}).save(tmp_path / "s.safetensors")
    back = folder.Samples.open(tmp_path / "s.safetensors")
    np.testing.assert_array_equal(back.data["film_id"].offsets, case.offsets)
    np.testing.assert_array_equal(back.data["context"], case.context)
    np.testing.assert_array_equal(back.expected["both"], case.scores["both"])
    np.testing.assert_array_equal(back.offsets["item"], case.offsets)
    assert list(back.labels["ctr"]) == [0, 1] and back.seconds == 0.5


def test_folders_are_whole_or_not_there(case, tmp_path):
    with pytest.raises(wr.InvalidArgument):
        folder.write_folder(tmp_path / "new", case.graph, {"x": np.zeros(1, np.float64)}, {})
    with pytest.raises(wr.InvalidArgument, match="expected a folder, or nothing, got a file"):
        folder.write_folder(case.data, case.graph, {}, {})
    folder.write_folder(case.dir, case.graph, case.weights | {"head.bias": np.float32([9])}, case.tables)
    assert wr.load(case.dir).score(case.samples().data)["ctr"].min() > case.scores["ctr"].min()
    assert sorted(os.listdir(tmp_path)) == ["data.parquet", "model"]


def test_of_a_folder_that_is_there_the_model_is_replaced(case, tmp_path):
    """What would be of the old model is gone, what is of none stays."""
    path = tmp_path / "model"
    (path / "notes").mkdir()
    (path / "notes/why.txt").write_text("why")
    (path / "transforms.json").write_text("{}")
    (tmp_path / "current").symlink_to(path)
    (tmp_path / "model.partial").mkdir()  # of a process that was killed
    folder.write_folder(tmp_path / "current", case.graph, case.weights, case.tables)
    assert sorted(os.listdir(path)) == ["dense.safetensors", "graph.json", "notes", "tables.safetensors"]
    assert (path / "notes/why.txt").read_text() == "why" and (tmp_path / "current").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["current", "data.parquet", "model"]
    (path / "tables").mkdir()
    with pytest.raises(wr.InvalidArgument, match="expected one without 'tables', which would be read in the place"):
        folder.write_folder(path, case.graph, case.weights, case.tables)


def test_file_systems_that_exchange_nothing(case, monkeypatch, tmp_path):
    monkeypatch.setattr(whole.ctypes, "CDLL", lambda *_, **__: object())
    folder.write_folder(case.dir, case.graph, case.weights | {"head.bias": np.float32([9])}, case.tables)
    assert wr.load(case.dir).score(case.samples().data)["ctr"].min() > case.scores["ctr"].min()
    assert sorted(os.listdir(tmp_path)) == ["data.parquet", "model"]


def in_a_child(function):
    """Its exit status, negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("is_there", [False, True])
def test_a_process_that_is_killed_leaves_the_old_model_or_the_new_one(case, tmp_path, is_there):
    """Killed before each call to the system that Python tells of, one after the other."""
    path = tmp_path / "written"

    def write(bias):
        folder.write_folder(path, case.graph, case.weights | {"head.bias": np.float32([bias])},
                            {"film": case.tables["film"] + np.float32(bias)}, case.samples())

    def scores():
        return wr.load(path).score(case.samples().data)["ctr"]

    def killed_at(call):
        calls = iter(range(call))

        def count(event, _):
            is_call = event.startswith(("os.", "open", "shutil.", "ctypes.")) and event != "os.kill"
            if is_call and next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        write(1)
    write(1)
    new = scores()
    write(0)
    old = scores()
    seen = set()
    for call in range(1000):
        shutil.rmtree(path, ignore_errors=True)
        if is_there:
            write(0)
            (path / "notes").write_text("why")
        status = in_a_child(lambda call=call: killed_at(call))
        assert status in (0, -signal.SIGKILL)
        now = scores() if path.exists() else None
        assert now is not None or not is_there
        is_new = now is not None and np.array_equal(now, new)
        assert now is None or is_new or np.array_equal(now, old)
        assert not is_there or (path / "notes").read_text() == "why"
        seen.add(is_new)
        if status == 0:
            break
    assert status == 0 and call > 5 and seen == {False, True}
    assert sorted(os.listdir(tmp_path)) == ["data.parquet", "model", "written"]


def test_a_full_disk_leaves_what_there_was(case, tmp_path, capfd):
    before = {name: open(os.path.join(case.dir, name), "rb").read() for name in os.listdir(case.dir)}

    def without_space(function):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
            function()
        return in_a_child(limited)
    assert without_space(lambda: folder.write_folder(case.dir, case.graph, case.weights, case.tables)) == 1
    assert without_space(lambda: folder.write_folder(tmp_path / "new", case.graph, case.weights, case.tables)) == 1
    case.samples(labels={"ctr": (np.arange(len(case.films)) % 2).astype(np.float32)}).save(tmp_path / "batch")
    svg = tmp_path / "c.svg"
    check = "check", case.dir, "--batch", tmp_path / "batch", "--calibration", svg
    assert without_space(lambda: os._exit(0 if run(*check) == 1 else 2)) == 0
    assert before == {name: open(os.path.join(case.dir, name), "rb").read() for name in os.listdir(case.dir)}
    assert sorted(os.listdir(tmp_path)) == ["batch", "data.parquet", "model"]
    score = ["score", case.dir, "--data", case.data, "--out", case.out, "--quiet"]
    limited = "import resource, sys; from warprank import cli; " \
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); sys.exit(cli.main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", limited, *score], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("warprank score: ") and "Traceback" not in done.stderr
    assert not os.path.exists(case.out) and run(*score) == 0  # which goes on from what was scored
    assert sorted(os.listdir(tmp_path)) == ["batch", "data.parquet", "model", "scores.parquet"]


# --- check


def test_check(case, capsys, tmp_path):
    expected = {name: case.scores[name].copy() for name in case.scores}
    expected["ctr"][0] += 0.25
    labels = {"ctr": (np.arange(len(case.films)) % 3 == 0).astype(np.float32)}
    path = tmp_path / "batch.safetensors"
    case.samples(expected=expected, labels=labels, seconds=0.02).save(path)
    svg = tmp_path / "calibration.svg"
    assert run("check", case.dir, "--batch", path, "--calibration", svg) == 0
    told = capsys.readouterr().out
    area = wr.metrics.auc(labels["ctr"], case.scores["ctr"])
    assert f"ctr: {len(case.films)} scores, differ by 0.25 at most" in told and f"AUC {area:.6f}, the" in told
    assert f"both: {len(case.films)} scores, differ by 0 at most" in told and "the framework took 20 ms" in told
    assert svg.read_text().startswith("<svg")
    assert run("check", case.dir, "--batch", path, "--most-difference", 0.2) == 1
    assert "expected scores that differ by 0.2 at most, got 0.25" in capsys.readouterr().err
    assert run("check", case.dir) == 0  # the folder's own samples
    assert run("check", case.dir, "--precision", "bf16", "--most-difference", 0.1) == 0


def test_check_fails_for_scores_that_are_not_finite(case, capsys, tmp_path):
    path = tmp_path / "batch.safetensors"
    case.context[1] = 3e38
    case.samples(expected={"both": np.zeros_like(case.scores["both"])}).save(path)
    for more in ([], ["--most-difference", 1e9]):
        assert run("check", case.dir, "--batch", path, *more) == 1
        told = capsys.readouterr().err
        assert re.search(r"scores 'both': expected finite ones, got \d+ that are not", told) and "'user'" not in told


def test_wrong_batches(case, capsys, tmp_path):
    assert run("check", case.dir, "--batch", tmp_path / "none") == 1
    count = len(case.films)
    case.samples(expected={"ctr": np.zeros(3), "both": np.full((count, 2), np.nan), "cvr": np.zeros(1)},
                 labels={"ctr": np.zeros(4)}).save(tmp_path / "b")
    assert run("check", case.dir, "--batch", tmp_path / "b") == 1
    assert run("check", case.dir, "--calibration", tmp_path / "c.svg") == 1
    told = capsys.readouterr().err
    assert f"expected scores 'ctr': expected {count}, as there are scores, got 3" in told
    assert "--batch names one" in told
    assert f"labels 'ctr': expected {count}, as there are scores, got 4" in told
    assert "expected scores 'cvr': expected those of an output, both, ctr, user, got none of that name" in told
    assert f"'both', element [0, 0]: expected a finite number, got nan, and {2 * count - 1} more" in told
    assert "--calibration: expected a batch with labels" in told


# --- score


def test_score(case, capsys):
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--keep", "name", "--threads", 2) == 0
    table = pq.read_table(case.out)
    assert table.column_names == ["name", "ctr", "both", "user"] and table.num_rows == 50
    assert table["name"].to_pylist() == case.table()["name"].to_pylist()
    ctr = table["ctr"].combine_chunks()
    np.testing.assert_array_equal(np.array([x for row in ctr.to_pylist() for x in row], np.float32), case.scores["ctr"])
    assert [len(row) for row in ctr.to_pylist()] == np.diff(case.offsets).tolist()
    np.testing.assert_array_equal(np.concatenate([np.float32(row).reshape(-1, 2) for row in table["both"].to_pylist()]),
                                  case.scores["both"])
    np.testing.assert_array_equal(table["user"].to_numpy(), case.scores["user"])
    assert "50 of 50 rows" in capsys.readouterr().err and not os.path.exists(case.out + ".partial")


def test_scores_of_lines_with_one_item_each(case):
    lines = pa.table({"film_id": case.films[:40], "context": pa.FixedSizeListArray.from_arrays(
        pa.array(np.repeat(case.context[:1], 40, 0).ravel()), 2)})
    pq.write_table(lines, case.data)
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    table = pq.read_table(case.out)
    alone = case.model.score({"context": case.context[:1], "film_id": ([case.films[7]], [0, 1])})
    assert table["ctr"].to_numpy()[7] == alone["ctr"][0] and table["both"].to_pylist()[7] == alone["both"][0].tolist()


def test_ids_beyond_a_table_are_counted(case, capsys):
    """They are served as the server serves them, and told; -1 is padding of direct tables."""
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    assert capsys.readouterr().err == ""
    films = case.films.copy()
    films[:3] = [len(case.tables["film"]), -1, 10**12]
    place = case.table().column_names.index("film_id")
    lists = pa.ListArray.from_arrays(pa.array(case.offsets, pa.int32()), pa.array(films))
    pq.write_table(case.table().set_column(place, "film_id", lists), case.data)
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet", "--threads", 3) == 0
    assert capsys.readouterr().err == \
        f"embed.film_id: 2 of {len(films)} ids are beyond the rows of their table, and count as none\n"


def test_scores_in_any_precision(case):
    for precision in "bf16", "int8_weights", "automatic":
        assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet", "--precision", precision) == 0
        both = np.concatenate([np.float32(row).reshape(-1, 2) for row in pq.read_table(case.out)["both"].to_pylist()])
        np.testing.assert_allclose(both, case.scores["both"], rtol=0, atol=0.1)


def test_no_rows(case):
    pq.write_table(case.table().slice(0, 0), case.data)
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--quiet") == 0
    assert pq.read_table(case.out).num_rows == 0


def test_a_run_that_was_ended_goes_on(case, scored):
    with pytest.raises(KeyboardInterrupt):
        offline.score_file(case.model, case.data, case.out)
    assert not os.path.exists(case.out) and scored == [20, 20]
    assert offline.score_file(case.model, case.data, case.out) == 50
    assert scored == [20, 20, 20, 10] and pq.read_table(case.out).num_rows == 50
    # What was scored of other data does not count.
    scored.clear()
    with pytest.raises(KeyboardInterrupt):
        offline.score_file(case.model, case.data, case.out)
    pq.write_table(case.table().slice(0, 5), case.data)
    assert offline.score_file(case.model, case.data, case.out) == 5
    assert pq.read_table(case.out).num_rows == 5


def test_all_columns_that_are_missing_are_told(case, capsys):
    pq.write_table(case.table().rename_columns(["contxt", "x", "name"]), case.data)
    assert run("score", case.dir, "--data", case.data, "--out", case.out, "--keep", "nam", "--keep", "ctr") == 1
    told = capsys.readouterr().err
    assert "column 'context'" in told and "did you mean 'contxt'?" in told and "column 'film_id'" in told
    assert "column 'nam'" in told and "column 'ctr'" in told and not os.path.exists(case.out + ".partial")
    assert run("score", case.dir, "--data", "none", "--out", case.out) == 1


def test_files_of_another_kind_are_told(case, capsys, tmp_path):
    """In one message without a traceback, and nothing is left."""
    out = tmp_path / "scores"
    with open(case.data, "r+b") as file:  # in the first column, behind the magic number
        file.seek(4)
        file.write(b"\xff" * 40)
    assert run("score", case.dir, "--data", case.data, "--out", out, "--quiet") == 1
    told = capsys.readouterr().err
    assert f"{case.data}, rows 0 to 19: row group 0: expected Parquet that is whole, got " in told
    (tmp_path / "model/transforms.json").write_bytes(b"\xff\xfe{}")
    assert run("score", case.dir, "--data", case.data, "--out", out, "--quiet") == 1
    assert "transforms.json': expected JSON in UTF-8, got 'utf-8' codec" in capsys.readouterr().err
    (tmp_path / "ids.npy").write_text("7 8 9")
    for name in "model.pt2", "model.keras", "model.onnx":
        (tmp_path / name).write_text("no model")
        assert run("convert", tmp_path / name, "--out", out, "--hashed", f"user={tmp_path / 'ids.npy'}") == 1
    told = capsys.readouterr().err
    for name, package in (("model.pt2", "PyTorch"), ("model.keras", "TensorFlow"),
                          ("model.onnx", "PyTorch, onnx and onnxruntime")):
        assert f"{name}': expected {package}, by pip install " in told
    assert sorted(os.listdir(tmp_path)) == ["data.parquet", "ids.npy", "model", "model.keras", "model.onnx",
                                            "model.pt2"]


def test_the_program(case):
    done = subprocess.run([sys.executable, "-m", "warprank", "score", case.dir, "--data", case.data, "--out", case.out],
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "" and "rows/s" in done.stderr
    assert subprocess.run([sys.executable, "-m", "warprank", "convert", "x.onnx", "--out", case.dir],
                          capture_output=True, text=True).stderr.startswith("warprank convert: model 'x.onnx'")
