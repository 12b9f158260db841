# SPDX-License-Identifier: Apache-2.0
"""GRUs that a module writes as a loop over the steps of packed events, whose states follow shares of attention."""

import pytest
import torch
from test_events import D, L, table
from test_export import check, ids
from test_models import kinds
from test_recurrent import count, histories
from torch import nn
from torch.nn.utils import rnn

import warprank as wr
import warprank.torch

AXES = {"film": "user/item", "history": "user/history[]"}
ON_ROWS = {"film": "row", "history": "row/history[]"}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(9)


def augru(i, h, state, share):
    (i_u, i_r, i_n), (h_u, h_r, h_n) = i, h
    u = torch.sigmoid(i_u + h_u) * share
    return state + u * (torch.tanh(i_n + torch.sigmoid(i_r + h_r) * h_n) - state)


def agru(i, h, state, share):
    (_, i_r, i_n), (_, h_r, h_n) = i, h
    return (1 - share) * state + share * torch.tanh(i_n + torch.sigmoid(i_r + h_r) * h_n)


def in_another_order(i, h, state, share):
    return augru((i[2], i[0], i[1]), (h[2], h[0], h[1]), state, share)


class Cell(nn.Module):
    def __init__(self, formula, bias, hidden):
        super().__init__()
        self.formula, self.of_state, self.of_input = formula, nn.Linear(hidden, 3 * hidden, bias), nn.Linear(
            D, 3 * hidden, bias)

    def forward(self, x, state, share):
        return self.formula(self.of_input(x).chunk(3, 1), self.of_state(state).chunk(3, 1), state, share.view(-1, 1))


class Loop(nn.Module):
    """A loop over steps, as DIEN's code in PyTorch has it."""

    def __init__(self, formula=augru, bias=True, hidden=D):
        super().__init__()
        self.cell, self.hidden = Cell(formula, bias, hidden), hidden

    def forward(self, packed, shares=None, state=None):
        assert isinstance(packed, rnn.PackedSequence) and isinstance(shares, rnn.PackedSequence)
        x, sizes, order, back = packed
        state = torch.zeros(sizes[0], self.hidden) if state is None else state
        last, states, start = torch.zeros(sizes[0], self.hidden), torch.zeros(len(x), self.hidden), 0
        for size in sizes:
            state = self.cell(x[start:start + size], state[:size], shares.data[start:start + size])
            states[start:start + size] = state
            last[:size] = state
            start += size
        return rnn.PackedSequence(states, sizes, order, back), last[back]


SCORES = {"dot": lambda m, x, q: (x @ q.unsqueeze(-1)).squeeze(-1),
          "bilinear": lambda m, x, q: ((x @ m.kernel) @ q.unsqueeze(-1)).view(-1, L),
          "scaled": lambda m, x, q: (x @ q.unsqueeze(-1)).squeeze(-1) / 2,
          "mlp": lambda m, x, q: m.unit(torch.cat([x, q[:, None].expand(-1, L, -1)], -1)).squeeze(-1)}


class Dien(nn.Module):
    def __init__(self, loop, score="bilinear"):
        super().__init__()
        self.loop, self.score, self.films = loop, SCORES[score], table()
        self.gru, self.kernel = nn.GRU(D, D, batch_first=True), nn.Parameter(torch.randn(D, D))
        self.unit = nn.Sequential(nn.Linear(2 * D, 6), nn.Sigmoid(), nn.Linear(6, 1))
        self.head = nn.Linear(getattr(loop, "hidden", D) + D, 1)

    def shares(self, x, q, mask):
        scores = self.score(self, x, q) * mask.float() - 1e9 * (1 - mask.float())
        return scores.softmax(-1)

    def last(self, packed, shares):
        return self.loop(packed, shares)[1]

    def forward(self, film, history):
        mask, candidate = history > 0, self.films(film)
        kept = mask.sum(1) > 0

        def packed(x):
            return rnn.pack_padded_sequence(x, count(history)[kept], batch_first=True, enforce_sorted=False)
        interests, _ = self.gru(packed(self.films(history)[kept]))
        x, _ = rnn.pad_packed_sequence(interests, batch_first=True, total_length=L)
        last = self.last(interests, packed(self.shares(x, candidate[kept], mask[kept])))
        out = torch.zeros(len(film), last.shape[-1])
        out[kept] = last
        return self.head(torch.cat([out, candidate], -1)).squeeze(-1)


def batch_of():
    return {"film": ids(20), "history": histories()}


@pytest.mark.parametrize("axes, formula, bias, hidden, score", [
    (AXES, augru, True, D, "bilinear"), (ON_ROWS, augru, True, D, "bilinear"), (AXES, agru, True, D, "dot"),
    (ON_ROWS, agru, False, 3, "scaled"), (AXES, in_another_order, True, 3, "scaled")])
def test_loops(axes, formula, bias, hidden, score):
    batch = batch_of()
    exported = check(Dien(Loop(formula, bias, hidden), score), batch, axes=axes)
    assert '"cell": "agru"' in kinds(exported) if formula is agru else '"cell": "augru"' in kinds(exported)
    for rows in (slice(1, 2), slice(2, 4), slice(0, 6)):  # of one event, with a row of none
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5


def test_scores_of_layers():
    check(Dien(Loop(), "mlp"), batch_of(), axes=ON_ROWS)
    with pytest.raises(wr.InvalidArgument, match="got another function of 'user/item' and"):
        wr.torch.export(Dien(Loop(), "mlp"), batch_of(), AXES)


def test_the_same_loop_twice():
    class Twice(Dien):
        def last(self, packed, shares):
            return torch.cat([self.loop(packed, shares)[1], self.loop(packed, shares, self.start)[1]], -1)

        def __init__(self, start):
            super().__init__(Loop())
            self.start, self.head = start, nn.Linear(3 * D, 1)
    check(Twice(None), batch_of(), axes=AXES)
    with pytest.raises(wr.InvalidArgument, match="that is given events and shares, no first state"):
        wr.torch.export(Twice(torch.full((5, D), 0.5)), batch_of(), AXES)


def test_modules_stay_as_they_were():
    module = Dien(Loop())
    wr.torch.export(module, batch_of(), AXES)
    assert "forward" not in vars(module.loop)


def relu(i, h, state, share):
    return augru(i, h, state, share).relu()


def clamped(i, h, state, share):
    return augru(i, h, state, share.clamp(max=0.5))


def reset_before(i, h, state, share):
    return augru(i, (h[0], h[1], state), state, share)


def in_the_other_direction(i, h, state, share):
    return state + (1 - torch.sigmoid(i[0] + h[0]) * share) * (torch.tanh(i[2] + torch.sigmoid(i[1] + h[1]) * h[2]) -
                                                                state)


@pytest.mark.parametrize("formula", [relu, clamped, reset_before, in_the_other_direction])
def test_other_formulas(formula):
    with pytest.raises(wr.InvalidArgument, match=r"packed sequences are taken by nn.GRU and pad_packed_sequence, and by "
                       r"GRUs with shares of attention \(AUGRU, AGRU\), which module 'loop' \(Loop\) is not"):
        wr.torch.export(Dien(Loop(formula)), batch_of(), AXES)


class OfPaddedStates(Dien):
    def last(self, packed, shares):
        return rnn.pad_packed_sequence(self.loop(packed, shares)[0], batch_first=True, total_length=L)[0].sum(1)


class WithoutSoftmax(Dien):
    def shares(self, x, q, mask):
        return self.score(self, x, q) * mask.float()


class WithoutMask(Dien):
    def shares(self, x, q, mask):
        return self.score(self, x, q).softmax(-1)


@pytest.mark.parametrize("model, message", [
    (OfPaddedStates, "of a GRU with shares of attention the last state can be expressed, not the others"),
    (WithoutSoftmax, "expected a GRU with shares that are a softmax over all events"),
    (WithoutMask, "expected a softmax in which padding is masked"),
])
def test_what_is_refused(model, message):
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(model(Loop()), batch_of(), AXES)


class OfOneResult(Loop):
    def forward(self, packed, shares=None):
        return super().forward(packed, shares)[0]


class WithoutPickedRows(Dien):
    """As DeepCTR has it: whole rows by masked_select, and the last state by a mask of events."""

    def __init__(self, place=lambda lengths: lengths - 1, cell=augru):
        super().__init__(OfOneResult(cell))
        self.place = place

    def last(self, packed, shares):
        states, lengths = rnn.pad_packed_sequence(self.loop(packed, shares), batch_first=True, total_length=L)
        rows, events, _ = states.size()
        assert events == states.size(1) == states.shape[1]
        is_last = torch.arange(events).repeat(rows, 1) == self.place(lengths).view(-1, 1)
        return states[is_last]

    def forward(self, film, history):
        mask, candidate = history > 0, self.films(film)
        lengths = count(history)
        kept = lengths > 0
        lengths = lengths[kept]
        if lengths.shape[0] == 0:
            return self.head(torch.cat([torch.zeros_like(candidate), candidate], -1)).squeeze(-1)

        def packed(x):
            return rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x = torch.masked_select(self.films(history), kept.view(-1, 1, 1)).view(-1, L, D)
        x, _ = rnn.pad_packed_sequence(self.gru(packed(x))[0], batch_first=True, total_length=L)
        shares = self.shares(x, candidate.masked_select(kept.reshape(-1, 1)).view(-1, D),
                             mask.masked_select(kept.view(-1, 1)).view(-1, L))
        out = torch.zeros(len(film), D)
        out[kept] = self.last(packed(x), packed(shares))
        return self.head(torch.cat([out, candidate], -1)).squeeze(-1)


@pytest.mark.parametrize("axes", [AXES, ON_ROWS])
@pytest.mark.parametrize("cell", [augru, agru])
def test_the_last_of_padded_states(axes, cell):
    batch = batch_of()
    exported = check(WithoutPickedRows(cell=cell), batch, axes=axes)
    for rows in (slice(1, 2), slice(2, 4), slice(0, 6)):
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5


def test_another_of_padded_states():
    with pytest.raises(wr.InvalidArgument, match="as it is traced, of a batch of which some rows are so"):
        wr.torch.export(WithoutPickedRows(torch.zeros_like), batch_of(), AXES)

    class OfAPlace(WithoutPickedRows):
        def last(self, packed, shares):
            return rnn.pad_packed_sequence(self.loop(packed, shares), batch_first=True, total_length=L)[0][:, 0]
    with pytest.raises(wr.InvalidArgument, match="the last state can be expressed, not the others"):
        wr.torch.export(OfAPlace(), batch_of(), AXES)


def test_padded_states_of_histories_that_are_alike():
    """The first state of one event is the last, too."""
    batch = batch_of()
    batch["history"][:, 0], batch["history"][:, 1:] = 3, 0
    with pytest.raises(wr.InvalidArgument, match="histories of one length do not tell whether a state"):
        wr.torch.export(WithoutPickedRows(torch.ones_like), batch, AXES)


def test_one_weight_of_two_names():
    loop = Loop()
    loop.cell.of_state.bias = loop.cell.of_input.bias
    exported = check(Dien(loop), batch_of(), axes=AXES)
    assert '"cell": "augru"' in kinds(exported)


def test_rows_of_one_event_of_padding():
    class Clamped(Dien):
        def forward(self, film, history):
            packed = rnn.pack_padded_sequence(self.films(history), count(history).clamp(min=1), True, False)
            shares = self.shares(self.films(history), self.films(film), history > 0)
            last = self.last(packed, rnn.pack_padded_sequence(shares, count(history).clamp(min=1), True, False))
            return self.head(torch.cat([last, self.films(film)], -1)).squeeze(-1)
    with pytest.raises(wr.InvalidArgument, match=r"expected lengths of each row's events, as \(ids != 0\).sum\(1\)"):
        wr.torch.export(Clamped(Loop()), batch_of(), AXES)
