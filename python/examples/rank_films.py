#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks films for users, step by step: a model in Python, its plan, weights from files, and scores of whole columns.

    python/examples/rank_films.py [--weights examples/movielens/weights] [--out FOLDER]

The model and its weights are those of examples/movielens: DIN attention over what a user has rated, four experts for
two targets. The users here are made up.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import warprank as wr

# %% The model, in the words of the C++ Builder.


def din_mmoe(b):
    user = b.axis("user")
    item = b.axis("item", user)
    genres = b.axis("genres", item)
    history = b.axis("history", user, keep_last=100)
    hist_genres = b.axis("hist_genres", history)

    users, films = b.hashed_table("user", dim=16), b.table("film", dim=16)
    genre_table = b.table("genre", dim=8)

    def film(id, genre):
        return b.concat([b.embed(id, films), b.embed_bag(genre, genre_table, "mean")])

    def small(name, axis):
        return b.embed(b.ids(name, axis), b.table(name, dim=4))

    u = b.concat([b.embed(b.ids("user_id", user), users), small("age", user), small("gender", user),
                  small("occupation", user), b.dense("user_context", user, 3)])
    q = film(b.ids("film_id", item), b.ids("genre", genres))
    k = (film(b.ids("hist_film_id", history), b.ids("hist_genre", hist_genres))
         + b.embed(b.ids("hist_rating", history), b.table("rating", dim=24)))
    attended = b.din_attention("attention", q, k, hidden=[64, 32], activation="dice")

    x = b.concat([b.expand(u, item), attended, q, small("year", item), b.dense("film_context", item, 1)])
    experts = b.experts("mmoe", x, 4, [128, 64], "relu")

    def head(task):
        return b.sigmoid(b.mlp("tower_" + task, b.mix(experts, b.gate("gate_" + task, x, 4)), [32, 1], "relu"))

    liked, loved = head("ctr"), head("cvr")
    return {"ctr": liked, "ctcvr": liked * loved}


# %% Users, as columns: values of all users one behind the other, and where those of each begin.


def made_up_users(num_users, num_films, seed=1):
    rng = np.random.default_rng(seed)

    def ragged(high, parents, least, most):
        lengths = rng.integers(least, most + 1, parents)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return rng.integers(0, high, offsets[-1]), offsets

    history, history_offsets = ragged(1683, num_users, 0, 120)
    films = rng.integers(1, 1683, (num_users, num_films))
    return {
        "user_id": rng.integers(1, 1000, num_users),
        "age": rng.integers(0, 7, num_users),
        "gender": rng.integers(0, 2, num_users),
        "occupation": rng.integers(0, 21, num_users),
        "user_context": rng.normal(size=(num_users, 3)).astype(np.float32),
        "film_id": films,  # as many for each user: one dimension more says it
        "genre": ragged(19, films.size, 1, 4),
        "year": rng.integers(0, 17, films.shape),
        "film_context": rng.random((*films.shape, 1), np.float32),
        "hist_film_id": (history, history_offsets),
        "hist_genre": ragged(19, len(history), 1, 4),
        "hist_rating": (rng.integers(1, 6, len(history)), history_offsets),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=Path("examples/movielens/weights"))
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--out", type=Path, help="where the plan's picture and the graph go")
    arguments = parser.parse_args()

    # %% The plan: what is computed once for each user, what is fused, what a card would take.
    plan = wr.compile(din_mmoe, capacities=[wr.Capacity(requests=1, items=100)])
    print(plan.describe())
    if arguments.out:
        plan.graph.save(str(arguments.out / "graph.json"))
        plan.svg(arguments.out / "plan.svg")

    # %% Weights and tables, by name.
    tables = wr.Tables.load(plan, arguments.weights / "tables.safetensors")
    model = wr.bind(plan, wr.Weights.open(arguments.weights / "dense.safetensors"), tables)

    # %% Scores.
    users = made_up_users(arguments.users, num_films=100)
    begin = time.perf_counter()
    scores = model.score(users, threads=0)
    seconds = time.perf_counter() - begin
    print(f"{len(scores['ctr'])} films for {arguments.users} users in {seconds * 1e3:.0f} ms")
    best = np.argsort(-scores.of("ctr", 0))[:5]
    for place in best:
        print(f"user 0, film {users['film_id'][0, place]:4d}: P(rating >= 4) {scores.of('ctr', 0)[place]:.3f}")


if __name__ == "__main__":
    main()
