# SPDX-License-Identifier: Apache-2.0
"""Models that compute many small things side by side: their plans have the steps of those written by hand."""

import numpy as np
import pytest
import torch
from test_export import Function, check, ids
from test_fields import DIM, FIELDS, exported, ops, steps
from test_made import histories
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


class Disentangled(nn.Module):
    """DESTINE's attention: a softmax of whitened products plus one of each field by itself. Heads are split by a view,
    as its authors do, so that each has columns of some fields."""

    def __init__(self, heads, dim=DIM):
        super().__init__()
        self.heads = heads
        for name in ("query", "key", "value", "rest"):
            setattr(self, name, nn.Linear(dim, dim))
        self.unary = nn.Linear(dim, heads)

    def forward(self, x):
        q, k, v = (part(x).view(len(x) * self.heads, FIELDS, -1) for part in (self.query, self.key, self.value))
        pairs = F.softmax((q - q.mean(1, keepdim=True)) @ (k - k.mean(1, keepdim=True)).transpose(1, 2), 2)
        unary = F.softmax(self.unary(x), 1).view(len(x) * self.heads, 1, FIELDS)
        return ((pairs + unary) @ v).view(len(x), FIELDS, -1) + self.rest(x)


# Look-ups, the layers, products of each head, mixtures, the unary softmaxes, sums and the head.
@pytest.mark.parametrize("heads, mixtures, most", [(1, FIELDS + 1, 7), (2, 2 * FIELDS, 12)])
def test_disentangled_attention(heads, mixtures, most):
    made = exported(Disentangled(heads))
    assert len(ops(made, "mix")) == mixtures and not ops(made, "reduce")
    assert steps(made) <= most


@pytest.mark.parametrize("columns", [4, 200])
def test_what_is_left_without_a_mean_is_a_layer_where_that_is_small(columns):
    def centred(m, x):
        made = m.layer(x)
        return made - made.mean(1, keepdim=True)
    made = exported(Function(centred, layer=nn.Linear(DIM, columns)))
    assert len(ops(made, "linear")) == (2 if columns == 4 else FIELDS + 1)


def test_means_of_others_are_subtracted():
    for mean in (lambda m, x: m.layer(x) - m.other(x).mean(1, keepdim=True) * 2,
                 lambda m, x: x - m.layer(x).mean(1, keepdim=True), lambda m, x: m.layer(x) - x.mean(1, keepdim=True),
                 lambda m, x: m.layer(x) - m.other(x[:, 1:]).mean(1, keepdim=True)):
        exported(Function(mean, layer=nn.Linear(DIM, DIM), other=nn.Linear(DIM, DIM)))


def test_columns_of_several_layers_that_a_softmax_reads_are_one_layer():
    made = exported(Function(lambda m, x: m.layer(x).softmax(1), layer=nn.Linear(DIM, 2)))
    assert len(ops(made, "linear")) == 2 + 1 and not [w for w in ops(made, "concat") if w is not None]
    assert steps(made) == 4


@pytest.mark.parametrize("most", [1, 3])
def test_the_largest_in_their_order_are_two_steps_for_each_that_is_left_out(most):
    def pooled(m, x):
        return x.gather(1, x.topk(FIELDS - most, 1)[1].sort(1)[0])
    assert steps(exported(Function(pooled))) == 2 + 2 * most


@pytest.mark.parametrize("step", [lambda x: x * x * 0.1 + x, lambda x: x + x * 0.1,
                                  lambda x: torch.where(x > 0, x, x * 2)])
def test_values_that_are_read_twice_at_each_of_many_steps(step):
    """What is told of a value is found once, not for each of the 2^40 ways to it."""
    def pooled(m, seen):
        is_event = (seen != 0).unsqueeze(-1)
        x = m.table(seen) * is_event * 0.1
        for _ in range(40):
            x = step(x)
        return (x * is_event).sum(1)
    check(Function(pooled, table=nn.Embedding(20, 3, padding_idx=0)), histories(), axes={"batch_0": "user/seen[]"})


def moved(x):
    return x.transpose(1, 2).flatten(1)


@pytest.mark.parametrize("function, elementwise", [
    (lambda m, x: m.layer(moved(x)), 0), (lambda m, x: m.layer(torch.relu(moved(x))), 1),
    (lambda m, x: m.layer(F.pad(x, (0, 0, 1, 1))[:, 1:-1].flatten(1)), 0),
    (lambda m, x: m.layer(torch.tanh(moved(x)) + moved(x)), 1)])
def test_layers_read_columns_where_they_lie(function, elementwise):
    made = exported(Function(function, layer=nn.Linear(FIELDS * DIM, 3)))
    assert steps(made) == 2 + elementwise  # look-ups, and the layer with the head


def test_layers_that_read_the_same_in_other_orders_share_a_concat():
    def both(m, ids, x):
        fields = [x, m.table(ids)]
        return m.a(torch.cat(fields, 1)) * m.b(torch.cat(fields[::-1], 1))
    made = check(Function(both, table=nn.Embedding(20, 4), a=nn.Linear(7, 8), b=nn.Linear(7, 8)),
                 (torch.randint(20, (4,)), torch.randn(4, 3)))
    assert len(ops(made, "concat")) == 1


def test_layers_have_no_weights_of_zeros():
    layer = nn.Linear((FIELDS + 2) * DIM, 3)
    made = exported(Function(lambda m, x: m.layer(F.pad(x, (0, 0, 1, 1)).flatten(1)), layer=layer))
    assert made.weights["part.layer.weight"].shape == (3, FIELDS * DIM)
    np.testing.assert_array_equal(made.weights["part.layer.weight"], layer.weight.detach()[:, DIM:-DIM])


def test_layers_of_nothing_but_zeros():
    exported(Function(lambda m, x: m.layer(F.pad(x, (0, 0, 2, 0))[:, :2]) + x[:, :2, :3], layer=nn.Linear(DIM, 3)))


class MeanOfRows(nn.Module):
    """Without rows of zeros, as FuxiCTR leaves out padding."""

    def __init__(self, compare=lambda x: x != 0, count=lambda n: n):
        super().__init__()
        self.film = nn.Embedding(20, 4, padding_idx=0)
        self.film.weight.data[7] = 0
        self.compare, self.count = compare, count

    def forward(self, seen):
        x = self.film(seen)
        return x.sum(1) / (self.count(self.compare(x.sum(-1)).float().sum(-1, keepdim=True)) + 1e-12)


@pytest.mark.parametrize("module", [MeanOfRows(), MeanOfRows(lambda x: x == 0, lambda n: 5 - n)])
def test_rows_of_zeros_are_known_before_they_are_looked_up(module):
    seen = histories()
    seen[1], seen[2] = 7, torch.tensor([7, 3, 0, 7, 0])
    made = check(module, seen, axes={"seen": "user/seen[]"})
    assert steps(made) == 2
    known, = (table for name, table in made.tables.items() if name != "film")
    assert set(np.flatnonzero(known[:, 0] == known[0, 0])) == {0, 7}


def test_rows_of_zeros_that_others_than_sums_of_rows_have():
    for compare in (lambda x: x > 0, lambda x: x != 1, lambda x: x * 2 != 0):
        made = check(MeanOfRows(compare), histories(), axes={"seen": "user/seen[]"})
        assert list(made.tables) == ["film"]


def test_rows_of_zeros_of_a_hashed_table_are_found_in_the_rows():
    keys = np.arange(100, 120)
    made = check(MeanOfRows(), histories(), axes={"seen": "user/seen[]"}, hashed={"film": keys})
    assert set(made.tables) == {"film.keys", "film.rows"}


def test_rows_of_zeros_of_single_ids():
    made = check(Function(lambda m, x: (m.film(x).sum(-1, keepdim=True) != 0).float() + m.film(x)[:, :1],
                          film=nn.Embedding(9, 3, padding_idx=0)), ids(9))
    assert steps(made) == 2
