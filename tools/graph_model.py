# SPDX-License-Identifier: Apache-2.0
"""Reference models for other engines: reads what benchmarks/models/run_model.cpp writes (a model's graph, weights,
tables and a batch) and builds the model with whatever operations it is given, as PyTorch or as ONNX.

Every request of the batch has as many rows on each axis as the others, so that shapes are static and nothing is padded,
which is as good as it gets for engines of tensors. Ids are rows of tables: the search in hashed tables is left out.
"""

import json
import os
import subprocess
from dataclasses import dataclass

import numpy as np

MODELS = ["wide_deep", "dlrm", "dcn_v2", "din_mmoe", "meituan_like", "user_heavy", "rank_mixer", "hstu",
          "xdeepfm", "auto_int", "wukong", "dien", "mtgr", "dlrm_hstu"]


@dataclass(frozen=True)
class Form:
    """A way to write the same model."""

    name: str
    graph: str  # the file
    attention: str = "concat"  # of [q, k, q - k, q * k]; or its first layer "split" into the shares of q, k and q * k
    merged: bool = False  # tables side by side in a concat are one table of all their rows, looked up at once


# As it is written; with what belongs to the user computed once and added late; and with fewer look-ups, too.
FORMS = [Form("naive", "source.json"), Form("deduplicated", "deduplicated.json", "split"),
         Form("deduplicated_merged", "deduplicated.json", "split", True)]


class Folder:
    """Everything about a model and a batch."""

    def __init__(self, path):
        from safetensors.numpy import load_file

        self.path = path
        self.weights = load_file(os.path.join(path, "weights.safetensors"))
        self.tables = load_file(os.path.join(path, "tables.safetensors"))
        self.batch = load_file(os.path.join(path, "batch.safetensors"))
        self.scores = load_file(os.path.join(path, "scores.safetensors"))

    def graph(self, form):
        with open(os.path.join(self.path, form.graph), encoding="utf-8") as file:
            return json.load(file)

    def rows_per_parent(self, axis):
        """How many rows of this axis each row of its parent has."""
        lengths = self.batch["lengths." + axis]
        if lengths.min() != lengths.max():
            raise ValueError(f"axis {axis}: expected as many rows everywhere, got {lengths.min()} to {lengths.max()}")
        return int(lengths[0])

    def error_of(self, scores):
        """The largest difference from our scores."""
        return max(float(np.abs(self.scores[name].ravel() - np.asarray(scores[name], np.float64).ravel()).max())
                   for name in self.scores)


class ModelRunner:
    """Our engine in a process of its own, which scores the batch when it is asked to and says how long that took."""

    def __init__(self, program, model, folder, requests, items, table_rows, device="host",
                 precision="fp32"):
        os.makedirs(folder, exist_ok=True)
        self.process = subprocess.Popen(
            [program, model, folder, str(requests), str(items), str(table_rows), device,
             precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._answer() != "ready":
            raise RuntimeError(f"{program}: expected it to say that it is ready")

    def run(self, calls, contexts=1, threads=1):
        """Seconds (by the clock, of the process) of `calls` batches in each of some contexts, which have so many
        threads each."""
        self.process.stdin.write(f"{calls} {contexts} {threads}\n")
        self.process.stdin.flush()
        wall, process = self._answer().split()
        return float(wall), float(process)

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]}: ended with status {self.process.wait()}")
        return line.strip()


class Model:
    """Runs a graph by `ops`, whose tensors have shapes that are known here."""

    def __init__(self, folder, form):
        self.folder, self.form, self.graph = folder, form, folder.graph(form)
        self.rows = []
        for axis in self.graph["axes"]:
            known = axis["parent"] >= 0
            self.rows.append(self.rows[axis["parent"]] * folder.rows_per_parent(axis["name"]) if known
                             else len(folder.batch["requests"]))

    def run(self, ops):
        """The outputs by name, each [rows, width]."""
        self.ops, self.values = ops, {}
        merged = set()
        if self.form.merged:
            self.readers = [0] * len(self.graph["nodes"])
            for node in self.graph["nodes"]:
                for i in node["inputs"]:
                    self.readers[i] += 1
            merged = {i for node in self.graph["nodes"] if node["op"] == "concat"
                      for run in self.runs(node) if len(run) > 1 for i in run}
        for i, node in enumerate(self.graph["nodes"]):
            if i not in merged:
                self.values[i] = getattr(self, node["op"])(node, node.get("settings", {}))
        return {output["name"]: self.values[output["node"]] for output in self.graph["outputs"]}

    def weight(self, name):
        return self.folder.weights[name]

    def node_of(self, node, i):
        return self.graph["nodes"][node["inputs"][i]]

    def input(self, node, i):
        """An input, repeated where it is of an outer axis."""
        return self.repeat(self.values[node["inputs"][i]], self.node_of(node, i), node["axis"])

    def repeat(self, x, producer, axis):
        rows, repeated = self.rows[producer["axis"]], self.rows[axis]
        if producer["axis"] == axis:
            return x
        width = producer["width"]
        x = self.ops.expand(self.ops.reshape(x, (rows, 1, width)), (rows, repeated // rows, width))
        return self.ops.reshape(x, (repeated, width))

    # --- inputs ---

    def dense(self, node, settings):
        return self.ops.dense(self.graph["dense"][settings["input"]]["name"])

    def table(self, index):
        table = self.graph["tables"][index]
        return self.folder.tables[table["name"] + (".rows" if table["hashed"] else "")]

    def ids(self, settings):
        """Rows of the table."""
        info, table = self.graph["ids"][settings["ids"]], self.graph["tables"][settings["table"]]
        ids = self.folder.batch["ids." + info["name"]]
        if not table["hashed"]:
            return ids
        keys = self.folder.tables[table["name"] + ".keys"]
        order = np.argsort(keys)
        return order[np.searchsorted(keys, ids, sorter=order)]

    def embed(self, node, settings):
        name, ids = self.graph["ids"][settings["ids"]]["name"], self.ids(settings)
        table = self.ops.weight(("table", settings["table"]), lambda: self.table(settings["table"]))
        if settings["pooling"] == "none":
            return self.ops.gather(table, self.ops.ids(name, ids))
        rows = self.rows[node["axis"]]
        return self.ops.bag(table, self.ops.ids(name, ids.reshape(rows, -1)), settings["pooling"])

    def runs(self, node):
        """The inputs of a concat, with single look-ups together that only it reads and that are of one width."""
        runs, last = [], None
        for i in node["inputs"]:
            embed = self.graph["nodes"][i]
            key = None
            if (embed["op"] == "embed" and embed["settings"]["pooling"] == "none" and self.readers[i] == 1
                    and embed["axis"] == node["axis"]):
                key = embed["width"]
            if key is not None and key == last:
                runs[-1].append(i)
            else:
                runs.append([i])
            last = key
        return runs

    def merged_embeds(self, run):
        embeds = [self.graph["nodes"][i]["settings"] for i in run]
        tables = sorted({e["table"] for e in embeds})
        first, starts = 0, {}
        for t in tables:
            starts[t] = first
            first += len(self.table(t))
        ids = np.stack([self.ids(e) + starts[e["table"]] for e in embeds], 1)
        table = self.ops.weight(("tables", *tables), lambda: np.concatenate([self.table(t) for t in tables]))
        rows = self.ops.gather(table, self.ops.ids("merged_" + "_".join(map(str, run)), ids))
        return self.ops.reshape(rows, (len(ids), -1))

    # --- columns and rows ---

    def concat(self, node, settings):
        if self.form.merged:
            parts = [self.merged_embeds(run) if len(run) > 1 else
                     self.repeat(self.values[run[0]], self.graph["nodes"][run[0]], node["axis"])
                     for run in self.runs(node)]
        else:
            parts = [self.input(node, i) for i in range(len(node["inputs"]))]
        return self.ops.concat(parts) if len(parts) > 1 else parts[0]

    def expand(self, node, settings):
        return self.input(node, 0)

    def slice(self, node, settings):
        return self.ops.columns(self.input(node, 0), settings["begin"], settings["begin"] + node["width"])

    def reduce(self, node, settings):
        return self.ops.reduce(self.input(node, 0), 1, settings["pooling"], keep=True)

    def pool(self, node, settings):
        """Rows of a nested axis onto its parent."""
        if settings["pooling"] == "sqrtn":
            raise NotImplementedError(f"{node['name']}: pooling with sqrtn")
        events, rows = self.rows[self.node_of(node, 0)["axis"]], self.rows[node["axis"]]
        x = self.ops.reshape(self.values[node["inputs"][0]], (rows, events // rows, node["width"]))
        return self.ops.reduce(x, 1, settings["pooling"], keep=False)

    def softmax(self, node, settings):
        return self.ops.softmax(self.input(node, 0))

    # --- tokens and sequences ---

    def layer_norm(self, node, settings):
        y = self.normed(self.input(node, 0), node["width"], settings)
        return self.ops.mul(y, self.input(node, 1)) if len(node["inputs"]) > 1 else y

    def normed(self, x, width, settings):
        """The columns of each of a row's groups normed."""
        name, groups, ops = settings["name"], settings["groups"], self.ops
        if settings["stacked"]:
            raise NotImplementedError(f"{name}: a norm of its own for each group")
        weight, bias = (ops.weight((name, part), lambda part=part: self.weight(f"{name}.{part}"))
                        if settings["affine"] else None for part in ("weight", "bias"))
        of_groups = ops.reshape(x, (-1, width // groups)) if groups > 1 else x
        y = ops.layer_norm(of_groups, weight, bias, settings["eps"], width // groups)
        return ops.reshape(y, (-1, width)) if groups > 1 else y

    def mix_tokens(self, node, settings):
        ops, tokens, width = self.ops, settings["tokens"], node["width"]
        x = self.input(node, 0)
        parts = ops.reshape(x, (-1, tokens, tokens, width // tokens**2))
        mixed = ops.reshape(ops.transpose(parts, (0, 2, 1, 3)), (-1, width))
        of_tokens = {"groups": tokens, "stacked": False, "affine": True, **settings["norm"]}
        return self.normed(ops.add(x, mixed), width, of_tokens)

    def attention(self, node, settings):
        """Heads of a user's queries and events are a batch of products."""
        if settings["weights"] != "silu" or settings.get("window", 0) > 0:
            raise NotImplementedError(f"{node['name']}: attention with a softmax or a window")
        ops, heads, width = self.ops, settings["heads"], node["width"]
        events_axis, axis = self.node_of(node, 1)["axis"], node["axis"]
        parent = self.graph["axes"][events_axis]["parent"]
        users, dim = self.rows[parent], width // heads
        num_queries, num_events = self.rows[axis] // users, self.rows[events_axis] // users

        def by_head(x, rows):
            x = ops.transpose(ops.reshape(x, (users, rows, heads, dim)), (0, 2, 1, 3))
            return ops.reshape(x, (users * heads, rows, dim))

        scale = ops.weight((node["name"], "scale"), lambda: np.float32([settings["scale"] or dim**-0.5]))
        q = ops.mul(by_head(self.input(node, 0), num_queries), scale)
        k, v = (by_head(self.values[node["inputs"][i]], num_events) for i in (1, 2))
        scores = ops.function("silu", ops.matmul(q, ops.transpose(k, (0, 2, 1))), 0)
        seen = np.tri(num_events) if settings["causal"] else np.ones(1)
        share = ops.weight((node["name"], "share"), lambda: np.float32(seen / settings["divisor"]))
        y = ops.matmul(ops.mul(scores, share), v)
        if len(node["inputs"]) > 3:
            k, v = (by_head(self.input(node, i), num_queries) for i in (3, 4))
            own = ops.function("silu", ops.reduce(ops.mul(q, k), 2, "sum", keep=True), 0)
            one = ops.weight((node["name"], "own"), lambda: np.float32([1 / settings["divisor"]]))
            y = ops.add(y, ops.mul(ops.mul(own, one), v))
        y = ops.transpose(ops.reshape(y, (users, heads, num_queries, dim)), (0, 2, 1, 3))
        return ops.reshape(y, (users * num_queries, width))

    def recurrent(self, node, settings):
        """Step by step, of all rows together."""
        ops, name, hidden, cell = self.ops, settings["name"], settings["hidden"], settings["cell"]
        events_axis = self.node_of(node, -1)["axis"]
        users = self.rows[self.graph["axes"][events_axis]["parent"]]
        events, attends = self.rows[events_axis] // users, cell != "gru"
        rows = self.rows[node["axis"]] if attends else users
        gates = ops.reshape(self.values[node["inputs"][-1]], (users, events * 3 * hidden))
        w, b = (ops.weight((name, part), lambda part=part: self.weight(f"{name}.{part}")) for part in ("weight", "bias"))
        if attends:
            width = self.node_of(node, 0)["width"]
            q = ops.reshape(self.input(node, 0), (users, rows // users, width))
            k = ops.reshape(self.values[node["inputs"][1]], (users, events, width))
            scale = ops.weight((name, "scale"), lambda: np.float32([settings["scale"] or width**-0.5]))
            shares = ops.softmax(ops.matmul(ops.mul(q, scale), ops.transpose(k, (0, 2, 1))))
            shares = ops.reshape(shares, (rows, events))

        def of_event(t, gate):
            x = ops.columns(gates, (3 * t + gate) * hidden, (3 * t + gate + 1) * hidden)
            x = ops.expand(ops.reshape(x, (users, 1, hidden)), (users, rows // users, hidden))
            return ops.reshape(x, (rows, hidden))

        h, states = ops.weight((name, "zero"), lambda: np.zeros((rows, hidden), np.float32)), []
        for t in range(events):
            products = ops.linear(h, w, b)
            r, z, p = (ops.columns(products, gate * hidden, (gate + 1) * hidden) for gate in range(3))
            r = ops.function("sigmoid", ops.add(of_event(t, 0), r), 0)
            n = ops.function("tanh", ops.add(of_event(t, 2), ops.mul(r, p)), 0)
            if cell != "agru":
                z = ops.function("sigmoid", ops.add(of_event(t, 1), z), 0)
            if cell == "gru":
                h = ops.add(n, ops.mul(z, ops.sub(h, n)))
                states.append(h)
                continue
            share = ops.columns(shares, t, t + 1)
            h = ops.add(h, ops.mul(ops.mul(share, z) if cell == "augru" else share, ops.sub(n, h)))
        return h if attends else ops.reshape(ops.concat(states), (users * events, hidden))

    # --- layers ---

    def linear(self, node, settings):
        if settings["norm"] or settings["input_norm"] or settings["scene"] >= 0:
            raise NotImplementedError(f"{node['name']}: batch norms in linears, and scenes")
        name, groups, ops = settings["name"], settings["groups"], self.ops
        x, rows, width = self.input(node, 0), self.rows[node["axis"]], node["width"]
        in_width = self.node_of(node, 0)["width"]
        outer = None
        if settings["row_bias"]:
            outer, outer_rows = self.values[node["inputs"][1]], self.rows[self.node_of(node, 1)["axis"]]
        bias = None
        if settings["bias"] and not settings["is_term"]:
            shape = (-1,) if settings["shared_input"] else (groups, -1)
            bias = ops.weight((name, "bias"), lambda: self.weight(name + ".bias").reshape(shape))
        if settings["ones"]:
            y = ops.reduce(x, 1, "sum", keep=True)
            if bias is not None:
                y = ops.add(y, bias)
        else:
            columns = settings["columns"]

            def weight():
                w = self.weight(name + ".weight")
                if columns:
                    w = np.concatenate([w[..., c["begin"]:c["end"]] for c in columns], -1)
                return w.reshape(-1, in_width) if settings["shared_input"] else w

            w = ops.weight((name, "weight", str(columns)), weight)
            if not settings["shared_input"]:
                y = ops.grouped_linear(x, w, bias, groups)
            elif outer is not None and outer_rows == 1 and bias is None:
                y, outer = ops.linear_onto(outer, x, w), None
            else:
                y = ops.linear(x, w, bias)
        if outer is not None and outer_rows in (1, rows):
            y = ops.add(y, outer)
        elif outer is not None:
            y = ops.add(ops.reshape(y, (outer_rows, -1, width)), ops.reshape(outer, (outer_rows, 1, width)))
            y = ops.reshape(y, (rows, width))
        extra = 2 if settings["row_bias"] else 1
        multiply = residual = None
        if settings["multiply"]:
            multiply = self.input(node, extra)
            extra += 1
        if settings["residual"]:
            residual = self.input(node, extra)
        if settings["residual"] and settings["residual_first"]:
            y = ops.add(y, residual)
        y = self.activate(name, settings["activation"], y)
        if settings["multiply"]:
            y = ops.mul(y, multiply)
        if settings["residual"] and not settings["residual_first"]:
            y = ops.add(y, residual)
        return y

    def activate(self, layer, activation, x):
        kind, ops = activation["kind"], self.ops
        if kind == "identity":
            return x
        if kind != "dice":
            return ops.function(kind, x, activation["alpha"])
        # x (p + a (1 - p)) = x (a + (1 - a) p), p the sigmoid of a batch norm
        def vectors():
            of = {part: self.weight(f"{layer}.dice.{part}").ravel()
                  for part in ("alpha", "running_mean", "running_var")}
            scale = 1 / np.sqrt(of["running_var"].astype(np.float64) + activation["eps"])
            shift = -of["running_mean"] * scale
            if activation["affine"]:
                weight, bias = (self.weight(f"{layer}.dice.{part}").ravel() for part in ("weight", "bias"))
                scale, shift = scale * weight, shift * weight + bias
            return [v.astype(np.float32) for v in (scale, shift, of["alpha"], 1 - of["alpha"])]

        scale, shift, alpha, rest = (ops.weight((layer, "dice", i), lambda i=i: vectors()[i]) for i in range(4))
        p = ops.function("sigmoid", ops.add(ops.mul(x, scale), shift), 0)
        return ops.mul(x, ops.add(ops.mul(p, rest), alpha))

    def din_attention(self, node, settings):
        ops, name, dim = self.ops, settings["name"], node["width"]
        events_axis = self.node_of(node, 1)["axis"]
        users = self.rows[self.graph["axes"][events_axis]["parent"]]
        items, events = self.rows[node["axis"]] // users, self.rows[events_axis] // users
        q = ops.reshape(self.input(node, 0), (users, items, 1, dim))
        keys = self.values[node["inputs"][1]]
        k = ops.reshape(keys, (users, 1, events, dim))
        bias = ops.weight((name, 0, "bias"), lambda: self.weight(f"{name}.0.bias"))
        if self.form.attention == "concat":
            shape = (users, items, events, dim)
            x = ops.concat([ops.expand(q, shape), ops.expand(k, shape), ops.sub(q, k), ops.mul(q, k)])
            w = ops.weight((name, 0, "weight"), lambda: self.weight(f"{name}.0.weight"))
            x = ops.linear(ops.reshape(x, (-1, 4 * dim)), w, bias)
        else:  # W [q, k, q - k, q * k] = (Wq + Wd) q + (Wk - Wd) k + Wp (q * k)
            hidden = settings["hidden"][0]
            of_q, of_k, of_product = (
                ops.weight((name, part), lambda sign=sign, a=a, b=b: self.parts(name, dim, sign, a, b))
                for part, sign, a, b in (("q", 1, 0, 2), ("k", -1, 1, 2), ("product", 0, 3, 3)))
            of_q = ops.linear(ops.reshape(q, (users * items, dim)), of_q, bias)
            of_k = ops.linear(keys, of_k, None)
            product = ops.linear(ops.reshape(ops.mul(q, k), (-1, dim)), of_product, None)
            x = ops.add(ops.add(ops.reshape(product, (users, items, events, hidden)),
                                ops.reshape(of_k, (users, 1, events, hidden))),
                        ops.reshape(of_q, (users, items, 1, hidden)))
            x = ops.reshape(x, (-1, hidden))
        x = self.activate(f"{name}.0", settings["activation"], x)
        for i in range(1, len(settings["hidden"]) + 1):
            w = ops.weight((name, i, "weight"), lambda i=i: self.weight(f"{name}.{i}.weight"))
            b = ops.weight((name, i, "bias"), lambda i=i: self.weight(f"{name}.{i}.bias"))
            x = ops.linear(x, w, b)
            if i < len(settings["hidden"]):
                x = self.activate(f"{name}.{i}", settings["activation"], x)
        weights = ops.reshape(x, (users, items, events))
        if settings["scaled"]:
            weights = ops.mul(weights, ops.weight((name, "scale"), lambda: np.float32([dim**-0.5])))
        if settings["normalization"] != "none":
            weights = ops.softmax(weights) if settings["normalization"] == "softmax" else ops.function(
                "sigmoid", weights, 0)
        return ops.reshape(ops.matmul(weights, ops.reshape(keys, (users, events, dim))), (-1, dim))

    def parts(self, name, dim, sign, a, b):
        w = self.weight(f"{name}.0.weight")
        return w[:, a * dim:(a + 1) * dim] + sign * w[:, b * dim:(b + 1) * dim]

    # --- interactions ---

    def field_linear(self, node, settings):
        """A row for each column of a row's fields, and a layer over all of them."""
        ops, name, dim, rows = self.ops, settings["name"], settings["dim"], self.rows[node["axis"]]
        x, *others = (ops.transpose(ops.reshape(self.input(node, i), (rows, -1, dim)), (0, 2, 1))
                      for i in range(len(node["inputs"])))
        if others:
            first, second = (self.node_of(node, i)["width"] // dim for i in (0, 1))
            x = ops.mul(ops.reshape(x, (rows * dim, first, 1)), ops.reshape(others[0], (rows * dim, 1, second)))
        w = ops.weight((name, "weight"), lambda: self.weight(name + ".weight"))
        b = ops.weight((name, "bias"), lambda: self.weight(name + ".bias")) if settings["bias"] else None
        maps = self.activate(name, settings["activation"], ops.linear(ops.reshape(x, (rows * dim, -1)), w, b))
        maps = ops.reshape(maps, (rows, dim, settings["out"]))
        parts = []
        if settings["kept"] > 0:
            fields = ops.reshape(ops.transpose(maps, (0, 2, 1)), (rows, -1))
            parts.append(ops.columns(fields, 0, settings["kept"] * dim) if settings["kept"] < settings["out"]
                         else fields)
        if settings["summed"] > 0:
            sums = ops.reduce(maps, 1, "sum", keep=False)
            parts.append(ops.columns(sums, settings["out"] - settings["summed"], settings["out"])
                         if settings["summed"] < settings["out"] else sums)
        return ops.concat(parts) if len(parts) > 1 else parts[0]

    def field_attention(self, node, settings):
        """Heads of a row's fields are a batch of products."""
        ops, name, rows = self.ops, settings["name"], self.rows[node["axis"]]
        dim, heads, head_dim = settings["dim"], settings["heads"], settings["head_dim"]
        fields = node["width"] // (heads * head_dim)
        x = ops.reshape(self.input(node, 0), (rows * fields, dim))

        def project(which):
            return ops.linear(x, ops.weight((name, which), lambda: self.weight(f"{name}.{which}.weight")), None)

        def by_head(which):
            y = ops.transpose(ops.reshape(project(which), (rows, fields, heads, head_dim)), (0, 2, 1, 3))
            return ops.reshape(y, (rows * heads, fields, head_dim))

        scale = ops.weight((name, "scale"), lambda: np.float32([settings["scale"] or head_dim**-0.5]))
        scores = ops.matmul(ops.mul(by_head("query"), scale), ops.transpose(by_head("key"), (0, 2, 1)))
        y = ops.matmul(ops.softmax(scores), by_head("value"))
        y = ops.transpose(ops.reshape(y, (rows, heads, fields, head_dim)), (0, 2, 1, 3))
        y = ops.reshape(y, (rows * fields, heads * head_dim))
        if settings["residual"]:
            y = ops.add(y, project("residual"))
        return ops.reshape(self.activate(name, settings["activation"], y), (rows, node["width"]))

    def dot(self, node, settings):
        ops, dim = self.ops, settings["dim"]
        rows = self.rows[node["axis"]]
        parts = [self.input(node, i) for i in range(len(node["inputs"]))]
        x = ops.reshape(ops.concat(parts) if len(parts) > 1 else parts[0], (rows, -1, dim))
        count = sum(self.node_of(node, i)["width"] for i in range(len(parts))) // dim
        left = settings["num_left"]
        if left:
            i, j = (indices.ravel() for indices in np.mgrid[:left, left:count])
        elif settings["order"] == "upper":
            i, j = np.triu_indices(count, 0 if settings["self"] else 1)
        else:
            i, j = np.tril_indices(count, 0 if settings["self"] else -1)
        if settings["order"] == "lower_padded":
            raise NotImplementedError(f"{node['name']}: dots with a zero behind them")
        products = ops.reshape(ops.matmul(x, ops.transpose(x, (0, 2, 1))), (rows, count * count))
        return ops.take_columns(products, i * count + j)

    def mix(self, node, settings):
        ops, rows, width = self.ops, self.rows[node["axis"]], node["width"]
        logits = self.input(node, 1)
        if settings["normalization"] == "softmax":
            logits = ops.softmax(logits)
        elif settings["normalization"] == "sigmoid":
            logits = ops.function("sigmoid", logits, 0)
        experts = ops.reshape(self.input(node, 0), (rows, -1, width))
        return ops.reshape(ops.matmul(ops.reshape(logits, (rows, 1, -1)), experts), (rows, width))

    def elementwise(self, node, settings):
        ops, program = self.ops, settings["program"]
        registers = [self.input(node, i) for i in range(program["num_inputs"])]
        for v in settings["vectors"]:
            if v["kind"] != "stored":
                raise NotImplementedError(f"{node['name']}: a batch norm by itself")
            registers.append(ops.weight((v["name"],), lambda v=v: self.weight(v["name"])))
        for i, value in enumerate(program["constants"]):
            registers.append(ops.weight((node["name"], "constant", i), lambda value=value: np.float32([value])))
        for instruction in program["instructions"]:
            function = instruction["function"]
            operands = [registers[instruction[k]] for k in "abc" if instruction[k] >= 0]
            registers.append(getattr(ops, function)(*operands) if function in ("add", "sub", "mul") else
                             ops.function(function, *operands, instruction["alpha"]))
        return registers[-1]
