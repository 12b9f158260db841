# SPDX-License-Identifier: Apache-2.0
"""The language of Python is that of C++: nothing more, nothing less. The headers are read here anew, more simply."""

import inspect
import json
import re

import warprank as wr
from warprank import _core


def read(root, path):
    return (root / "include/warprank" / path).read_text()


def builder_header(root):
    text = read(root, "model/builder.hpp")
    return text, text[text.index("class Builder {"):text.index(" private:", text.index("class Builder {"))]


def test_builder_has_the_methods_of_cpp(root):
    _, public = builder_header(root)
    cpp = set(re.findall(r"^  (?:[A-Z]\w+|std::vector<Tensor>) (\w+)\(", public, re.M))
    python = {name for name in dir(wr.Builder) if not name.startswith("_")}
    assert "linear" in cpp and python == cpp


def test_methods_have_the_options_of_cpp_as_keywords(root):
    text, public = builder_header(root)
    text += read(root, "model/types.hpp")
    methods = re.findall(r"^  \S+ (\w+)\(((?:[^;{]|\{\})*?(\w+Options)&? options[^;]*)SourceLine", public, re.M)
    assert len(methods) == len(re.findall(r"Options&? options", public)) > 10
    for method, _, struct in methods:
        body = re.search(rf"^struct {struct} \{{\n(.*?)^\}};", text, re.M | re.S)[1]
        members = re.findall(r"^  [\w:<>]+ (\w+)(?: =|;)", body, re.M)
        signature = getattr(wr.Builder, method).__nb_signature__[0][0]
        keywords = re.findall(r"(\w+): ", signature.split("*, ")[1])
        assert [k.removesuffix("_") for k in keywords] == members, method


def test_options_reach_the_graph():
    def model(b):
        user = b.axis("user")
        item, history = b.axis("item", user, keep_last=9), b.axis("history", user)
        film = b.table("film", dim=4, rows=11)
        x = b.embed(b.ids("id", item, default_id=5, padding=6, wire="i32", out_of_range="saturate"), film)
        past = b.dense("past", history, 4, default_value=0.5, wire="f16", out_of_range="saturate")
        din = b.din_attention("din", x, past, hidden=[4, 2], normalization="sigmoid", scaled=True,
                              activation=wr.Activation("leaky_relu", alpha=0.25))
        time, now = b.dense("time", history, 1), b.dense("now", item, 1)
        b.hstu("h", [past, x], positions=3, clamp_positions=True, time_buckets=7, time_bucket_width=0.5, times=[time, now])
        return {"o": b.linear("l", b.dot([x, din], 4, order="upper", self_=True), 1, bias=False, activation="silu")}

    graph = json.loads(wr.build(model).to_json())
    assert graph["axes"][1]["keep_last"] == 9 and graph["tables"][0]["rows"] == 11
    assert {k: graph["ids"][0][k] for k in ("default_id", "padding", "wire", "out_of_range")} == {
        "default_id": 5, "padding": 6, "wire": "i32", "out_of_range": "saturate"}
    assert {k: graph["dense"][0][k] for k in ("default_value", "wire", "out_of_range")} == {
        "default_value": 0.5, "wire": "f16", "out_of_range": "saturate"}
    settings = {node["name"]: node.get("settings") for node in graph["nodes"]}
    assert settings["din"]["hidden"] == [4, 2] and settings["din"]["scaled"]
    assert settings["din"]["normalization"] == "sigmoid" and settings["din"]["activation"]["alpha"] == 0.25
    assert settings["dot"]["order"] == "upper" and settings["dot"]["self"]
    assert [settings["h"][k] for k in ("name", "positions", "clamp_positions", "time_buckets", "time_bucket_width")] == [
        "h", 3, True, 7, 0.5]
    assert not settings["l"]["bias"] and settings["l"]["activation"]["kind"] == "silu"


def test_enumerators_are_strings(root):
    types = read(root, "model/types.hpp") + read(root, "model/elementwise.hpp")
    signatures = " ".join(str(s) for name in dir(wr.Builder) if not name.startswith("_")
                          for s in getattr(wr.Builder, name).__nb_signature__)
    for enum in ("Pooling", "Normalization", "DotOrder", "DenseWire", "IdsWire", "OutOfRange", "ElementwiseFunction",
                 "ActivationKind"):
        body = re.sub(r"//.*", "", re.search(rf"enum class {enum} {{(.*?)}};", types, re.S)[1])
        names = [name.strip() for name in body.split(",") if name.strip()]
        assert "typing.Literal[" + ", ".join(f"'{name}'" for name in names) + "]" in signatures, enum


def every_op(b):
    user = b.axis("user")
    item, history = b.axis("item", user), b.axis("history", user)
    film = b.table("film", dim=4)
    x, age = b.embed(b.ids("film_id", item), film), b.dense("age", user, 4)
    past = b.embed(b.ids("past", history), film)
    wide = b.concat([x, b.expand(age, item), b.din_attention("din", x, past, hidden=[4], activation="relu")])
    parts = [b.slice(wide, 0, 4), b.target_attention("attention", x, past), b.fm([wide], 4), b.dot([wide], 4),
             b.dot_between([x], [wide], 4), b.mix_tokens("tokens", x, 2), b.field_linear("fields", [x, x], 2, 3),
             b.field_attention("field_attention", x, 2), b.augru("augru", x, past, b.gru("gru", past, 3), 2),
             b.layer_norm("norm", x), b.softmax(x), b.reduce(x, "max"), x * 2.0 + 1,
             b.mix(b.experts("experts", x, 2, [3]), b.gate("gate", x, 2)), b.expand(b.pool(past, "mean"), item),
             b.custom("mine", [x], item, 2)]
    return {"score": b.linear("head", b.concat(parts), 1)}


def test_every_op_of_cpp_can_be_made(root):
    names = re.findall(r"model/op/(\w+)\.hpp", read(root, "model/op/list.hpp"))
    kinds = [kind for name in names for kind in re.findall(r'kind = "(\w+)"', read(root, f"model/op/{name}.hpp"))]
    assert sorted(wr.op_kinds()) == sorted(kinds)
    graph = json.loads(wr.build(every_op).to_json())
    assert {node["op"] for node in graph["nodes"]} == set(kinds)


def test_passes_are_those_of_cpp(root):
    body = re.search(r"^struct Passes \{\n(.*?)\n\n", read(root, "plan/plan.hpp"), re.M | re.S)[1]
    assert wr.pass_names() == re.findall(r"bool (\w+) =", body)
    plan = wr.compile(every_op, passes={name: False for name in wr.pass_names()})
    assert plan.num_steps > wr.compile(every_op).num_steps


def test_everything_public_is_documented():
    for name in wr.__all__:
        thing = getattr(wr, name)
        if not inspect.isclass(thing) and not callable(thing):
            continue
        assert thing.__doc__, name
        for member, value in vars(thing).items() if inspect.isclass(
            thing) and thing.__module__ != "warprank._core" else ():
            if callable(value) and not member.startswith("_"):
                assert value.__doc__, f"{name}.{member}"
    assert _core.Builder.linear.__doc__.count("act(x W^T + b)") == 1
