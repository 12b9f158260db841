# SPDX-License-Identifier: Apache-2.0
"""The reference models, whose weights both languages make up (hashed_values.py)."""

import numpy as np
import torch

import hashed_values
import layers
from golden import Case, Request
from hashed_values import weight

ROWS = 8  # of every table


class Features:
    """Look-ups of a case: ids are drawn for each request, and the tables' rows made up."""

    def __init__(self, case):
        self.case = case

    def draw(self, request, name, table, rows, hashed=False):
        """Ids with some that are unknown, and in direct tables some padding."""
        place = self.case.random.integers(0, ROWS + 2, rows)
        if hashed:
            known = hashed_values.keys(table + ".keys", ROWS)
            request.ids[name] = [int(known[p]) if p < ROWS else int(p) for p in place]
        else:
            request.ids[name] = [int(p) if p <= ROWS else -1 for p in place]

    def rows(self, request, name, table, dim, hashed=False):
        """The table's row for each id; zeros for unknown ones and padding."""
        values = hashed_values.uniform(table + ".rows" if hashed else table, ROWS, dim)
        known = hashed_values.keys(table + ".keys", ROWS).tolist() if hashed else list(range(ROWS))
        place = {key: row for row, key in enumerate(known)}
        ids = request.ids[name]
        found = [values[place[i]] if i in place else torch.zeros(dim, dtype=torch.float64) for i in ids]
        return torch.stack(found) if found else torch.zeros(0, dim, dtype=torch.float64)


def wide_deep():
    case = Case("wide_deep")
    features = Features(case)
    groups = {  # prefix -> axis, dims
        "wide_user_": ("user", [1] * 40), "wide_item_": ("item", [1] * 40),
        "user_": ("user", [29 if i % 3 == 0 else 8 for i in range(24)]),
        "item_": ("item", [12 if i % 3 == 0 else 4 for i in range(36)]),
    }
    for items in (3, 2):
        request = Request()
        request.lengths["item"] = [items]
        for prefix, (axis, dims) in groups.items():
            for i in range(len(dims)):
                features.draw(request, f"{prefix}{i}", f"{prefix}{i}", items if axis == "item" else 1)
        case.add(request)

    def model(request):
        x = {}
        for prefix, (axis, dims) in groups.items():
            rows = [features.rows(request, f"{prefix}{i}", f"{prefix}{i}", dim) for i, dim in enumerate(dims)]
            x[prefix] = torch.cat(rows, 1)
            if axis == "user":
                x[prefix] = request.expand(x[prefix], "item")
        wide = torch.cat([x["wide_user_"], x["wide_item_"]], 1).sum(1, keepdim=True) + weight("wide.bias", 1)
        deep = layers.mlp(weight, "deep", torch.cat([x["user_"], x["item_"]], 1), [256, 256, 256, 1])
        return {"ctr": torch.sigmoid(deep + wide)}

    case.save(model, stored_weights=False)


def click_model(name, interact):
    """DLRM and DCN-v2 differ in what they do with their 27 fields of 128 columns."""
    case = Case(name)
    features = Features(case)
    categories = [f"category_{i}" for i in range(26)]
    for samples in (3, 2):
        request = Request()
        request.lengths["sample"] = [samples]
        request.values["dense"] = case.normal(samples, 13)
        for category in categories:
            features.draw(request, category, category, samples)
        case.add(request)

    def model(request):
        bottom = layers.mlp(weight, "bottom", request.dense("dense"), [512, 256, 128], output_activation="relu")
        fields = torch.stack([bottom] + [features.rows(request, c, c, 128) for c in categories], 1)
        return {"ctr": torch.sigmoid(layers.mlp(weight, "top", interact(bottom, fields), [1024, 1024, 512, 256, 1]))}

    case.save(model, stored_weights=False)


def dlrm():
    click_model("dlrm", lambda bottom, fields: torch.cat([bottom, layers.dot_interaction(fields, "lower", False)], 1))


def dcn_v2():
    click_model("dcn_v2", lambda bottom, fields: layers.cross(weight, "cross", fields.flatten(1), 3, 512))


def din_mmoe():
    case = Case("din_mmoe")
    features = Features(case)
    small = ("age", "gender", "occupation")
    for items, events in ((3, 6), (2, 0), (1, 104)):
        request = Request()
        request.lengths["item"], request.lengths["history"] = [items], [events]
        genres, hist_genres = case.lengths(request, "genres", items, 4), case.lengths(request, "hist_genres", events, 3)
        features.draw(request, "user_id", "user", 1, hashed=True)
        for name in small:
            features.draw(request, name, name, 1)
        for name, table, rows in (("film_id", "film", items), ("year", "year", items), ("genre", "genre", genres),
                                  ("hist_film_id", "film", events), ("hist_rating", "rating", events),
                                  ("hist_genre", "genre", hist_genres)):
            features.draw(request, name, table, rows)
        request.values["user_context"] = case.normal(1, 3)
        request.values["film_context"] = case.normal(items, 1)
        case.add(request)

    def film(request, ids, genre, axis):
        rows = features.rows(request, genre, "genre", 8)
        padding = torch.tensor(request.ids[genre], dtype=torch.int64) == -1
        bags = []
        for x, is_padding in zip(request.split(rows, axis), request.split(padding, axis)):
            count = int((~is_padding).sum())  # padding is not counted; unknown genres are
            bags.append(x.sum(0) / count if count else torch.zeros(8, dtype=torch.float64))
        bags = torch.stack(bags) if bags else torch.zeros(0, 8, dtype=torch.float64)
        return torch.cat([features.rows(request, ids, "film", 16), bags], 1)

    def model(request):
        user = torch.cat([features.rows(request, "user_id", "user", 16, hashed=True)] +
                         [features.rows(request, name, name, 4) for name in small] + [request.dense("user_context")], 1)
        q = film(request, "film_id", "genre", "genres")
        k = film(request, "hist_film_id", "hist_genre", "hist_genres") + features.rows(request, "hist_rating", "rating", 24)
        attended = layers.din_attention(weight, "attention", [q], [k[-100:]], [64, 32], "dice")
        x = torch.cat([request.expand(user, "item"), attended, q, features.rows(request, "year", "year", 4),
                       request.dense("film_context")], 1)
        experts = layers.experts(weight, "mmoe", x, 4, [128, 64])

        def head(task):
            gate = layers.linear(weight, "gate_" + task, x, 4)
            return torch.sigmoid(layers.mlp(weight, "tower_" + task, layers.mix(experts, gate), [32, 1]))

        return {"ctr": head("ctr"), "ctcvr": head("ctr") * head("cvr")}

    case.save(model, stored_weights=False)


def meituan_like():
    case = Case("meituan_like")
    features = Features(case)
    user_dims, item_dims = [16] * 70 + [24] * 20, [16] * 50
    for items, clicked, ordered in ((2, 5, 101), (1, 0, 2)):
        request = Request()
        request.lengths.update({"item": [items], "clicked": [clicked], "ordered": [ordered]})
        for prefix, dims, rows in (("user_", user_dims, 1), ("item_", item_dims, items)):
            for i in range(len(dims)):
                features.draw(request, f"{prefix}{i}", f"{prefix}{i}", rows, hashed=True)
        for name, rows in (("shop_id", items), ("clicked", clicked), ("ordered", ordered)):
            features.draw(request, name, "shop", rows, hashed=True)
        case.add(request)

    def model(request):
        def side(prefix, dims):
            return torch.cat([features.rows(request, f"{prefix}{i}", f"{prefix}{i}", dim, hashed=True)
                              for i, dim in enumerate(dims)], 1)

        shop = features.rows(request, "shop_id", "shop", 64, hashed=True)
        interests = []
        for name in ("clicked", "ordered"):
            events = features.rows(request, name, "shop", 64, hashed=True)[-100:]
            interests.append(layers.din_attention(weight, "attention_" + name, [shop], [events], [64, 32], "dice"))
        x = torch.cat([request.expand(side("user_", user_dims), "item"), side("item_", item_dims)] + interests, 1)
        shared = layers.mlp(weight, "shared", x, [1024, 512, 256], output_activation="relu")
        experts = torch.cat([layers.experts(weight, "experts", x, 4, [512, 256]), shared[:, None]], 1)

        def tower(name):
            gate = layers.linear(weight, "gate_" + name, x, 5)
            return torch.sigmoid(layers.mlp(weight, "tower_" + name, layers.mix(experts, gate), [128, 1]))

        ctr, cvr = tower("ctr"), tower("cvr")
        return {"ctr": ctr, "cvr": cvr, "cxr": ctr * cvr}

    case.save(model, stored_weights=False)


CASES = [wide_deep, dlrm, dcn_v2, din_mmoe, meituan_like]
