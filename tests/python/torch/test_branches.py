# SPDX-License-Identifier: Apache-2.0
"""Branches on whether any rows of a batch are so, and rows that a mask picks."""

import pytest
import torch
from test_events import D, table
from test_export import check, ids
from test_recurrent import histories
from torch import nn

import warprank as wr
import warprank.torch

AXES = {"film": "row", "history": "row/history[]"}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(12)


class Pooled(nn.Module):
    """`branch` makes of events, pooled, and a mask of rows what the head reads."""

    def __init__(self, branch):
        super().__init__()
        self.films, self.branch, self.head, self.other = table(), branch, nn.Linear(2 * D, 1), nn.Linear(D, D)

    def forward(self, film, history):
        is_event = history != 0
        pooled = (self.films(history) * is_event[..., None]).sum(1)
        return self.head(torch.cat([self.branch(self, pooled, is_event.any(1)), self.films(film)], -1))


def batch_of():
    return {"film": ids(20), "history": histories()}


def of_rows(m, x, rows):
    out = torch.zeros_like(x)
    if rows.any():
        out[rows] = m.other(x[rows])
    return out


def unless_there_are_none(m, x, rows):
    if not torch.any(rows):
        return torch.zeros_like(x)
    return torch.where(rows[:, None], m.other(x), 0.0)


def where_not_all_are(m, x, rows):
    if rows.all():
        return m.other(x)
    return torch.where(rows[:, None], m.other(x), 0.0)


def by_number_of_rows(m, x, rows):
    out, picked = torch.zeros_like(x), x[rows]
    if picked.shape[0] == 0:
        return out
    out[rows] = m.other(picked)
    return out


@pytest.mark.parametrize("branch", [of_rows, unless_there_are_none, where_not_all_are, by_number_of_rows])
def test_branches(branch):
    batch = batch_of()
    exported = check(Pooled(branch), batch, axes=AXES)
    for rows in (slice(2, 3), slice(0, 2), slice(3, 6)):  # without events, and all with some
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5


def test_branches_by_other_rows_are_refused():
    def shifted(m, x, rows):
        return m.other(x) + 1 if rows.all() else m.other(x)
    with pytest.raises(wr.InvalidArgument, match="torch.export of Pooled: expected scores of a row that do not depend on "
                       "the others of a batch, also behind 'if mask.any..' and x.mask., got row 0 with"):
        wr.torch.export(Pooled(shifted), batch_of(), AXES)


def test_branches_by_constants_that_are_taken_otherwise_are_refused():
    def of_constant(m, x, rows):
        return m.other(x) if torch.ones(3).bool().all() else x
    with pytest.raises(wr.InvalidArgument, match="as it is traced, of a batch of which some rows are so"):
        wr.torch.export(Pooled(of_constant), batch_of(), AXES)


def test_branches_by_numbers_are_refused():
    def by_sum(m, x, rows):
        return m.other(x) if x.sum() > 0 else x
    with pytest.raises(wr.InvalidArgument, match="expected a module whose control flow does not depend on values"):
        wr.torch.export(Pooled(by_sum), batch_of(), AXES)


class WithLoss(Pooled):
    """Gives a loss behind its scores, of picked events, which cannot be expressed."""

    def forward(self, film, history):
        score = super().forward(film, history)
        events = self.films(history)[:, 1:][history[:, 1:] != 0]
        return score, events.square().mean() if events.shape[0] > 0 else torch.tensor(0.0)


def test_outputs_left_out():
    batch = batch_of()
    exported = check(WithLoss(of_rows), batch, axes=AXES, outputs=["score", None])
    assert exported.outputs == ["score"] and list(exported.check(batch)) == ["score"]
    with pytest.raises(wr.InvalidArgument, match="got some of them, picked by their place"):
        wr.torch.export(WithLoss(of_rows), batch, AXES)
    for outputs in (["score"], [None, None]):
        with pytest.raises(wr.InvalidArgument, match="outputs: expected 2 names, None for one that is no score, got"):
            wr.torch.export(WithLoss(of_rows), batch, AXES, outputs=outputs)
