# SPDX-License-Identifier: Apache-2.0
"""Batches of which inputs disagree about the events of rows."""

import pytest
import torch
from test_events import D, L
from test_export import check
from test_models import padded
from torch import nn

import warprank as wr
import warprank.torch


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(8)


LENGTHS = {"history": "row/history[]", "length": "row/history[]"}


class OfLengths(nn.Module):
    """The mean of events that an input counts, of which their ids, or the input, tell which they are."""

    def __init__(self, by_ids=True):
        super().__init__()
        self.films, self.by_ids = nn.Embedding(20, D), by_ids

    def forward(self, history, length):
        kept = history != 0 if self.by_ids else torch.arange(history.shape[1]) < length[:, None]
        return (self.films(history) * kept.unsqueeze(-1)).sum(1) / (length[:, None] + 1)


def test_lengths_that_disagree_with_ids():
    history = padded(20, L)
    batch = {"history": history, "length": (history != 0).sum(1)}
    exported = check(OfLengths(), batch, axes=LENGTHS)
    wrong = batch["length"].clone()
    wrong[1], wrong[2] = 3, 4
    with pytest.raises(wr.InvalidArgument, match="batch: input 'length': expected 1 in row 1, as many events as 'history' has "
                       "there, got 3, and 1 more"):
        exported.columns(batch | {"length": wrong})
    with pytest.raises(wr.InvalidArgument, match="expected 1 in row 0, .*, got 3$"):
        exported.check({"history": history[1:3], "length": torch.tensor([3, L])})


@pytest.mark.parametrize("length", [L + 1, -1])
def test_lengths_beyond_the_events(length):
    history = padded(20, L)
    batch = {"history": history, "length": (history != 0).sum(1)}
    exported = check(OfLengths(by_ids=False), batch, axes=LENGTHS)
    fewer = batch["length"].clamp(max=2)  # where lengths tell, ids need not
    assert exported.check(batch | {"length": fewer})["output"].largest <= 1e-5
    with pytest.raises(wr.InvalidArgument, match=f"batch: input 'length': expected 0 to {L} events, got {length}"):
        exported.columns(batch | {"length": torch.full_like(batch["length"], length)})


def test_histories_of_one_axis_that_are_both_masked():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.films, self.genres = nn.Embedding(20, D), nn.Embedding(20, D)

        def forward(self, history, genres):
            return sum((table(x) * (x != 0).unsqueeze(-1)).sum(1)
                       for table, x in ((self.films, history), (self.genres, genres)))
    batch = {"history": padded(20, L), "genres": padded(20, L)}
    with pytest.raises(wr.InvalidArgument, match="expected one mask for each sequence, got 'history' and 'genres'"):
        wr.torch.export(Both(), batch, dict.fromkeys(batch, "row/history[]"))
    check(Both(), batch, axes={name: f"row/{name}[]" for name in batch})


class OfPlaces(OfLengths):
    """Places are counted from one on."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, history, length):
        kept = self.kept(torch.arange(1, history.shape[1] + 1), length[:, None])
        return (self.films(history) * kept.unsqueeze(-1)).sum(1)


def test_places_from_one_on():
    history = padded(20, L)
    batch = {"history": history, "length": (history != 0).sum(1)}
    for kept in (lambda places, length: places <= length, lambda places, length: ~(length < places)):
        exported = check(OfPlaces(kept), batch, axes=LENGTHS)
        assert exported.check({name: x[:1] for name, x in batch.items()})["output"].largest <= 1e-5
    with pytest.raises(wr.InvalidArgument, match="arange < length, or arange == length - 1, got others"):
        wr.torch.export(OfPlaces(lambda places, length: places < length), batch, LENGTHS)
