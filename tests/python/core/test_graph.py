# SPDX-License-Identifier: Apache-2.0
"""Graphs and plans: made, saved, loaded, described; and what is said of wrong ones."""

import gc
import inspect
import os
import re
import subprocess

import pytest
from rank_films import din_mmoe

import warprank as wr


def test_a_graph_survives_saving(tmp_path):
    graph = wr.build(din_mmoe)
    graph.save(str(tmp_path / "graph.json"))
    assert wr.Graph.load(str(tmp_path / "graph.json")).to_json() == graph.to_json()


@pytest.mark.skipif("WARPRANK_SHOW_PLAN" not in os.environ, reason="show_plan is not built")
def test_a_model_in_python_has_the_plan_of_the_same_model_in_cpp():
    cpp = subprocess.run([os.environ["WARPRANK_SHOW_PLAN"], "din_mmoe"], capture_output=True, text=True).stdout
    python = wr.compile(din_mmoe).describe()
    # C++ evaluates operands in any order, Python from the left: what is alike may have another order within a step.
    totals = python.index("\nthis plan")
    assert python[totals:] == cpp[cpp.index("\nthis plan"):]
    steps = r"^ +(\d+)  (\w+) +(\d+)"
    assert re.findall(steps, python, re.M) == re.findall(steps, cpp, re.M) != []


@pytest.mark.skipif("WARPRANK_SHOW_PLAN" not in os.environ, reason="show_plan is not built")
def test_the_plan_of_a_folder_is_shown(tmp_path):
    wr.build(din_mmoe).save(str(tmp_path / "graph.json"))
    done = subprocess.run([os.environ["WARPRANK_SHOW_PLAN"], str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == wr.compile(din_mmoe, [wr.Capacity(items=256)]).describe()


def test_problems_are_told_together_with_the_line_of_the_call():
    def wrong(b):
        user = b.axis("user")
        item = b.axis("item", user)
        x, y = b.dense("x", user, 2), b.dense("y", item, 2)
        return {"sum": x + y, "none": b.linear("layer", x, 0)}

    lines, first = inspect.getsourcelines(wrong)
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.build(wrong)
    problems = raised.value.problems
    assert isinstance(raised.value, ValueError) and str(raised.value).startswith("2 problems:\n  ")
    assert [p.where for p in problems] == [f"{__file__}:{first + 4}"] * 2
    assert problems[0].expected == "tensors on one axis; use expand(x, item)"
    assert problems[1].what == "linear 'layer'" and problems[1].got == "0"


@pytest.mark.parametrize("call, message", [
    (lambda b, x: b.reduce(x, "avg"), "pooling: expected one of none, sum, mean, sqrtn, max, got 'avg'"),
    (lambda b, x: b.linear("l", x, 1, activation="rleu"),
     "activation: expected one of identity, relu, leaky_relu, elu, prelu, dice, sigmoid, tanh, gelu, gelu_tanh, silu, "
     "got 'rleu'"),
])
def test_names_that_are_not_known_are_told(call, message):
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.build(lambda b: {"o": call(b, b.dense("x", b.axis("user"), 2))})
    assert str(raised.value).endswith(": " + message)
    assert str(raised.value).startswith(__file__)


def test_options_that_do_not_exist_are_type_errors():
    with pytest.raises(TypeError):
        wr.build(lambda b: {"o": b.linear("l", b.dense("x", b.axis("user"), 2), 1, biass=False)})


def test_files_that_are_no_graphs_are_told(tmp_path):
    (tmp_path / "graph.json").write_text("{}")
    with pytest.raises(wr.InvalidArgument, match="graph.json"):
        wr.Graph.load(str(tmp_path / "graph.json"))
    with pytest.raises(wr.InvalidArgument, match="passes: expected a pass, got .*fuse_tails"):
        wr.compile(din_mmoe, passes={"fuse_tail": False})


def test_tensors_keep_their_builder():
    builder = wr.Builder()
    x = builder.dense("x", builder.axis("user"), 2)
    towers = builder.ple("ple", x, levels=[[4]])
    del builder
    gc.collect()
    assert isinstance(-(x * 2 + 1), wr.Tensor) and isinstance(towers[1] / towers[0], wr.Tensor)


def test_plans_tell_what_they_read():
    plan = wr.compile(din_mmoe)
    assert [axis.name for axis in plan.axes] == ["user", "item", "genres", "history", "hist_genres"]
    assert plan.axes[3].keep_last == 100 and plan.axes[0].parent == -1
    assert {d.name: d.width for d in plan.dense} == {"user_context": 3, "film_context": 1}
    assert {t.name: t.dim for t in plan.tables}["rating"] == 24
    assert {p.name: p.shape for p in plan.parameters}["tower_ctr.1.weight"] == [1, 32]
    assert plan.outputs == ["ctr", "ctcvr"]
    assert "din_attention" in plan.describe("H100") and plan.dot().startswith("digraph")


def test_pictures_need_graphviz(monkeypatch, tmp_path):
    (tmp_path / "dot").write_text("#!/bin/sh\necho \"<svg>$(head -c 7)</svg>\"\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plan = wr.compile(din_mmoe)
    assert plan.svg(tmp_path / "plan.svg") == "<svg>digraph</svg>\n" == (tmp_path / "plan.svg").read_text()
    (tmp_path / "dot").write_text("#!/bin/sh\necho bad >&2\nexit 1\n")
    with pytest.raises(RuntimeError, match="failed: bad"):
        plan.svg()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match="expected Graphviz' program dot on PATH, got none"):
        plan.svg()
