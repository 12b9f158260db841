#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the din_mmoe example on MovieLens 100K; writes its weights and golden scores to examples/movielens/.

    tools/train_movielens.py --data ml-100k              about a minute on one core with OpenBLAS
    tools/train_movielens.py --data ml-100k --validate   what the settings below were chosen on

The features, the order of the rows and the split are those of examples/movielens/README.md; features.hpp computes the
same. Needs PyTorch, and warprank for Python, which writes the weights: `pip install .` in the repository's root.
PyTorch is as fast as its BLAS: on Debian, libopenblas0-pthread is ten times faster than the reference BLAS that is
installed with it.
"""

import argparse
import copy
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python/examples"))
try:
    import warprank.torch
    from rank_films import din_mmoe
except ModuleNotFoundError as error:
    sys.exit(f"{error}; `pip install .` in {ROOT} installs warprank")

HISTORY = 100
FILM_DIM, GENRE_DIM, USER_DIM, SMALL_DIM = 16, 8, 16, 4
ATTENTION, EXPERTS, EXPERT_SIZES, TOWER = (64, 32), 4, (128, 64), 32

EPOCHS, BATCH, LEARNING_RATE = 6, 256, 1e-3
AVERAGE = 0.995  # the model that is kept: an exponential average over the steps
TABLE_DECAY, DENSE_DECAY = 1.0, 0.1  # AdamW's
UNKNOWN_USERS = 0.1  # of the rows train without a user's own embedding, as a user met later will be ranked
SEED = 1

GOLDEN_ROWS = 300

OCCUPATIONS = """administrator artist doctor educator engineer entertainment executive healthcare homemaker lawyer
librarian marketing none other programmer retired salesman scientist student technician writer""".split()
AGE_GROUPS = [18, 25, 35, 45, 50, 56]  # MovieLens 1M's
GENRES, YEARS = 19, 17


# --- data and features: the same as examples/movielens/{data,features}.hpp


def read(folder, name, separator):
    lines = (folder / name).read_text(encoding="latin-1").splitlines()
    return [line.split(separator) for line in lines if line]


def year_group(title):
    years = re.findall(r"\((\d{4})\)", title)
    if not years:
        return 0
    year = int(years[-1])
    return 8 + min(year, 1998) - 1990 if year >= 1990 else max(year // 10 - 192, 0) + 1


class Data:
    """One row for each rating, in the order (user, timestamp, film)."""

    def __init__(self, folder, validate):
        ratings = np.array(read(folder, "u.data", "\t"), dtype=np.int64)
        ratings = ratings[np.lexsort((ratings[:, 1], ratings[:, 3], ratings[:, 0]))]
        self.user, self.film, self.rating, timestamp = ratings.T
        moment = self.user << 40 | timestamp
        user_begin, user_end = self._range(self.user)

        # A user's last fifth is held out, from its first moment on. A history has what is strictly older than its row.
        split = self._split(moment, user_begin, user_end)
        if validate:
            user_end, split = split, self._split(moment, user_begin, split)
        rows = np.arange(len(ratings))
        self.train_rows = np.flatnonzero(rows < split)
        self.held_out_rows = np.flatnonzero((rows >= split) & (rows < user_end))
        self.history_end = np.minimum(self._range(moment)[0], split)
        self.history_begin = np.maximum(user_begin, self.history_end - HISTORY)

        films = read(folder, "u.item", "|")
        num_films = max(int(film[0]) for film in films) + 1
        self.genre = np.zeros((num_films, GENRES), np.float32)
        self.year = np.zeros(num_films, np.int64)
        for film in films:
            self.genre[int(film[0])] = [int(flag) for flag in film[5:]]
            self.year[int(film[0])] = year_group(film[1])
        popularity = np.bincount(self.film[self.train_rows], minlength=num_films)
        self.film_context = (np.log1p(popularity) / 6).astype(np.float32)[:, None]

        users = {int(user[0]): user for user in read(folder, "u.user", "|")}
        self.user_ids = np.array(sorted(users))
        described = [users[user] for user in self.user_ids]
        self.age = np.array([np.searchsorted(AGE_GROUPS, int(user[1]), side="right") for user in described])
        self.gender = np.array(["MF".index(user[2]) for user in described])
        self.occupation = np.array([OCCUPATIONS.index(user[3]) for user in described])
        years = np.array([int(user[1]) for user in described])
        self.user_row = np.searchsorted(self.user_ids, self.user)

        seen = self.history_end - self.history_begin
        sums = np.concatenate([[0], np.cumsum(self.rating)])
        mean = (sums[self.history_end] - sums[self.history_begin] + 5 * 3.5) / (seen + 5) - 3.5
        self.user_context = np.stack([years[self.user_row] / 50 - 0.5, np.log1p(seen) / 5, mean], 1).astype(np.float32)

        for name, value in vars(self).items():
            if not name.endswith("rows"):
                setattr(self, name, torch.from_numpy(value))

    @staticmethod
    def _range(sorted_keys):
        return np.searchsorted(sorted_keys, sorted_keys), np.searchsorted(sorted_keys, sorted_keys, side="right")

    @staticmethod
    def _split(moment, user_begin, user_end):
        first = user_end - (user_end - user_begin) // 5
        return np.searchsorted(moment, moment[np.minimum(first, len(moment) - 1)])


# --- the model: its parameters have the names of examples/movielens/model.hpp


class Dice(nn.Module):
    """x (p + alpha (1 - p)), p = sigmoid(batch norm of x)."""

    def __init__(self, width):
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        p = torch.sigmoid(functional.batch_norm(x, self.running_mean, self.running_var, training=self.training,
                                                momentum=0.01, eps=1e-9))
        return x * (p + self.alpha * (1 - p))


class DiceLinear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.dice = Dice(outputs)


class DinAttention(nn.ModuleList):
    """sum_i s(q, k_i) k_i, where s is an MLP over [q, k, q - k, q * k]."""

    def __init__(self, width):
        super().__init__([DiceLinear(4 * width, ATTENTION[0]), DiceLinear(*ATTENTION), nn.Linear(ATTENTION[1], 1)])

    def forward(self, q, k, row):
        """q [rows, D]; k [events, D], event e in the history of row[e]."""
        of_q, of_k, of_difference, of_product = self[0].weight.chunk(4, dim=1)  # W [q, k, q-k, q*k], computed in parts
        per_row = functional.linear(q, of_q + of_difference, self[0].bias)
        hidden = per_row[row] + functional.linear(k, of_k - of_difference) + functional.linear(q[row] * k, of_product)
        score = self[2](self[1].dice(self[1](self[0].dice(hidden))))
        return torch.zeros_like(q).index_add(0, row, score * k)


class ExpertLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        layers = [nn.Linear(inputs, outputs) for _ in range(EXPERTS)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x):
        """[rows, inputs] or [rows, experts, inputs] -> [rows, experts, outputs]"""
        equation = "ri,eoi->reo" if x.dim() == 2 else "rei,eoi->reo"
        return torch.relu(torch.einsum(equation, x, self.weight) + self.bias)


class DinMmoe(nn.Module):
    def __init__(self, data):
        super().__init__()
        table = lambda rows, dim: nn.Parameter(torch.randn(rows, dim) * 0.01)
        width = FILM_DIM + GENRE_DIM
        self.user = table(len(data.user_ids), USER_DIM)
        self.age = table(len(AGE_GROUPS) + 1, SMALL_DIM)
        self.gender = table(2, SMALL_DIM)
        self.occupation = table(len(OCCUPATIONS), SMALL_DIM)
        self.film = table(len(data.year), FILM_DIM)
        self.genre = table(GENRES, GENRE_DIM)
        self.year = table(YEARS, SMALL_DIM)
        self.rating = table(6, width)
        self.tables = list(self.parameters())
        self.attention = DinAttention(width)
        inputs = USER_DIM + 4 * SMALL_DIM + 2 * width + data.user_context.shape[1] + data.film_context.shape[1]
        self.mmoe = nn.ModuleList([ExpertLinear(inputs, EXPERT_SIZES[0]), ExpertLinear(*EXPERT_SIZES)])
        for task in ("ctr", "cvr"):
            self.add_module("gate_" + task, nn.Linear(inputs, EXPERTS))
            tower = nn.ModuleList([nn.Linear(EXPERT_SIZES[1], TOWER), nn.Linear(TOWER, 1)])
            self.add_module("tower_" + task, tower)

    def films(self, data, film):
        genre = data.genre[film].to(self.genre.dtype)
        bag = genre @ self.genre / genre.sum(1, keepdim=True).clamp(min=1)
        return torch.cat([self.film[film], bag], 1)

    def forward(self, data, rows):
        """The logits of P(rating >= 4) and of P(rating = 5 | rating >= 4)."""
        user, film, begin = data.user_row[rows], data.film[rows], data.history_begin[rows]
        length = data.history_end[rows] - begin
        row = torch.repeat_interleave(torch.arange(len(rows)), length)
        event = torch.arange(len(row)) + (begin - (torch.cumsum(length, 0) - length))[row]

        q = self.films(data, film)
        k = self.films(data, data.film[event]) + self.rating[data.rating[event]]
        own = self.user[user]
        if self.training:
            own = own * (torch.rand(len(rows), 1) >= UNKNOWN_USERS)
        x = torch.cat([
            own,
            self.age[data.age[user]],
            self.gender[data.gender[user]],
            self.occupation[data.occupation[user]],
            data.user_context[rows],
            self.attention(q, k, row),
            q,
            self.year[data.year[film]],
            data.film_context[film],
        ], 1)
        experts = self.mmoe[1](self.mmoe[0](x))

        def head(gate, tower):
            mixed = torch.einsum("re,reo->ro", torch.softmax(gate(x), 1), experts)
            return tower[1](torch.relu(tower[0](mixed))).squeeze(1)

        return head(self.gate_ctr, self.tower_ctr), head(self.gate_cvr, self.tower_cvr)


# --- training, evaluation, export


def auc(label, score):
    """Area under the ROC curve; ties take their average rank."""
    ordered = np.sort(score)
    rank = (np.searchsorted(ordered, score) + np.searchsorted(ordered, score, side="right") + 1) / 2
    positives = label.sum()
    return (rank[label].sum() - positives * (positives + 1) / 2) / (positives * (len(label) - positives))


def scores(model, data, rows):
    model.eval()
    parts = []
    with torch.no_grad():
        for chunk in torch.from_numpy(rows).split(1000):
            ctr, cvr = (torch.sigmoid(logit) for logit in model(data, chunk))
            parts.append(torch.stack([ctr, ctr * cvr]))
    return torch.cat(parts, 1).numpy()


def evaluate(model, data):
    ctr, ctcvr = scores(model, data, data.held_out_rows)
    rating = data.rating.numpy()[data.held_out_rows]
    return {"ctr": auc(rating >= 4, ctr), "ctcvr": auc(rating >= 5, ctcvr)}


def train(model, data):
    """Returns the averaged model."""
    averaged, step = copy.deepcopy(model), 0
    dense = list(model.parameters())[len(model.tables):]
    optimizer = torch.optim.AdamW([{"params": model.tables, "weight_decay": TABLE_DECAY},
                                   {"params": dense, "weight_decay": DENSE_DECAY}], lr=LEARNING_RATE)
    liked, loved = (data.rating >= 4).float(), (data.rating >= 5).float()
    for epoch in range(EPOCHS):
        begin, total = time.monotonic(), 0.0
        model.train()
        for rows in torch.from_numpy(data.train_rows)[torch.randperm(len(data.train_rows))].split(BATCH):
            ctr, cvr = model(data, rows)
            log_product = functional.logsigmoid(ctr) + functional.logsigmoid(cvr)
            log_rest = torch.log1p(-torch.exp(log_product).clamp(max=1 - 1e-6))
            loss = (functional.binary_cross_entropy_with_logits(ctr, liked[rows]) -
                    (loved[rows] * log_product + (1 - loved[rows]) * log_rest).mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
            step += 1
            with torch.no_grad():
                keep = min(AVERAGE, step / (step + 10))
                for mean, value in zip(averaged.state_dict().values(), model.state_dict().values()):
                    mean.lerp_(value, 1 - keep)
        held_out = evaluate(averaged, data)
        print(f"epoch {epoch + 1}/{EPOCHS}  loss {total / len(data.train_rows):.4f}  held out: AUC of rating >= 4 "
              f"{held_out['ctr']:.4f}, of rating = 5 {held_out['ctcvr']:.4f}  ({time.monotonic() - begin:.0f} s)",
              flush=True)
    return averaged


def write_weights(model, user_ids, folder):
    """By the names of the graph, which Python writes as model.hpp does."""
    with torch.no_grad():
        model.film[0] = model.rating[0] = 0  # the data has no film 0 and no rating 0
    warprank.torch.weights_of(model, din_mmoe, hashed={"user": user_ids}).save(folder)


def write_golden(model, data, folder):
    folder.mkdir(parents=True, exist_ok=True)
    held_out = evaluate(model, data)
    index = np.unique(np.linspace(0, len(data.held_out_rows) - 1, GOLDEN_ROWS).astype(int))
    exact = scores(model.double(), data, data.held_out_rows[index])
    golden = {
        "about": "P(rating >= 4) and P(rating = 5) in float64 for some of the held-out ratings, numbered in their order"
                 " (user, timestamp, film); the AUC of the float32 scores of all",
        "held_out": len(data.held_out_rows),
        "auc": {name: round(float(value), 7) for name, value in held_out.items()},
        "index": index.tolist(),
        "ctr": [round(float(p), 9) for p in exact[0]],
        "ctcvr": [round(float(p), 9) for p in exact[1]],
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in golden.items())
    (folder / "scores.json").write_text("{\n" + lines + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("WARPRANK_DATA"), help="default: $WARPRANK_DATA")
    parser.add_argument("--out", type=Path, default=ROOT / "examples" / "movielens")
    parser.add_argument("--validate", action="store_true", help="train and evaluate within the training ratings only")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("--data or WARPRANK_DATA must name the folder of MovieLens 100K")

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    data = Data(Path(arguments.data), arguments.validate)
    model = DinMmoe(data)
    print(f"{len(data.train_rows)} ratings to train on, {len(data.held_out_rows)} held out, "
          f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    model = train(model, data)
    if not arguments.validate:
        write_weights(model, data.user_ids, arguments.out / "weights")
        write_golden(model, data, arguments.out / "golden")


if __name__ == "__main__":
    main()
