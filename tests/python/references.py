# SPDX-License-Identifier: Apache-2.0
"""The models of models.py as one writes them with the Builder, and as examples/models/ has them: what exports are
planned like."""


def deepfm(b):
    """As benchmarks/models/criteo_bench.cpp has it, with two numbers."""
    row = b.axis("row")
    numbers, ids = b.dense("numbers", row, 2), [b.ids(name, row) for name in "abc"]
    fields = [b.embed(i, b.table(f"field{n}", dim=8)) for n, i in enumerate(ids)]
    wide = [b.embed(i, b.table(f"wide{n}", dim=1)) for n, i in enumerate(ids)]
    deep = b.mlp("deep", b.concat([*fields, numbers]), [32, 16, 1])
    return {"ctr": b.sigmoid(b.fm(fields, 8) + b.wide("wide", [*wide, b.linear("numbers", numbers, 1)]) + deep)}


def din(b):
    user = b.axis("user")
    item, history = b.axis("item", user), b.axis("history", user)
    films, genres = b.table("film", dim=8), b.table("genre", dim=8)
    q = b.concat([b.embed(b.ids("film_id", item), films), b.embed(b.ids("genre_id", item), genres)])
    k = b.concat([b.embed(b.ids("hist_film_id", history), films), b.embed(b.ids("hist_genre_id", history), genres)])
    u = b.concat([b.embed(b.ids("user_id", user), b.table("user", dim=8)), b.dense("context", user, 3)])
    x = b.concat([b.expand(u, item), b.din_attention("din", q, k, hidden=[16, 8], activation="dice"), q])
    return {"ctr": b.sigmoid(b.mlp("tower", x, [32, 1], "dice"))}


def mmoe(b):
    x = b.dense("x", b.axis("row"), 12)
    experts = b.experts("experts", x, 4, [16, 8])
    ctr, cvr = (b.sigmoid(b.mlp(f"tower{t}", b.mix(experts, b.gate(f"gate{t}", x, 4)), [8, 1])) for t in range(2))
    return {"ctr": ctr, "ctcvr": ctr * cvr}


def ple(b):
    tasks = b.ple("ple", b.dense("x", b.axis("row"), 12), levels=[[16], [8]])
    return {f"task{t}": b.sigmoid(b.mlp(f"tower{t}", x, [4, 1])) for t, x in enumerate(tasks)}


def two_towers(b):
    user = b.axis("user")
    item, history = b.axis("item", user), b.axis("history", user)
    films = b.table("film", dim=16)
    x = b.embed(b.ids("hist", history), films) + b.embed(b.ids("place", history), b.table("position", dim=16))
    for i in range(2):
        x = b.self_attention(f"block{i}", x, heads=2, hidden=32)
    u = b.mlp("user", b.concat([b.pool(x, "mean"), b.dense("context", user, 3)]), [16, 16])
    v = b.linear("item", b.embed(b.ids("film_id", item), films), 16)
    return {"score": b.reduce(b.expand(u, item) * v, "sum")}


def dlrm_of_bags(b):
    """examples/models/dlrm.hpp with three bags, in the shape of the tests of torchrec."""
    row = b.axis("row")
    bottom = b.mlp("bottom", b.dense("dense", row, 5), [16, 8], output_activation="relu")
    bags = [b.embed_bag(b.ids(name, b.axis(name, row)), b.table(name, dim=8), pooling)
            for name, pooling in (("city", "sum"), ("tags", "mean"), ("film", "sum"))]
    return {"ctr": b.mlp("top", b.concat([bottom, b.dot([bottom, *bags], 8)]), [16, 8, 1])}


def _criteo(b):
    sample = b.axis("sample", b.axis("request"))
    bottom = b.mlp("bottom", b.dense("dense", sample, 13), [512, 256, 128], output_activation="relu")
    names = [f"category_{i}" for i in range(26)]
    return bottom, [bottom] + [b.embed(b.ids(n, sample), b.table(n, dim=128)) for n in names]


def dlrm(b):
    """examples/models/dlrm.hpp"""
    bottom, fields = _criteo(b)
    return {"ctr": b.sigmoid(b.mlp("top", b.concat([bottom, b.dot(fields, 128)]), [1024, 1024, 512, 256, 1]))}


def dcn_v2(b):
    """examples/models/dcn_v2.hpp"""
    crossed = b.cross("cross", b.concat(_criteo(b)[1]), layers=3, rank=512)
    return {"ctr": b.sigmoid(b.mlp("top", crossed, [1024, 1024, 512, 256, 1]))}
