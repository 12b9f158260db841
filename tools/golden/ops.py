# SPDX-License-Identifier: Apache-2.0
"""A golden case for every op of the model language. Each has its twin of the same name in tests/golden/op_models.hpp."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import layers
from golden import Case, Request, f32, f64

SCALES = (2.0**-8, 1.0, 2.0**5)


def linear():
    case = Case("linear")
    case.add_items({"x": 7}, scales=SCALES)

    def model(request):
        x = request.dense("x")
        outputs = {kind: layers.linear(case.weight, kind, x, 5, kind) for kind in layers.ACTIVATIONS}
        outputs["no_bias"] = layers.linear(case.weight, "no_bias", x, 5, bias=False)
        return outputs

    case.save(model)


def mlp():
    case = Case("mlp")
    case.add_items({"x": 6}, scales=SCALES)

    def model(request):
        x = request.dense("x")
        outputs = {}
        for kind in layers.ACTIVATIONS:
            outputs[kind] = layers.mlp(case.weight, kind, x, [5, 4, 2], kind)
            outputs[kind + "_normed"] = layers.mlp(case.weight, kind + "_normed", x, [5, 4, 2], kind, norm=True, eps=1e-3)
        outputs["no_bias"] = layers.mlp(case.weight, "no_bias", x, [5, 2], "tanh", bias=False, output_activation="silu")
        return outputs

    case.save(model)


def norms():
    case = Case("norms")
    case.add_items({"x": 6}, scales=SCALES)

    def model(request):
        x, w = request.dense("x"), case.weight
        outputs = {
            "batch_norm": layers.batch_norm(w, "batch_norm", x),
            "batch_norm_plain": layers.batch_norm(w, "batch_norm_plain", x, 1e-3, affine=False),
            "batch_norm_then_linear": layers.linear(w, "after", layers.batch_norm(w, "before", x), 3, "relu"),
            "layer_norm": F.layer_norm(x, (6,), w("layer_norm.weight", 6), w("layer_norm.bias", 6), f32(1e-5)),
            "layer_norm_plain": F.layer_norm(x, (6,), eps=f32(1e-3)),
            "layer_norm_groups": F.layer_norm(x.view(-1, 2, 3), (3,), w("layer_norm_groups.weight", 3),
                                              w("layer_norm_groups.bias", 3), f32(1e-5)).view(-1, 6),
            "layer_norm_stacked": (F.layer_norm(x.view(-1, 3, 2), (2,), eps=f32(1e-5)) *
                                   w("layer_norm_stacked.weight", 3, 2) + w("layer_norm_stacked.bias", 3, 2)).view(-1, 6),
            "softmax": torch.softmax(x, 1),
        }
        for kind in layers.ACTIVATIONS:
            outputs["activate_" + kind] = layers.activate(w, "activate_" + kind, kind, x)
        return outputs

    case.save(model)


def elementwise():
    case = Case("elementwise")
    case.add_items({"a": 4, "b": 4, "one": 1}, numbers=(6, 0))
    case.requests[0].values["a"][0] = case.requests[0].values["b"][0]  # equal in a row

    def model(request):
        a, b, one = (request.dense(name) for name in ("a", "b", "one"))
        compare = {"less": a < b, "less_equal": a <= b, "greater": a > b, "greater_equal": a >= b, "equal": a == b,
                   "not_equal": a != b}
        outputs = {
            "add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "min": torch.minimum(a, b),
            "max": torch.maximum(a, b), "select": torch.where(a < b, a, 2 * b), "neg": -a, "abs": a.abs(),
            "exp": torch.exp(a), "log": torch.log(a.abs()), "sqrt": torch.sqrt(b.abs()), "square": a * a,
            "sin": torch.sin(a), "cos": torch.cos(a), "atan2": torch.atan2(a, b),
            "relu": F.relu(a), "leaky_relu": F.leaky_relu(a, f32(0.2)), "elu": F.elu(a, 1.5),
            "sigmoid": torch.sigmoid(a), "tanh": torch.tanh(a), "gelu": F.gelu(a),
            "gelu_tanh": F.gelu(a, approximate="tanh"), "silu": F.silu(a),
            "one_column": (a + one) * one - one / 3, "numbers": 1 - (2 * a + 0.5) / 4,
            "chain": torch.sigmoid(a * b - one) * torch.tanh(b) + torch.maximum(a, torch.tensor(0.25)),
        }
        outputs.update({name: holds.to(torch.float64) for name, holds in compare.items()})
        return outputs

    case.save(model)


def reductions():
    case = Case("reductions")
    for events in ([4, 0, 1, 7], [], [0], [3]):
        request = Request()
        request.lengths["item"], request.lengths["event"] = [len(events)], events
        request.values["x"] = case.normal(sum(events), 5)
        request.values["recent"] = case.normal(9, 2)
        request.lengths["recent"] = [9]
        case.add(request)

    def pooled(x, mode):
        if len(x) == 0:
            return torch.zeros(x.shape[1], dtype=torch.float64)
        return {"sum": x.sum(0), "mean": x.mean(0), "sqrtn": x.sum(0) / len(x) ** 0.5, "max": x.max(0).values}[mode]

    def model(request):
        x, outputs = request.dense("x"), {}
        for mode in ("sum", "mean", "sqrtn", "max"):
            rows = [pooled(part, mode) for part in request.split(x, "event")]
            outputs["pool_" + mode] = torch.stack(rows) if rows else torch.zeros(0, 5, dtype=torch.float64)
            outputs["reduce_" + mode] = pooled(x.T, mode)[:, None]
        outputs["last_four"] = request.dense("recent")[-4:].sum(0)[None]
        return outputs

    case.save(model)


KEYS = [0, -1, 5, 2**63 - 1, -(2**63), 1234567890123, 7, 8, 9, 10]


def rows_of(ids, rows, keys, padding):
    """Row numbers of ids in a table: `rows` for unknown ones (where its default row is), None for padding."""
    place = {key: r for r, key in enumerate(keys)} if keys else {r: r for r in range(rows)}
    return [None if i == padding else place.get(i, rows) for i in ids]


TABLES = {  # name -> options of Case.table
    "direct": {}, "half": {"dtype": "float16"}, "brain": {"dtype": "bfloat16"}, "bytes": {"dtype": "int8"},
    "direct_default": {"default": True}, "hashed": {"keys": KEYS},
    "hashed_half": {"keys": KEYS, "dtype": "float16", "default": True},
    "hashed_bytes": {"keys": KEYS, "dtype": "int8", "default": True},
}


def look_ups(case):
    """Tables of 10 rows and 6 columns."""
    return {name: case.table(name, 10, 6, **options) for name, options in TABLES.items()}


def some_ids(case, count):
    direct = case.random.integers(0, 10, count)
    direct[::4], direct[1::7] = -1, 10 + 2**40
    hashed = case.random.choice(np.array(KEYS + [77, -2]), count)
    return direct, hashed


def embed():
    case = Case("embed")
    tables = look_ups(case)
    for number in (16, 0, 1, 5):
        request = Request()
        request.lengths["item"] = [number]
        request.ids["direct_id"], request.ids["hashed_id"] = some_ids(case, number)
        if number != 5:
            request.ids["optional_id"] = case.random.integers(0, 10, number)
        case.add(request)

    def model(request):
        outputs = {}

        def look_up(output, name, ids, padding):
            rows = rows_of(ids, 10, TABLES[name].get("keys"), padding)
            found = [torch.zeros(6, dtype=torch.float64) if r is None else tables[name][r] for r in rows]
            outputs[output] = torch.stack(found) if found else torch.zeros(0, 6, dtype=torch.float64)

        for name, options in TABLES.items():
            hashed = "keys" in options
            look_up(name, name, request.ids["hashed_id" if hashed else "direct_id"], None if hashed else -1)
        look_up("optional", "direct", request.ids.get("optional_id", [3] * request.rows("item")), -1)
        look_up("padded", "hashed_half", request.ids["hashed_id"], 5)  # as the input of the same ids with padding = 5
        return outputs

    for request in case.requests:
        request.ids["padded_id"] = request.ids["hashed_id"]
    case.save(model)


def embed_bag():
    case = Case("embed_bag")
    tables = look_ups(case)
    for tags in ([5, 0, 1, 12], [], [0], [33]):
        request = Request()
        request.lengths["item"], request.lengths["tag"] = [len(tags)], tags
        request.ids["direct_id"], request.ids["hashed_id"] = some_ids(case, sum(tags))
        request.ids["padded_id"] = request.ids["hashed_id"]
        request.values["weight"] = np.abs(case.normal(sum(tags), 1)) + np.float32(0.25)
        case.add(request)

    def model(request):
        outputs = {}

        def bags(output, name, ids, padding, mode, weighted):
            rows = rows_of(ids, 10, TABLES[name].get("keys"), padding)
            kept = torch.tensor([r is not None for r in rows], dtype=torch.bool)
            lengths = [int(part.sum()) for part in request.split(kept, "tag")]
            index = torch.tensor([r for r in rows if r is not None], dtype=torch.int64)
            weights = request.dense("weight")[:, 0][kept] if weighted else None
            y = layers.embedding_bag(tables[name], index, lengths, mode, weights)
            if mode != "sqrtn" and not (weighted and mode == "mean"):  # what PyTorch has as one function
                starts = torch.tensor(np.cumsum([0] + lengths)[:-1], dtype=torch.int64)
                theirs = F.embedding_bag(index, tables[name], starts, mode=mode, per_sample_weights=weights)
                assert torch.allclose(theirs, y, rtol=1e-13, atol=1e-13)
            outputs[output] = y

        for name, options in TABLES.items():
            ids, padding = ("hashed_id", None) if "keys" in options else ("direct_id", -1)
            for mode in ("sum", "mean", "sqrtn", "max"):
                bags(f"{name}_{mode}", name, request.ids[ids], padding, mode, False)
                if mode != "max":
                    bags(f"{name}_{mode}_weighted", name, request.ids[ids], padding, mode, True)
        bags("padded", "hashed_bytes", request.ids["padded_id"], 5, "mean", True)
        return outputs

    case.save(model)


def structure():
    """Axes nested three deep, defaults, columns moved about."""
    case = Case("structure")
    for sessions in ([2, 0, 3], [1], []):
        request = Request()
        request.lengths["session"], request.lengths["item"] = [len(sessions)], sessions
        request.values["of_user"] = case.normal(1, 3)
        request.values["of_session"] = case.normal(len(sessions), 2)
        request.values["of_item"] = case.normal(sum(sessions), 4)
        if len(sessions) > 1:
            request.values["optional"] = case.normal(sum(sessions), 2)
        case.add(request)

    def model(request):
        user = request.expand(request.dense("of_user"), "session", "item")
        session = request.expand(request.dense("of_session"), "item")
        item = request.dense("of_item")
        optional = f64(np.full((len(item), 2), -1.5))
        if "optional" in request.values:
            optional = request.dense("optional")
        x = torch.cat([user, item, session, optional, user], 1)
        return {"everything": x, "slice": x[:, 2:9],
                "scores": layers.mlp(case.weight, "scores", x, [6, 1], "relu", output_activation="sigmoid"),
                "of_user": layers.linear(case.weight, "of_user", request.dense("of_user"), 2, "tanh")}

    case.save(model)


DIN = {  # name -> hidden, activation, normalization, scaled
    "plain": ([6, 5], "dice", "none", False),
    "plain_scaled": ([80, 40], "dice_affine", "none", True),
    "softmax": ([6, 3], "sigmoid", "softmax", False),
    "softmax_scaled": ([6], "prelu", "softmax", True),
    "sigmoid": ([6, 4], "relu", "sigmoid", False),
    "sigmoid_scaled": ([7, 5, 3], "gelu", "sigmoid", True),
}


def din_attention():
    case = Case("din_attention")
    for scale in (2.0**-4, 1.0, 4.0):
        for items, events in ((3, 9), (2, 1), (2, 0), (0, 4)):
            request = Request()
            request.lengths["item"], request.lengths["event"] = [items], [events]
            request.values["q"], request.values["k"] = case.normal(items, 4, scale), case.normal(events, 4, scale)
            case.add(request)

    def model(request):
        return {name: layers.din_attention(case.weight, name, [request.dense("q")], [request.dense("k")], *options)
                for name, options in DIN.items()}

    case.save(model)


def multihead(case, name, width, heads, bias=True):
    """nn.MultiheadAttention with the projections "<name>.q", ".k", ".v", ".out"."""
    attention = nn.MultiheadAttention(width, heads, bias=bias, batch_first=True, dtype=torch.float64)
    weights = [case.weight(f"{name}.{part}.weight", width, width) for part in ("q", "k", "v")]
    state = {"in_proj_weight": torch.cat(weights), "out_proj.weight": case.weight(f"{name}.out.weight", width, width)}
    if bias:
        state["in_proj_bias"] = torch.cat([case.weight(f"{name}.{part}.bias", width) for part in ("q", "k", "v")])
        state["out_proj.bias"] = case.weight(f"{name}.out.bias", width)
    attention.load_state_dict(state)
    return attention


def target_attention():
    case = Case("target_attention")
    for scale in (2.0**-4, 1.0, 4.0):
        for items, events in ((3, 9), (2, 1), (2, 0), (0, 4)):
            request = Request()
            request.lengths["item"], request.lengths["event"] = [items], [events]
            request.values["q"], request.values["k"] = case.normal(items, 6, scale), case.normal(events, 6, scale)
            request.values["other_k"] = case.normal(events, 5, scale)
            case.add(request)

    def attend(name, heads, q, k, bias=True):
        module = multihead(case, name, 6, heads, bias)
        if len(k) == 0 or len(q) == 0:  # nothing to attend to is zeros before the output projection
            return module.out_proj(torch.zeros_like(q))
        return module(q[None], k[None], k[None], need_weights=False)[0][0]

    def other_widths(q, k):
        """Two heads of 3 columns, a history of 5, 4 columns out."""
        q, keys, values = (layers.linear(case.weight, "widths." + part, x, 6)
                           for part, x in (("q", q), ("k", k), ("v", k)))
        heads = []
        for h in (slice(0, 3), slice(3, 6)):
            scores = torch.softmax(q[:, h] @ keys[:, h].T / 3**0.5, 1)
            heads.append(scores @ values[:, h])
        return layers.linear(case.weight, "widths.out", torch.cat(heads, 1), 4)

    def model(request):
        q, k = request.dense("q"), request.dense("k")
        return {"one_head": attend("one_head", 1, q, k), "two_heads": attend("two_heads", 2, q, k),
                "no_bias": attend("no_bias", 3, q, k, bias=False), "widths": other_widths(q, request.dense("other_k"))}

    case.save(model)


def hstu():
    """Layers of HSTU as published (Zhai et al. 2024): all parts are one sequence, and a mask says who sees whom. A
    target has the place behind the last event, as has every other, and sees itself. Most have a large eps, so that
    norms do not magnify the errors of FP16 beyond what says something."""
    case = Case("hstu")
    for scale in (2.0**-4, 1.0, 4.0):
        for items, events, contexts in ((3, 9, 2), (2, 1, 0), (2, 0, 3), (0, 4, 1)):
            request = Request()
            request.lengths["item"], request.lengths["event"] = [items], [events]
            request.lengths["context"] = [contexts]
            request.values["x"], request.values["y"] = case.normal(events, 6, scale), case.normal(items, 6, scale)
            request.values["c"] = case.normal(contexts, 6, scale)
            times = np.sort(-np.exp(case.random.uniform(0, 14, events)).round())[:, None]  # seconds before the request
            request.values["t"] = times.astype(np.float32)
            request.values["next"] = np.append(times[1:], np.zeros((min(events, 1), 1)), 0).astype(np.float32)
            request.values["now"] = np.zeros((items, 1), np.float32)
            case.add(request)

    def norm(name, parts, groups, eps, by_part, weight):
        normed = []
        for i, x in enumerate(parts):
            of_part, width = name + (f".{i}" if by_part else ""), x.shape[1]
            shape = (width,) if groups == 1 else (groups, width // groups)
            scale, shift = (weight(f"{of_part}.{which}", *shape).reshape(width) for which in ("weight", "bias"))
            whole = F.layer_norm(x.reshape(len(x), groups, width // groups), (width // groups,), eps=f32(eps))
            normed.append(whole.reshape(len(x), width) * scale + shift)
        return torch.cat(normed)

    def about_one(name, *shape):  # as learned ones are: scores are not tiny
        if name not in case.weights:
            case.weight(name, *shape)
            if name.endswith(".weight"):
                case.weights[name] += np.float32(1)
        return case.weight(name, *shape)

    def mask(sizes, targets, contexts, contexts_see_events, window, full_last):
        part = [i for i, size in enumerate(sizes) for _ in range(size)]
        ordered = [i for i, p in enumerate(part) if contexts <= p < len(sizes) - targets]

        def place(i):
            return ordered.index(i) if i in ordered else len(ordered)

        def sees(i, j):
            if part[j] >= len(sizes) - targets:
                return i == j
            if part[i] < contexts:
                return part[j] < contexts or contexts_see_events
            if part[j] < contexts:
                return True
            before = place(i) - place(j)
            is_full = full_last > 0 and place(i) >= len(ordered) - full_last
            return before >= 0 and (window == 0 or before <= window or is_full)

        return torch.tensor([[sees(i, j) for j in range(len(part))] for i in range(len(part))],
                            dtype=torch.bool).reshape(len(part), len(part))

    def biases(name, heads, sizes, contexts, targets, positions, time_buckets, bucket_width, by_head, times):
        """[heads, rows, rows], as RelativeBucketedTimeAndPositionBasedBias; contexts have none."""
        def tables(which, count):
            return case.weight(name + which, heads, count) if by_head else case.weight(name + which, count).repeat(heads, 1)

        ordered, rows = slice(sum(sizes[:contexts]), sum(sizes)), sum(sizes[contexts:])
        bias = torch.zeros(heads, sum(sizes), sum(sizes), dtype=torch.float64)
        place = torch.arange(rows)
        if targets:
            place = place.clamp(max=rows - sizes[-1])
        if positions:
            distance = (place[:, None] - place[None, :]).clamp(0, positions - 1)
            bias[:, ordered, ordered] += tables(".position_bias", positions)[:, distance]
        if time_buckets:
            own, following = (torch.cat(parts)[:, 0] for parts in times)
            apart = (following[:, None] - own[None, :]).abs().clamp(min=1)
            if targets:
                apart[rows - sizes[-1]:, rows - sizes[-1]:] = 1
            bucket = (torch.log(apart) / f32(bucket_width)).long().clamp(max=time_buckets)
            bias[:, ordered, ordered] += tables(".time_bias", time_buckets + 1)[:, bucket]
        return bias

    def layer(name, parts, heads, dim, max_length, scale=None, eps=0.5, targets=1, contexts=0,
              contexts_see_events=False, window=0, full_last=0, gate="beside", activation="identity",
              norm_by_part=False, norm_by_head=False, out_bias=False, positions=0, time_buckets=0,
              bucket_width=0.301, bias_by_head=False, times=None):
        w, inner, sizes = case.weight, heads * dim, [len(x) for x in parts]
        scale, x = dim**-0.5 if scale is None else scale, torch.cat(parts)

        def second_norm(y):
            return norm(name + ".attention_norm", y.split(sizes), heads if norm_by_head else 1, eps, norm_by_part,
                        about_one)

        normed = norm(name + ".norm", parts, 1, eps, norm_by_part, about_one)
        u, v, q, k = (layers.linear(w, f"{name}.{part}", normed, inner, "silu" if part == "u" else activation)
                      for part in "uvqk")
        sees = mask(sizes, targets, contexts, contexts_see_events, window, full_last)
        heads_of = [slice(h * dim, (h + 1) * dim) for h in range(heads)]
        bias = biases(name, heads, sizes, contexts, targets, positions, time_buckets, bucket_width, bias_by_head, times)
        attended = torch.cat([F.silu(scale * (q[:, h] @ k[:, h].T) + bias[i]) / max_length * sees @ v[:, h]
                              for i, h in enumerate(heads_of)], 1)
        gated = second_norm(u * attended) if gate == "before_norm" else u * second_norm(attended)
        if gate == "beside":
            gated = torch.cat([u, attended, gated], 1)
        return (x + layers.linear(w, name + ".out", gated, x.shape[1], bias=out_bias)).split(sizes)

    def model(request):
        x, y, c = request.dense("x"), request.dense("y"), request.dense("c")
        outputs = {}

        def keep(name, values, *names):
            outputs.update({f"{name}_{which}": value for which, value in zip(names, values)})

        keep("layer", layer("layer", [x, y], 2, 3, 2), "events", "targets")
        keep("widths", layer("widths", [x, y], 1, 4, 9, f32(1.5), eps=1e-2), "events", "targets")
        keep("alone", layer("alone", [x], 3, 2, 3, targets=0), "events")
        keep("window", layer("window", [x, y], 2, 3, 4, window=3), "events", "targets")
        keep("full", layer("full", [x, y], 2, 3, 4, window=2, full_last=3), "events", "targets")
        keep("mtgr", layer("mtgr", [c, x, y], 2, 3, 5, contexts=1, gate="before_norm", activation="silu",
                           norm_by_part=True, out_bias=True), "contexts", "events", "targets")
        keep("prefix", layer("prefix", [c, x, y], 2, 3, 5, contexts=1, contexts_see_events=True, window=2),
             "contexts", "events", "targets")
        keep("ordered", layer("ordered", [c, x, y], 2, 3, 5, gate="of_norm", norm_by_head=True),
             "contexts", "events", "targets")
        own = [request.dense(name) for name in ("t", "now")]
        following = [request.dense(name) for name in ("next", "now")]
        keep("relative", layer("relative", [x, y], 2, 3, 4, f32(1), positions=12, time_buckets=40,
                               times=(own, following)), "events", "targets")
        keep("by_head", layer("by_head", [c, x, y], 2, 3, 4, contexts=1, contexts_see_events=True, window=5,
                              positions=4, time_buckets=6, bucket_width=1.25, bias_by_head=True, times=(own, own)),
             "contexts", "events", "targets")
        keep("relative_alone", layer("relative_alone", [x], 3, 2, 3, targets=0, positions=3), "events")
        return outputs

    case.save(model)


def rank_mixer():
    """RankMixer as published (Zhu et al. 2025): the heads of a token are dealt to all tokens, and each token has a
    feed-forward network of its own."""
    case = Case("rank_mixer")
    case.add_items({"x": 12}, scales=SCALES)

    def norm(name, x):
        dim = x.shape[-1]
        return F.layer_norm(x, (dim,), case.weight(name + ".weight", dim), case.weight(name + ".bias", dim), f32(0.5))

    def mixed(name, x):
        rows, tokens, dim = x.shape
        heads = x.view(rows, tokens, tokens, dim // tokens).transpose(1, 2).reshape(rows, tokens, dim)
        return norm(name, heads + x)

    def of_each_token(name, x, out):
        tokens, dim = x.shape[1:]
        weight, bias = case.weight(name + ".weight", tokens, out, dim), case.weight(name + ".bias", tokens, out)
        return torch.einsum("rti,toi->rto", x, weight) + bias

    def model(request):
        x = request.dense("x")
        y = of_each_token("mixer.tokens", x.view(-1, 3, 4), 6)
        for i in range(2):
            y = mixed(f"mixer.{i}.mix", y)
            hidden = F.gelu(of_each_token(f"mixer.{i}.ffn.0", y, 5))
            y = norm(f"mixer.{i}.norm", of_each_token(f"mixer.{i}.ffn.1", hidden, 6) + y)
        return {"mixed": mixed("mix", x.view(-1, 2, 6)).flatten(1), "mixer": y.sum(1) * f32(1 / 3),
                "relu": sparse("relu", x, 2, None), "top": sparse("top", x, 5, 2), "all": sparse("all", x, 3, 3)}

    def sparse(name, x, experts, top_k):
        """One layer whose tokens have sparse experts, routed by ReLU or to the largest of a softmax's logits."""
        y = mixed(f"{name}.0.mix", x.view(-1, 2, 6))
        hidden = F.gelu(of_each_token(f"{name}.0.ffn.0", y, experts * 4))
        made = of_each_token(f"{name}.0.ffn.1", hidden.reshape(-1, 2 * experts, 4), 6).view(-1, 2, experts, 6)
        logits = of_each_token(f"{name}.0.router", y, experts)
        if top_k is None:
            weights = logits.relu()
        else:
            largest = logits.topk(top_k, -1)
            weights = torch.zeros_like(logits).scatter(-1, largest.indices, largest.values.softmax(-1))
        out = torch.einsum("rte,rteo->rto", weights, made)
        return norm(f"{name}.0.norm", out + y).sum(1) * f32(1 / 2)

    case.save(model)


def cin():
    """The compressed interaction network as published (Lian et al. 2018): a convolution over all products of two maps."""
    case = Case("cin")
    case.add_items({"x": 15}, scales=(2.0**-4, 1.0, 4.0))

    def network(name, fields, sizes, activation, split_half=True):
        x, results = fields, []
        for i, maps in enumerate(sizes):
            products = torch.einsum("bhd,bmd->bhmd", x, fields).flatten(1, 2)
            weight = case.weight(f"{name}.{i}.weight", maps, products.shape[1])
            made = layers.activate(case.weight, name, activation,
                                   F.conv1d(products, weight[:, :, None], case.weight(f"{name}.{i}.bias", maps)))
            last = i + 1 == len(sizes)
            x, result = torch.split(made, maps // 2, 1) if split_half and not last else (made, made)
            results.append(result.sum(2))
        return torch.cat(results, 1)

    def model(request):
        fields = request.dense("x").view(-1, 5, 3)
        w = case.weight("linear.weight", 4, 5)
        return {"cin": network("cin", fields, [12, 10, 6], "relu"),
                "direct": network("direct", fields, [4, 3], "identity", split_half=False),
                "linear": F.silu(torch.einsum("of,bfd->bod", w, fields)).flatten(1)}

    case.save(model)


def auto_int():
    """The interacting layers as published (Song et al. 2019), with PyTorch's attention."""
    case = Case("auto_int")
    case.add_items({"x": 20}, scales=(2.0**-4, 0.25, 1.0))

    def layer(name, x, heads, head_dim, scale, residual, activation):
        def project(which):
            return x @ case.weight(f"{name}.{which}.weight", heads * head_dim, x.shape[2]).T

        q, k, v = (project(which).unflatten(2, (heads, head_dim)).transpose(1, 2) for which in ("query", "key", "value"))
        y = F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).flatten(2)
        if residual:
            y = y + project("residual")
        return layers.activate(case.weight, name, activation, y)

    def model(request):
        x = request.dense("x")
        fields = x.view(-1, 5, 4)
        for i in range(2):
            fields = layer(f"layers.{i}", fields, 2, 3, 1.0, True, "relu")
        return {"layers": fields.flatten(1),
                "scaled": layer("scaled", x.view(-1, 4, 5), 1, 5, None, False, "silu").flatten(1)}

    case.save(model)


def recurrent():
    """nn.GRU over the events of each user, and the GRUs of DIEN (Zhou et al. 2019) in plain loops."""
    case = Case("recurrent")
    for scale in (0.25, 1.0, 4.0):
        for items, events in (([3], [9]), ([2], [1]), ([2], [0]), ([0], [4]), ([1], [2])):
            request = Request()
            request.lengths["item"], request.lengths["event"] = items, events
            request.values["q"], request.values["x"] = case.normal(sum(items), 6, scale), case.normal(sum(events), 5, scale)
            case.add(request)

    def weights(name, width, hidden):
        return {"weight_ih_l0": case.weight(f"{name}.input.weight", 3 * hidden, width),
                "bias_ih_l0": case.weight(f"{name}.input.bias", 3 * hidden),
                "weight_hh_l0": case.weight(f"{name}.hidden.weight", 3 * hidden, hidden),
                "bias_hh_l0": case.weight(f"{name}.hidden.bias", 3 * hidden)}

    def gru(name, x, hidden):
        module = nn.GRU(x.shape[1], hidden, batch_first=True, dtype=torch.float64)
        module.load_state_dict(weights(name, x.shape[1], hidden))
        return module(x[None])[0][0] if len(x) else torch.zeros(0, hidden, dtype=torch.float64)

    def attentional(name, q, k, x, hidden, scale, update_gate):
        w = weights(name, x.shape[1], hidden)
        shares = torch.softmax(scale * q @ k.T, 1)
        h = torch.zeros(len(q), hidden, dtype=torch.float64)
        for t in range(len(x)):
            of_event = F.linear(x[t], w["weight_ih_l0"], w["bias_ih_l0"]).chunk(3)
            of_state = F.linear(h, w["weight_hh_l0"], w["bias_hh_l0"]).chunk(3, 1)
            r = torch.sigmoid(of_event[0] + of_state[0])
            n = torch.tanh(of_event[2] + r * of_state[2])
            u = shares[:, t:t + 1]
            if update_gate:
                u = u * torch.sigmoid(of_event[1] + of_state[1])
            h = (1 - u) * h + u * n
        return h

    def model(request):
        q, x = request.dense("q"), request.dense("x")
        states = gru("gru", x, 6)
        return {"states": states, "augru": attentional("augru", q, states, states, 4, 1.0, True),
                "agru": attentional("agru", q, states, x, 3, 6 ** -0.5, False)}

    case.save(model)


SELF = {  # name -> heads, hidden, activation, norm_first, causal
    "post_norm": (1, 24, "relu", False, False), "pre_norm": (2, 5, "gelu", True, False),
    "causal": (2, 7, "relu", False, True), "causal_pre_norm": (3, 8, "gelu", True, True),
}


def self_attention():
    case = Case("self_attention")
    for scale in (2.0**-4, 1.0, 2.0):
        for sessions in ([5, 0, 1, 3], []):
            request = Request()
            request.lengths["session"], request.lengths["event"] = [len(sessions)], sessions
            request.values["x"] = case.normal(sum(sessions), 6, scale)
            case.add(request)

    def encoder(name, heads, hidden, activation, norm_first):
        module = nn.TransformerEncoderLayer(6, heads, hidden, 0.0, activation, f32(1e-5), batch_first=True,
                                            norm_first=norm_first, dtype=torch.float64)
        w = case.weight
        state = {"self_attn." + key: value for key, value in multihead(case, name, 6, heads).state_dict().items()}
        for theirs, ours, shape in (("linear1", "ffn.0", (hidden, 6)), ("linear2", "ffn.1", (6, hidden)),
                                    ("norm1", "norm1", (6,)), ("norm2", "norm2", (6,))):
            state[theirs + ".weight"] = w(f"{name}.{ours}.weight", *shape)
            state[theirs + ".bias"] = w(f"{name}.{ours}.bias", shape[0])
        module.load_state_dict(state)
        return module.train()  # without dropout; eval() may take another path

    def model(request):
        outputs = {}
        for name, (heads, hidden, activation, norm_first, causal) in SELF.items():
            module, rows = encoder(name, heads, hidden, activation, norm_first), []
            for x in request.split(request.dense("x"), "event"):
                mask = torch.full((len(x), len(x)), -np.inf, dtype=torch.float64).triu(1) if causal else None
                rows.append(module(x[None], mask)[0] if len(x) else x)
            outputs[name] = torch.cat(rows) if rows else torch.zeros(0, 6)
        return outputs

    case.save(model)


def wukong():
    """Wukong as published (Zhang et al. 2024): the factorisation machine's X X^T Y as the products of X with Y^T X, and
    the residual projected where the number of fields changes."""
    case = Case("wukong")
    case.add_items({"x": 20}, scales=SCALES)

    def norm(name, x):
        width = x.shape[-1]
        return F.layer_norm(x, (width,), case.weight(name + ".weight", width), case.weight(name + ".bias", width),
                            f32(0.5))

    def layer(name, x, machine_fields, linear_fields, rank):
        rows, fields, dim = x.shape
        made = machine_fields + linear_fields
        projected = made if fields != made else 0
        weight = case.weight(name + ".fields.weight", rank + linear_fields + projected, fields)
        y, compression, projection = weight.split([rank, linear_fields, projected])
        products = (x @ x.transpose(1, 2) @ y.T).flatten(1)
        machine = layers.mlp(case.weight, name + ".machine", norm(name + ".products", products),
                             [6, 5, machine_fields * dim], "silu")
        z = torch.cat([machine.view(rows, machine_fields, dim), compression @ x], 1)
        return norm(name + ".norm", z + (projection @ x if projected else x))

    def model(request):
        x = request.dense("x").view(-1, 5, 4)
        for i in range(2):
            x = layer(f"layers.{i}", x, 1, 2, 3)
        return {"layers": x.flatten(1)}

    case.save(model)


def interactions():
    case = Case("interactions")
    for scale in SCALES:
        for items in (3, 0):
            request = Request()
            request.lengths["item"] = [items]
            request.values["of_user"] = case.normal(1, 8, scale)
            request.values["of_item"] = case.normal(items, 12, scale)
            case.add(request)

    def model(request):
        x = torch.cat([request.expand(request.dense("of_user"), "item"), request.dense("of_item")], 1)
        fields, w = x.reshape(len(x), 5, 4), case.weight
        outputs = {"fm": layers.fm(fields, True), "fm_vector": layers.fm(fields, False),
                   "cross": layers.cross(w, "cross", x, 3), "cross_low_rank": layers.cross(w, "cross_low_rank", x, 2, 3),
                   "wide": x.sum(1, keepdim=True) + w("wide.bias", 1)}
        for order in ("lower", "upper", "lower_padded"):
            for self in (False, True):
                outputs[f"dot_{order}{'_self' if self else ''}"] = layers.dot_interaction(fields, order, self)
        outputs["dot_between"] = torch.bmm(fields[:, [2, 0, 1]], fields.transpose(1, 2)).flatten(1)
        return outputs

    case.save(model)


def experts():
    case = Case("experts")
    for scale in (2.0**-8, 1.0, 8.0):
        for sessions, scenes in (([3, 2], [1, 0]), ([1, 1, 1], [2, -1, 3]), ([0], [0])):
            request = Request()
            request.lengths["session"], request.lengths["item"] = [len(sessions)], sessions
            request.ids["scene"], request.values["x"] = scenes, case.normal(sum(sessions), 6, scale)
            case.add(request)

    def model(request):
        x, w = request.dense("x"), case.weight
        outputs, shared = {}, layers.experts(w, "experts", x, 4, [5, 3], "silu")
        for kind in ("softmax", "sigmoid", "none"):
            outputs["mix_" + kind] = layers.mix(shared, layers.linear(w, "gate_" + kind, x, 4), kind)
        for t, task in enumerate(layers.ple(w, "ple", x, 3, 2, 1, [[5, 4], [3]])):
            outputs[f"ple_{t}"] = task
        scene = request.expand(torch.tensor(request.ids["scene"])[:, None], "item")[:, 0]
        of_all = layers.experts(w, "scene", x, 3, [5, 2], "dice")
        rows = [of_all[n, s] if 0 <= s < 3 else torch.zeros(2, dtype=torch.float64) for n, s in enumerate(scene)]
        outputs["scene"] = torch.stack(rows) if rows else torch.zeros(0, 2)
        return outputs

    case.save(model)


def keras():
    """Matrices as Keras stores them: [in, out], stacked [experts, in, out]."""
    case = Case("keras")
    case.add_items({"x": 6})

    def model(request):
        x, w = request.dense("x"), case.weight
        return {"mlp": layers.mlp(w, "mlp", x, [5, 4, 2], "prelu"), "cross": layers.cross(w, "cross", x, 2, 3),
                "experts": layers.experts(w, "experts", x, 3, [5, 2]).flatten(1),
                "din": layers.din_attention(w, "din", [x], [x[:2]], [4], "dice")}

    for request in case.requests:
        request.lengths["event"] = [min(2, request.rows("item"))]
        request.values["event_x"] = request.values["x"][:2]
        model(request)
    weights = case.weights
    expected = [model(request) for request in case.requests]
    case.weights = {name: np.swapaxes(v, -1, -2) if name.endswith(".weight") else v for name, v in weights.items()}
    results = iter(expected)
    case.save(lambda request: next(results))


CASES = [linear, mlp, norms, elementwise, reductions, embed, embed_bag, structure, din_attention, target_attention,
         recurrent, self_attention, hstu, rank_mixer, cin, auto_int, wukong, interactions, experts, keras]
