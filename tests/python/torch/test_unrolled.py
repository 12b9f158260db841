# SPDX-License-Identifier: Apache-2.0
"""GRUs that a module writes as a loop over the events of a padded history."""

import pytest
import torch
from test_events import D, L, table
from test_export import check, ids
from test_models import kinds
from test_recurrent import H, histories
from torch import nn

import warprank as wr
import warprank.torch

AXES = {"film": "user/item", "history": "user/history[]"}
ON_ROWS = {"film": "row", "history": "row/history[]"}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(11)


class Cell(nn.Module):
    """A GRU of matrices of its own, of which another formula may be made."""

    def __init__(self, keeps=True, order=(0, 1), is_reset_first=False, last=torch.tanh):
        super().__init__()
        self.of_input = nn.ParameterList([torch.randn(D, H) * 0.4 for _ in range(3)])
        self.of_state = nn.ParameterList([torch.randn(H, H) * 0.4 for _ in range(3)])
        self.bias = nn.ParameterList([torch.randn(1, H) * 0.4 for _ in range(3)])
        self.keeps, self.order, self.is_reset_first, self.last = keeps, order, is_reset_first, last

    def forward(self, x, state, share=None):
        z, r = (torch.sigmoid(x @ self.of_input[i] + state @ self.of_state[i] + self.bias[i]) for i in self.order)
        of_state = (r * state) @ self.of_state[2] if self.is_reset_first else r * (state @ self.of_state[2])
        n = self.last(x @ self.of_input[2] + of_state + self.bias[2])
        z = z if share is None else z * share
        return z * state + (1 - z) * n if self.keeps else (1 - z) * state + z * n


def masked_by_where(mask, new, state):
    return torch.where(mask.unsqueeze(-1), new, state)


def masked_by_product(mask, new, state):
    return mask.float()[:, None] * new + (1 - mask.float()[:, None]) * state


class Loop(nn.Module):
    """of_last: whether the head has the last state, or the sum of all events' states"""

    def __init__(self, cell, masked=None, of_last=True):
        super().__init__()
        self.films, self.cell, self.masked, self.of_last = table(), cell, masked, of_last
        self.head = nn.Linear(H + D, 1)

    def forward(self, film, history):
        x, is_event = self.films(history), history != 0
        state, states = torch.zeros(len(film), H), []
        for place in range(L):
            new = self.cell(x[:, place], state)
            state = new if self.masked is None else self.masked(is_event[:, place], new, state)
            states.append(state)
        pooled = state if self.of_last else (torch.stack(states, 1) * is_event[:, :, None]).sum(1)
        return self.head(torch.cat([pooled, self.films(film)], -1)).squeeze(-1)


def batch_of():
    return {"film": ids(20), "history": histories()}


CELLS = {"GRUCell": lambda: nn.GRUCell(D, H), "without biases": lambda: nn.GRUCell(D, H, bias=False), "of matrices": Cell,
         "updates": lambda: Cell(keeps=False), "in another order": lambda: Cell(order=(1, 0))}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("masked, of_last", [(masked_by_where, True), (masked_by_product, True), (masked_by_where, False),
                                             (None, False)])
def test_loops(cell, masked, of_last):
    batch = batch_of()
    exported = check(Loop(CELLS[cell](), masked, of_last), batch, axes=AXES)
    assert kinds(exported).count('"cell": "gru"') == 1
    for rows in (slice(1, 3), slice(2, 4)):  # of one event, and of none
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5


def test_a_mask_kept_as_a_column():
    class Columns(Loop):
        def forward(self, film, history):
            x, mask, state = self.films(history), (history != 0).float(), torch.zeros(len(film), H)
            for place in range(L):
                now = mask[:, place:place + 1]
                state = now * self.cell(x[:, place], state) + (1 - now) * state
            return self.head(torch.cat([state, self.films(film)], -1))
    assert '"cell": "gru"' in kinds(check(Columns(nn.GRUCell(D, H)), batch_of(), axes=AXES))


def test_a_loop_behind_another():
    class Layers(Loop):
        def __init__(self):
            super().__init__(nn.GRUCell(D, H))
            self.second = nn.GRUCell(H, H)

        def forward(self, film, history):
            x, is_event = self.films(history), history != 0
            first = second = torch.zeros(len(film), H)
            for place in range(L):
                first = masked_by_where(is_event[:, place], self.cell(x[:, place], first), first)
                second = masked_by_where(is_event[:, place], self.second(first, second), second)
            return self.head(torch.cat([second, self.films(film)], -1))
    assert kinds(check(Layers(), batch_of(), axes=AXES)).count('"cell": "gru"') == 2


class Attending(Loop):
    """Shares of a softmax without padding; in rows of padding alone they are no numbers, or `of_empty`."""

    def __init__(self, cell, of_empty=None, picks_rows=True):
        super().__init__(cell)
        self.kernel, self.of_empty, self.picks_rows = nn.Parameter(torch.randn(D, D)), of_empty, picks_rows

    def last(self, x, candidate, is_event):
        scores = ((x @ self.kernel) * candidate[:, None]).sum(-1).masked_fill(~is_event, -torch.inf)
        shares = scores.softmax(1)
        if self.of_empty is not None:
            rows = shares.isnan().any(1)
            if rows.any():
                shares[rows] = self.of_empty
        state = x.new_zeros(x.shape[0], H)
        for place in range(L):
            state = self.cell(x[:, place], state, shares[:, place, None])
        return state

    def forward(self, film, history):
        x, candidate, is_event = self.films(history), self.films(film), history != 0
        if not self.picks_rows:
            return self.head(torch.cat([self.last(x, candidate, is_event), candidate], -1))
        has_events = is_event.any(1)
        state = torch.zeros(len(film), H)
        if has_events.any():
            state[has_events] = self.last(x[has_events], candidate[has_events], is_event[has_events])
        return self.head(torch.cat([state, candidate], -1))


@pytest.mark.parametrize("axes", [AXES, ON_ROWS])
@pytest.mark.parametrize("of_empty", [None, 0.2])
def test_shares_of_attention(axes, of_empty):
    batch = batch_of()
    exported = check(Attending(Cell(keeps=False), of_empty), batch, axes=axes)
    assert kinds(exported).count('"cell": "augru"') == 1
    for rows in (slice(1, 3), slice(2, 4)):
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5


def test_shares_of_rows_of_padding():
    check(Attending(Cell(keeps=False), 0.0, picks_rows=False), batch_of(), axes=AXES)
    with pytest.raises(wr.InvalidArgument, match="0 in rows without events, or one of rows that have some, x.mask.any.1.., "
                       "got one in which padding moves the states of rows without events"):
        wr.torch.export(Attending(Cell(keeps=False), 0.2, picks_rows=False), batch_of(), AXES)


@pytest.mark.parametrize("cell", [Cell(is_reset_first=True), Cell(last=torch.sigmoid), Cell(last=torch.relu)])
def test_other_formulas_are_refused(cell):
    with pytest.raises(wr.InvalidArgument, match="expected all events of a sequence, got some of them, picked by"):
        wr.torch.export(Loop(cell, masked_by_where), batch_of(), AXES)


@pytest.mark.parametrize("backwards", [False, True])
def test_other_loops_are_refused(backwards):
    class Other(Loop):
        def forward(self, film, history):
            x, state = self.films(history), torch.zeros(len(film), H)
            for place in reversed(range(L)) if backwards else range(1, L):
                state = masked_by_where(history[:, place] != 0, self.cell(x[:, place], state), state)
            return self.head(torch.cat([state, self.films(film)], -1))
    with pytest.raises(wr.InvalidArgument, match="expected all events of a sequence, got some of them, picked by"):
        wr.torch.export(Other(nn.GRUCell(D, H)), batch_of(), AXES)


def test_a_state_behind_padding_is_refused():
    class Other(Loop):
        def forward(self, film, history):
            pooled = (self.films(history) * (history != 0)[..., None]).sum(1)
            return super().forward(film, history) + pooled.sum(-1)
    with pytest.raises(wr.InvalidArgument, match="got h_n of padded events, a state behind padding"):
        wr.torch.export(Other(nn.GRUCell(D, H)), batch_of(), AXES)


def test_masks_of_others_are_refused():
    class Other(Loop):
        def forward(self, film, history):
            x, state, seen = self.films(history), torch.zeros(len(film), H), history != 3
            total = (x * (history != 0)[..., None]).sum(1)
            for place in range(L):
                state = masked_by_where(seen[:, place], self.cell(x[:, place], state), state)
            return self.head(torch.cat([state + total[:, :H], self.films(film)], -1))
    with pytest.raises(wr.InvalidArgument, match="expected one mask for each sequence, got .history. and .history."):
        wr.torch.export(Other(nn.GRUCell(D, H)), batch_of(), AXES)
