# SPDX-License-Identifier: Apache-2.0
"""Whole models, exported as they are: scores as PyTorch's, and planned into as many steps as the Builder's models."""

import models
import numpy as np
import pytest
import references
import torch
from test_export import B, Function, check, ids
from torch import nn

import warprank as wr


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def padded(high, length):
    """Histories of 0 to length ids, and zeros behind them."""
    rows = torch.randint(1, high, (B, length))
    for row, kept in zip(rows, (0, 1, length, 3, 2, length - 1)):
        row[kept:] = 0
    return rows


def planned_like(exported, reference):
    assert wr.compile(exported.graph).num_steps == wr.compile(reference).num_steps
    return exported


def kinds(exported):
    return wr.compile(exported.graph).graph.to_json()


def din_batch():
    hist = padded(80, 7)
    return {"user_id": ids(50), "context": torch.randn(B, 3), "film_id": ids(80), "genre_id": ids(9),
            "hist_film_id": hist, "hist_genre_id": torch.where(hist > 0, torch.randint(1, 9, hist.shape), 0)}


DIN_AXES = {"user_id": "user", "context": "user", "film_id": "user/item", "genre_id": "user/item",
            "hist_film_id": "user/history[]", "hist_genre_id": "user/history[]"}


def test_din():
    exported = planned_like(check(models.DIN(), din_batch(), axes=DIN_AXES), references.din)
    assert '"op": "din_attention"' in kinds(exported)
    assert [a.name for a in wr.compile(exported.graph).axes] == ["user", "item", "history"]
    assert "attention.0.dice.alpha" in exported.weights and "tower.0.dice.alpha" in exported.weights


def test_users_with_their_items_and_histories():
    exported = check(models.DIN(), din_batch(), axes=DIN_AXES)
    own = {"user_id": [3, 4], "context": np.float32([[1, 2, 3], [4, 5, 6]])}
    events = {"hist_film_id": ([5, 6, 7], [0, 3, 3]), "hist_genre_id": ([1, 2, 3], [0, 3, 3])}
    items = {"film_id": ([9, 10, 11, 12], [0, 3, 4]), "genre_id": ([1, 2, 3, 4], [0, 3, 4])}
    scores = exported.model().score(own | events | items)
    user = [0, 0, 0, 1]
    hist = torch.tensor([[5, 6, 7], [0, 0, 0]])[user]
    with torch.no_grad():
        module = exported._trained.eval()
        wanted = module(torch.tensor([3, 4])[user], torch.from_numpy(own["context"])[user],
                        torch.tensor(items["film_id"][0]), torch.tensor(items["genre_id"][0]), hist,
                        torch.tensor([[1, 2, 3], [0, 0, 0]])[user])
    np.testing.assert_allclose(scores["output"], wanted.numpy(), atol=1e-6)


@pytest.mark.parametrize("model, reference", [(models.MMoE, references.mmoe), (models.PLE, references.ple)])
def test_mixtures(model, reference):
    exported = planned_like(check(model(), torch.randn(B, 12)), reference)
    assert '"op": "mix"' in kinds(exported)


@pytest.mark.parametrize("crosses, reference", [(0, references.dlrm), (3, references.dcn_v2)])
def test_models_of_examples(crosses, reference):
    axes = {"dense": "request/sample", "categories": "request/sample"}
    planned_like(check(models.Criteo(crosses), (torch.randn(B, 13), ids(4, 26)), axes=axes), reference)


def test_two_towers_with_a_transformer():
    batch = {"context": torch.randn(B, 3), "film_id": ids(80), "hist_film_id": padded(80, 7)}
    batch["hist_film_id"][0, 0] = 5  # PyTorch has NaN for histories of padding alone
    axes = {"context": "user", "film_id": "user/item", "hist_film_id": "user/history[]"}
    exported = planned_like(check(models.TwoTowers(), batch, axes=axes), references.two_towers)
    assert kinds(exported).count('"op": "attention"') == 2
    assert exported.tables["position"].shape == (7, 16)


def test_deepfm_has_the_op():
    sparse = torch.cat([ids(10, 1), ids(20, 1), ids(30, 1)], 1)
    exported = check(models.DeepFM([10, 20, 30], 2), (sparse, torch.randn(B, 2)))
    text = kinds(planned_like(exported, references.deepfm))
    assert text.count('"op": "fm"') == 1 and '"square"' not in text


def test_crosses_of_several_ranks():
    def forward(m, x):
        full = x * m.full(x) + x
        return x * m.outer(m.inner(full)) + full
    parts = {"full": nn.Linear(4, 4), "inner": nn.Linear(4, 2), "outer": nn.Linear(2, 4)}
    check(Function(forward, **parts), torch.randn(B, 4))


def test_a_sum_that_a_layer_reads_is_made_once():
    def forward(m, x):
        total = m.a(x) + m.b(x)
        return total + m.c(torch.cat([total, x], 1))
    parts = {"a": nn.Linear(4, 1), "b": nn.Linear(4, 1), "c": nn.Linear(5, 1)}
    exported = check(Function(forward, **parts), torch.randn(B, 4))
    assert exported.graph.to_json().count('"op": "elementwise"') == 2


def square(x):
    return x * x


def centred(x):
    return x - x.mean(1, keepdim=True)


def off_centre(x):
    return x - x[:, :2].mean(1, keepdim=True)


def variance(x):
    return square(centred(x)).mean(1, keepdim=True)


@pytest.mark.parametrize("eps", [1e-6, 0.5])
@pytest.mark.parametrize("is_one, norm", [
    (True, lambda m, x, eps: centred(x) / torch.sqrt(variance(x) + eps)),
    (True, lambda m, x, eps: centred(x) * torch.rsqrt(variance(x) + eps)),
    (True, lambda m, x, eps: torch.rsqrt(eps + variance(x)) * centred(x) * m.alpha + 2),
    (True, lambda m, x, eps: x * (m.alpha * torch.rsqrt(variance(x) + eps)) +
     (1 - x.mean(1, keepdim=True) * (m.alpha * torch.rsqrt(variance(x) + eps)))),
    (True, lambda m, x, eps: (centred(x) * torch.rsqrt(variance(x) + eps) * m.alpha + m.alpha) * m.alpha),
    (True, lambda m, x, eps: centred(x) / torch.sqrt((square(centred(x)) + eps).sum(1, keepdim=True))),
    (True, lambda m, x, eps: centred(x) * torch.rsqrt(square(centred(x)).sum(1, keepdim=True) + eps) * m.alpha + 1),
    (True, lambda m, x, eps: centred(x) / torch.sqrt((square(centred(x)) + eps).mean(1, keepdim=True) + 1)),
    (True, lambda m, x, eps: x * (m.alpha * torch.rsqrt((square(centred(x)) + eps).sum(1, keepdim=True))) +
     (1 - x.mean(1, keepdim=True) * (m.alpha * torch.rsqrt((square(centred(x)) + eps).sum(1, keepdim=True))))),
    (False, lambda m, x, eps: centred(x) / torch.sqrt((square(centred(x)) + m.alpha).sum(1, keepdim=True) + eps)),
    (False, lambda m, x, eps: centred(x) / (torch.sqrt(variance(x)) + eps)),
    (False, lambda m, x, eps: x * (m.alpha * torch.rsqrt(variance(x) + eps)) +
     (1 - 2 * x.mean(1, keepdim=True) * (m.alpha * torch.rsqrt(variance(x) + eps)))),
    (False, lambda m, x, eps: off_centre(x) / torch.sqrt(square(off_centre(x)).mean(1, keepdim=True) + eps)),
    (False, lambda m, x, eps: centred(x) / torch.sqrt(square(x).mean(1, keepdim=True) + eps)),
    (False, lambda m, x, eps: x * torch.rsqrt(variance(x) + eps)),
])
def test_norms_by_hand(is_one, norm, eps):
    exported = check(Function(lambda m, x: norm(m, x, eps), alpha=torch.tensor([0.1, 0.2, 0.3, 0.4])),
                     torch.randn(B, 4) * 0.3)
    assert ('"op": "layer_norm"' in kinds(exported)) == is_one


def scaled(x):
    return torch.sigmoid(x * 2 + 1)


@pytest.mark.parametrize("op, is_one, function", [
    ("fm", True, lambda m, x: (square(x.sum(1)) - square(x).sum(1)).sum(1, keepdim=True) / 2),
    ("fm", True, lambda m, x: x.sum(1).pow(2) - x.pow(2).sum(1)),
    ("fm", False, lambda m, x: x.sum(1) ** 2 - (x[:, [0, 1, 1]] ** 2).sum(1)),
    ("fm", False, lambda m, x: x.sum(1) ** 2 - (x[:, :2] ** 2).sum(1)),
    ("fm", False, lambda m, x: x.sum(1) ** 3 - (x ** 2).sum(1)),
    ("dice.alpha", True, lambda m, x: x * scaled(x) + m.alpha * (1 - scaled(x)) * x),
    ("dice.alpha", True, lambda m, x: x * (scaled(x) + (1 - scaled(x)) * 0.25)),
    ("dice.alpha", False, lambda m, x: x * scaled(x) + m.alpha * (2 - scaled(x)) * x),
    ("dice.alpha", False, lambda m, x: x * scaled(x) + m.alpha * (1 - scaled(x)) * x.flip(1)),
    ("dice.alpha", False, lambda m, x: x * scaled(x.flip(1)) + m.alpha * (1 - scaled(x)) * x),
    ("dice.alpha", True, lambda m, x: x * scaled(x) + m.alpha * (1 - scaled(x)) * x + 1),
    ("multiply", True, lambda m, x: x[:, 0] * m.layer(x[:, 0]) + x[:, 0]),
    ("multiply", True, lambda m, x: x[:, 0] + (x[:, 0] @ m.layer.weight.t() + m.alpha) * x[:, 0]),
    ("multiply", False, lambda m, x: x[:, 0] * m.layer(x[:, 0]) + x[:, 1]),
    ("multiply", False, lambda m, x: x[:, 1] * m.layer(x[:, 0]) + x[:, 1]),
    ("multiply", False, lambda m, x: x[:, 0] * m.layer(x[:, 1]) + x[:, 0]),
    ("multiply", False, lambda m, x: x[:, 1] * m.layer(x[:, 0]) + x[:, 0]),
    ("mix", True, lambda m, x: sum(g[:, None] * x[:, i] for i, g in enumerate(m.gate(x[:, 0]).softmax(1).unbind(1)))),
    ("mix", True, lambda m, x: (x * torch.softmax(m.gate(x[:, 0]), 1)[..., None]).sum(1)),
    ("mix", True, lambda m, x: torch.einsum("be,bed->bd", torch.softmax(m.gate(x[:, 0]), 1), x)),
    ("mix", True, lambda m, x: (x.transpose(1, 2) @ torch.softmax(m.gate(x[:, 0]), 1)[..., None]).squeeze(2)),
    ("mix", False, lambda m, x: (x * torch.softmax(m.gate(x[:, 0]), 1)[..., None])[:, :2].sum(1)),
    ("mix", False, lambda m, x: (x * torch.stack([torch.softmax(m.gate(x[:, 0]), 1).roll(c, 1) for c in range(4)], 2)
                                 ).sum(1)),
    ("mix", False, lambda m, x: (x * torch.sigmoid(m.gate(x[:, 0]))[..., None]).sum(1)),
    ("mix", False, lambda m, x: (x * torch.softmax(m.gate(x[:, 0]), 1)[:, [0, 1, 1], None]).sum(1)),
])
def test_what_is_an_op_and_what_is_nearly_one(op, is_one, function):
    parts = {"layer": nn.Linear(4, 4), "gate": nn.Linear(4, 3), "alpha": torch.tensor([0.1, 0.2, 0.3, 0.4])}
    exported = check(Function(function, **parts), torch.randn(B, 3, 4))
    text = kinds(exported) + " ".join(exported.weights)
    assert any(sign in text for sign in (f'"op": "{op}"', f'"{op}": true', op + " ")) == is_one
