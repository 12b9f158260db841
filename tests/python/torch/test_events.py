# SPDX-License-Identifier: Apache-2.0
"""What users compute over the events of a history, in the ways in which they write it."""

import math

import pytest
import torch
from test_export import B, Function, check, ids
from test_models import kinds, padded
from torch import nn
from torch.nn import functional as F

import warprank as wr
import warprank.torch

D, L = 4, 5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(4)


def table():
    return nn.Embedding(20, D, padding_idx=0)


AXES = {"batch_0": "user/item", "batch_1": "user/history[]"}


# --- DIN: scores of an MLP


class Dice(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)
        self.alpha = nn.Parameter(torch.rand(width))

    def forward(self, x):  # [B, L, width]
        p = torch.sigmoid(self.bn(x.transpose(1, 2)).transpose(1, 2))
        return x * (p + self.alpha * (1 - p))


INPUTS = {
    "q, k, q - k, q * k": (4, lambda q, k: [q, k, q - k, q * k]),
    "k, q * k, q, k - q": (4, lambda q, k: [k, q * k, q, k - q]),
    "q, k": (2, lambda q, k: [q, k]),
    "k * q, k": (2, lambda q, k: [k * q, k]),
    "k twice": (4, lambda q, k: [k, q, k, q * k]),
    "each twice": (8, lambda q, k: 2 * [q, k, q - k, k * q]),
    "both differences": (4, lambda q, k: [q - k, k - q, q, k]),
}


class OfEvents(nn.Module):
    """Layers of [rows, columns] for each event."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):  # [B, L, width]
        return self.layers(x.flatten(0, 1)).unflatten(0, x.shape[:2])


ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "prelu": lambda: nn.PReLU(1), "leaky": nn.LeakyReLU,
               "gelu": nn.GELU, "dice": lambda: Dice(8),
               "relu of a norm": lambda: OfEvents(nn.BatchNorm1d(8, eps=0.5), nn.ReLU()),
               "sigmoid of a norm without scales": lambda: OfEvents(nn.BatchNorm1d(8, affine=False), nn.Sigmoid())}


def minus_infinity(m, s, mask):
    return torch.softmax(s.masked_fill(~mask, float("-inf")), dim=1)


WEIGHTS = {
    "zeros": lambda m, s, mask: torch.where(mask, s, torch.zeros_like(s)),
    "softmax": minus_infinity,
    "softmax, scaled": lambda m, s, mask: minus_infinity(m, s / math.sqrt(D), mask),
    "softmax of sums": lambda m, s, mask: torch.softmax(s + (1 - mask.float()) * -1e9, dim=-1),
    "softmax, and zeros": lambda m, s, mask: torch.softmax(s - 1e9 * (~mask).float(), 1) * mask,
    "sigmoid": lambda m, s, mask: torch.sigmoid(s) * mask.float(),
    "scaled": lambda m, s, mask: torch.where(mask, s / math.sqrt(D), torch.zeros_like(s)),
    "scaled twice": lambda m, s, mask: 0.5 * (s * 3) * mask.float(),
    "sigmoid, scaled": lambda m, s, mask: torch.sigmoid(s / math.sqrt(D)) * mask.float(),
}
POOLS = {
    "sum": lambda w, k: (w.unsqueeze(-1) * k).sum(1),
    "einsum": lambda w, k: torch.bmm(w.unsqueeze(1), k).squeeze(1),
    "matmul": lambda w, k: torch.matmul(k.transpose(1, 2), w.unsqueeze(-1)).squeeze(-1),
}


def din(inputs="q, k, q - k, q * k", activation="relu", weights="zeros", pool="sum"):
    parts, of = INPUTS[inputs]

    def forward(m, film, history):
        q, k = m.films(film), m.films(history)
        q = q[:, None].expand_as(k)
        scores = m.last(m.act(m.first(torch.cat(of(q, k), -1)))).squeeze(-1)
        return POOLS[pool](WEIGHTS[weights](m, scores, history != 0), k)
    return Function(forward, films=table(), first=nn.Linear(parts * D, 8), act=ACTIVATIONS[activation](),
                    last=nn.Linear(8, 1))


def check_din(module, axes=AXES):
    history = padded(20, L)
    history[0, 0] = 1
    exported = check(module, (ids(20), history), axes=axes)
    assert kinds(exported).count('"op": "din_attention"') == 1 and '"op": "apply"' not in kinds(exported)
    return exported


@pytest.mark.parametrize("inputs", INPUTS)
def test_inputs_of_attention(inputs):
    check_din(din(inputs))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_attention(activation):
    check_din(din(activation=activation))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_of_attention(weights):
    check_din(din(weights=weights))


@pytest.mark.parametrize("pool", POOLS)
def test_sums_of_attention(pool):
    check_din(din(pool=pool, weights="softmax"))


def test_attention_where_all_is_on_one_axis():
    check_din(din(), {"batch_0": "row", "batch_1": "row/history[]"})


# --- masks, and pools


def over(forward, batch, axes):
    return check(Function(forward, films=table()), batch, axes=axes)


MASKS = {
    "not zero": lambda ids, extra: ids != 0,
    "greater": lambda ids, extra: ids > 0,
    "equal": lambda ids, extra: ~ids.eq(0),
    "at least": lambda ids, extra: ids >= 1,
    "lengths": lambda ids, extra: torch.arange(L)[None, :] < extra[:, None],
    "truth": lambda ids, extra: extra,
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks_and_means(mask):
    history = padded(20, L)
    extra = {"lengths": (history != 0).sum(1), "truth": history != 0}.get(mask)
    batch = (history,) if extra is None else (history, extra)
    axes = dict.fromkeys(["batch_0", "batch_1"][:len(batch)], "user/history[]")

    def forward(m, history, extra=None):
        x, kept = m.films(history), MASKS[mask](history, extra).float().unsqueeze(-1)
        return (x * kept).sum(1) / kept.sum(1).clamp(min=1)
    exported = over(forward, batch, axes)
    assert '"pooling": "mean"' in kinds(exported) and wr.compile(exported.graph).num_steps == 1


OF_LENGTHS = {"batch_0": "user/history[]", "batch_1": "user/history[]"}


@pytest.mark.parametrize("forward", [
    lambda m, h, n: m.films(h).sum(1) / n.clamp(min=1)[:, None],
    lambda m, h, n: m.films(h).sum(1) / (n + 1)[:, None],
    lambda m, h, n: m.films(h).mean(1) * n[:, None],
    lambda m, h, n: m.films(h).sum(1) + torch.log1p(n.float())[:, None]])
def test_lengths_that_mask_nothing_are_refused(forward):
    history = padded(20, L)
    with pytest.raises(wr.InvalidArgument, match="expected lengths 'batch_1' that tell events from padding: .*, got "
                       "lengths that are a number alone"):
        wr.torch.export(Function(forward, films=table()), (history, (history != 0).sum(1)), axes=OF_LENGTHS)


@pytest.mark.parametrize("kept", [lambda h, n: h != 0, lambda h, n: torch.arange(L)[None, :] < n[:, None]])
def test_lengths_are_a_number_beside_a_mask(kept):
    history = padded(20, L)
    over(lambda m, h, n: (m.films(h) * kept(h, n)[..., None]).sum(1) / (n + 1)[:, None] + n[:, None],
         (history, (history != 0).sum(1)), OF_LENGTHS)


CONVERSIONS = {
    "truth of counts": lambda h, n: (h != 0).sum(1).bool(),
    "truth of shares": lambda h, n: ((h != 0).sum(1) / 2).bool(),
    "truth of lengths": lambda h, n: n.bool(),
    "truth of ids": lambda h, n: h.bool().sum(1),
    "truth of a scaled mask": lambda h, n: ((h != 0) * 0.5).bool().sum(1),
    "whole counts": lambda h, n: (h != 0).float().sum(1).long(),
    "whole lengths": lambda h, n: (n.float() - 1).long(),
    "whole masks": lambda h, n: (h != 0).float().long().sum(1),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions(name):
    history = padded(20, L)
    over(lambda m, h, n: (m.films(h) * (h != 0)[..., None]).sum(1) * CONVERSIONS[name](h, n)[:, None],
         (history, (history != 0).sum(1)), OF_LENGTHS)


@pytest.mark.parametrize("convert", [lambda h, n: ((h != 0).sum(1) / 2).long(), lambda h, n: (n - 1.5).int(),
                                     lambda h, n: ((h != 0) * 0.5).long().sum(1)])
def test_conversions_that_round_are_refused(convert):
    history = padded(20, L)
    module = Function(lambda m, h, n: m.films(h).sum(1) * convert(h, n)[:, None], films=table())
    with pytest.raises(wr.InvalidArgument, match="expected floating-point numbers, got a conversion to torch.int"):
        wr.torch.export(module, (history, (history != 0).sum(1)), axes=OF_LENGTHS)


def test_sums_over_the_lengths_of_another_history_are_no_means():
    history, other = padded(20, L), padded(20, L).flip(0)

    def forward(m, h, g, n):
        own = (m.films(h) * (torch.arange(L) < n[:, None])[..., None]).sum(1)
        return own + (m.films(g) * (g != 0)[..., None]).sum(1) / n.clamp(min=1)[:, None]
    over(forward, (history, other, (history != 0).sum(1)),
         {"batch_0": "user/history[]", "batch_1": "user/other[]", "batch_2": "user/history[]"})


def test_pools_of_zeros_and_of_all_events():
    history = padded(20, L)
    axes = {"batch_0": "user/history[]"}

    def forward(m, history):
        kept = (history != 0)[..., None]
        x = m.films(history)
        return torch.cat([x.sum(1), x.mean(1), (x * x * kept).sum(1), kept.sum(1), x.sum(1) / (kept.sum(1) + 1),
                          x.masked_fill(~kept, -1e9).amax(1).clamp(min=-9)], 1)
    over(forward, (history,), axes)
    over(lambda m, h: torch.cat([m.films(h).mean(1), m.films(h).sum(1), torch.softmax(m.films(h), 1).sum(1)], 1),
         (ids(20, L),), axes)


@pytest.mark.parametrize("pool", [
    lambda x, kept: x.masked_fill(~kept, -12345.0).amax(1), lambda x, kept: x.masked_fill(~kept, 23456.0).amin(1),
    lambda x, kept: x.masked_fill(~kept, -torch.inf).amax(1).clamp(min=-9),
    lambda x, kept: (x * 2 + (~kept) * -1e9).max(1)[0].clamp(min=-9),
    lambda x, kept: torch.logsumexp(x.masked_fill(~kept, -torch.inf), 1).clamp(min=-9)])
def test_rows_without_events_have_the_mask_as_their_maximum(pool):
    history = padded(20, L)
    history[1] = 0
    over(lambda m, h: pool(m.films(h), (h != 0)[..., None]), (history,), {"batch_0": "user/history[]"})


def test_an_example_has_more_than_one_event():
    """By one event their dimension is not told from others."""
    with pytest.raises(wr.InvalidArgument, match="input 'batch_0': expected an example of 2 events or more, got 1"):
        over(lambda m, h: (m.films(h) * (h != 0)[..., None]).sum(1), (padded(20, 1),), {"batch_0": "user/history[]"})


def test_numbers_of_events():
    history, times = padded(20, L), torch.randn(B, L, 2)
    axes = {"batch_0": "user/history[]", "batch_1": "user/history[]"}
    over(lambda m, h, t: ((torch.cat([m.films(h), t, t[..., :1] * 2], -1)) * (h > 0)[..., None]).sum(1),
         (history, times), axes)


def test_bags_with_weights():
    bag = nn.EmbeddingBag(20, D, mode="sum")
    weights = torch.rand(B, L)
    check(Function(lambda m, h, w: m.bag(h, per_sample_weights=w), bag=bag), (ids(20, L), weights),
          axes={"batch_0": "user/tags[]", "batch_1": "user/tags[]"})


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("with_end", [False, True])
def test_bags_of_ids_and_offsets(mode, with_end):
    bag = nn.EmbeddingBag(20, D, mode=mode, include_last_offset=with_end)
    values, offsets = torch.randint(0, 20, (11,)), torch.tensor([0, 2, 2, 5, 6, 10])
    if with_end:
        offsets = torch.cat([offsets, torch.tensor([11])])
    check(Function(lambda m, x, v, o: m.bag(v, o) + x, bag=bag), (torch.randn(B, D), values, offsets),
          axes={"batch_0": "user", "batch_1": "user/tags[]", "batch_2": "user"})


def test_bags_of_ids_and_offsets_with_weights():
    bag = nn.EmbeddingBag(20, D, mode="sum")
    check(Function(lambda m, x, v, o, w: m.bag(v, o, w) + x, bag=bag),
          (torch.randn(B, D), torch.randint(0, 20, (11,)), torch.tensor([0, 2, 2, 5, 6, 10]), torch.rand(11)),
          axes={"batch_0": "user", "batch_1": "user/tags[]", "batch_2": "user", "batch_3": "user/tags[]"})


# --- attention of products


def attended(forward, heads=2, **options):
    history = padded(20, L)
    history[0, 0] = 1
    attention = nn.MultiheadAttention(D, heads, batch_first=True, **options)
    for parameter in attention.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter)  # biases, which are zeros at first
    exported = check(Function(forward, films=table(), attention=attention), (ids(20), history), axes=AXES)
    assert kinds(exported).count('"op": "attention"') == 1
    return exported


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"bias": False}])
def test_multihead_attention_of_a_candidate(need_weights, options):
    def forward(m, film, history):
        k = m.films(history)
        return m.attention(m.films(film)[:, None], k, k, key_padding_mask=history == 0, need_weights=need_weights
                           )[0].squeeze(1)
    attended(forward, **options)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_of_events(need_weights):
    def forward(m, film, history):
        k = m.films(history)
        y = m.attention(k, k, k, key_padding_mask=history == 0, need_weights=need_weights)[0]
        return (y * (history != 0).unsqueeze(-1)).sum(1) + m.films(film)
    attended(forward)


def test_attention_without_projections():
    def forward(m, film, history):
        k = m.films(history)
        scores = (m.films(film)[:, None] @ k.transpose(1, 2)).squeeze(1) / math.sqrt(D)
        weights = F.softmax(scores.masked_fill(history == 0, -1e9), -1)
        return (weights[..., None] * k).sum(1)
    attended(forward)


# --- what is wrong


@pytest.mark.parametrize("module", [
    din(weights="softmax"),
    Function(lambda m, q, h: ((m.films(q)[:, None] @ m.films(h).mT).softmax(-1) @ m.films(h)).squeeze(1) *
             (h != 0).sum(1, keepdim=True), films=table())])
def test_softmax_over_padding(module, monkeypatch):
    monkeypatch.setitem(WEIGHTS, "softmax", lambda m, s, mask: torch.softmax(s, 1) * mask)
    with pytest.raises(wr.InvalidArgument, match="expected a softmax in which padding is masked, got one of padding"):
        wr.torch.export(module, (ids(20), padded(20, L)), axes=AXES)


@pytest.mark.parametrize("forward, message", [
    (lambda m, q, h: (torch.softmax(m.films(h).sum(-1), 1)[..., None] * m.films(h) * (h != 0)[..., None] * 0.5
                      + 1 - m.films(q)[:, None]).sum(1), "expected"),
    (lambda m, q, h: m.films(h)[:, 0], "output.*: expected all events of a sequence, got some of them"),
    (lambda m, q, h: (m.films(h) * (h != 0)[..., None] + 1).sum(1),
     "aten.sum.dim_IntList: expected a sum in which padding counts nothing, as behind a mask, got one of padding, too"),
    (lambda m, q, h: (m.films(h) * (h != 0)[..., None]).sum(1) + (m.films(h) + 1).mean(1),
     "expected a sum in which padding counts nothing, as behind a mask, got one of padding, too"),
    (lambda m, q, h: (torch.softmax(m.films(h), 1) * m.films(h) * (h != 0)[..., None]).sum(1),
     "expected a softmax in which padding is masked, got one of padding, too"),
    (lambda m, q, h: torch.tanh(m.films(h) * m.films(q)[:, None]).sum(1),
     "aten.sum.dim_IntList: expected attention that the library has"),
    (lambda m, q, h: m.films(h).sum(1) * (q > 0)[:, None], "expected ids that can only be looked up, and compared"),
    (lambda m, q, h: m.films(h) @ m.films(h).transpose(1, 2), "expected"),
    (lambda m, q, h: m.films(h).sum(1) + q[:, None] * 2, "expected"),
    (lambda m, q, h: (m.films(h) * (h != 0)[..., None]).sum(1) + torch.softmax(m.films(h), 2).amax(1),
     "expected a maximum in which padding is masked by a number, as -1e9, got one of padding, too"),
    (lambda m, q, h: torch.logsumexp(m.films(h).masked_fill((h == 0)[..., None], -1e9), 1),
     "expected a sum in which rows without events have 0"),
    (lambda m, q, h: (torch.softmax((h == 0) * 1e9 - m.films(h).sum(-1), 1)[..., None] * m.films(h)).sum(1),
     "expected a softmax in which padding is masked, got one of padding, too"),
    (lambda m, q, h: m.films(h).cumsum(1).sum(1), "aten.cumsum.default: expected all events of a sequence, got some of them"),
])
def test_what_cannot_be_expressed_of_events(forward, message):
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(Function(forward, films=table()), (ids(20), padded(20, L)), axes=AXES)


def test_padding_is_what_the_ids_of_the_mask_say():
    module = Function(lambda m, h, g: (m.films(h) * (h != 0)[..., None]).sum(1) + m.films(g).sum(1), films=table())
    with pytest.raises(wr.InvalidArgument, match="expected a sum in which padding counts nothing, as behind a mask"):
        wr.torch.export(module, (padded(20, L), padded(20, L)),
                        axes={"batch_0": "user/history[]", "batch_1": "user/history[]"})


def test_all_that_is_wrong_is_told_together():
    def forward(m, q, h):
        pairs = torch.tanh(m.films(h) * m.films(q)[:, None])
        return pairs.sum(1), pairs.amax(1), m.films(h)[:, 1]
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(Function(forward, films=table()), (ids(20), padded(20, L)), axes=AXES)
    assert len(raised.value.problems) == 3


def test_wrong_axes_of_events():
    films = table()
    with pytest.raises(wr.InvalidArgument, match=r"an axis of events that is nested, 'user/history\[\]', got 'rows\["):
        wr.torch.export(Function(lambda m, h: m.films(h).sum(1), films=films), ids(20, L), axes={"batch_0": "rows[]"})
    with pytest.raises(wr.InvalidArgument, match="5 events, as others of axis 'user/history' have, got 4"):
        wr.torch.export(Function(lambda m, a, b: m.films(a).sum(1) + m.films(b).sum(1), films=films),
                        (ids(20, L), ids(20, 4)), axes={"batch_0": "user/history[]", "batch_1": "user/history[]"})


# --- hashed tables


def test_hashed_tables():
    keys = torch.randperm(1000)[:20].numpy() * 10**12
    module = Function(lambda m, q, h: m.films(q) + m.films(h).sum(1), films=table())
    exported = check(module, (ids(20), ids(20, L)), axes=AXES, hashed={"films": keys})
    (films,) = wr.compile(exported.graph).tables
    assert films.hashed and films.rows == 20
    data, _ = exported.columns((ids(20), ids(20, L)))
    assert set(data["batch_0"]) <= set(keys.tolist())


@pytest.mark.parametrize("rows", ["i8", {"films": "f16"}])
def test_rows_of_hashed_tables(rows):
    keys = torch.randperm(1000)[:20].numpy() * 10**12
    exported = wr.torch.export(Function(lambda m, q: m.films(q), films=table()), ids(20), hashed={"films": keys},
                               rows=rows)
    assert exported.tables["films.keys"].tolist() == keys.tolist() and 0 < exported.row_errors["films"].largest < 0.02
    assert exported.check()["output"].largest <= exported.row_errors["films"].largest + 1e-6


def test_wrong_hashed_tables():
    module = Function(lambda m, q: m.films(q), films=table())
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(module, ids(20), hashed={"films": [1, 1, 2], "film": [1]})
    text = str(raised.value)
    assert "hashed: 'films': expected 20 ids, one for each row of the table, got 3" in text


def test_a_matrix_for_each_field_of_events():
    def forward(m, film, history):
        fields = m.films(history).view(*history.shape, 2, 1, D // 2) @ m.matrices
        kept = fields.flatten(2) * (history != 0).unsqueeze(-1)
        return kept.sum(1) + m.films(film)
    module = Function(forward, films=table(), matrices=torch.randn(2, D // 2, D // 2))
    check(module, (ids(20), padded(20, L)), axes=AXES)


def test_a_matrix_over_events_is_told():
    module = Function(lambda m, film, history: (m.films(history).mT.unsqueeze(1) @ torch.ones(2, L, 3)).flatten(1),
                      films=table())
    with pytest.raises(wr.InvalidArgument, match="aten.matmul.default: expected .*, got a layer over events"):
        wr.torch.export(module, (ids(20), padded(20, L)), axes=AXES)
