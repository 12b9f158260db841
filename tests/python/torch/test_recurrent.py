# SPDX-License-Identifier: Apache-2.0
"""GRUs over the events of a history, and the ways in which their last states are picked."""

import pytest
import torch
from test_events import D, L, table
from test_export import Function, check, ids
from test_models import kinds
from torch import nn
from torch.nn.utils import rnn

import warprank as wr
import warprank.torch

H = 3
AXES = {"batch_0": "user/item", "batch_1": "user/history[]"}
PLACES = torch.arange(L)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def histories():
    """Of 5, 1, no, 3, 2 and 4 events, with padding behind them."""
    return torch.randint(1, 20, (6, L)) * (PLACES < torch.tensor([5, 1, 0, 3, 2, 4])[:, None])


def of_history(last, layers=1, bias=True, padding=0.7, **options):
    """A model of what `last` makes of a GRU, embeddings and ids. padding: all columns of its embedding"""
    def forward(m, film, history):
        return m.head(torch.cat([last(m.gru, m.films(history), history), m.films(film)], -1))
    films = table()
    films.weight.data[0] = padding
    gru = nn.GRU(D, H, layers, bias=bias, **({"batch_first": True} | options))
    return Function(forward, films=films, gru=gru, head=nn.Linear(H * (2 if gru.bidirectional else 1) + D, 1))


def count(history):
    return (history != 0).sum(1)


def gathered(gru, x, history):
    place = count(history).clamp(min=1) - 1
    return gru(x)[0].gather(1, place.view(-1, 1, 1).expand(-1, 1, H)).squeeze(1)


def indexed(gru, x, history):
    return gru(x)[0][torch.arange(len(x)), (count(history) - 1).clamp(min=0)]


def marked(gru, x, history):
    return (gru(x)[0] * (PLACES == count(history)[:, None] - 1)[..., None]).sum(1)


def masked_sum(gru, x, history):
    return (gru(x)[0] * (history != 0)[..., None]).sum(1)


def masked_mean(gru, x, history):
    kept = (history != 0)[..., None].float()
    return (gru(x)[0] * kept).sum(1) / kept.sum(1).clamp(min=1)


def all_events(gru, x, history):
    return gru(x)[1][-1]


def by_time(gru, x, history):
    made = gru(x.transpose(0, 1))[0].transpose(0, 1)
    return (made * (history != 0)[..., None]).sum(1)


def packed(gru, x, history):
    lengths = count(history).clamp(min=1)
    return gru(rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False))[1][-1]


def packed_twice(gru, x, history):
    lengths = count(history).clamp(min=1)
    made, _ = gru(rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    events, _ = rnn.pad_packed_sequence(made, batch_first=True, total_length=L)
    return (events * (history != 0)[..., None]).sum(1)


def packed_of_some(gru, x, history):
    """DIEN's: of rows with events alone."""
    kept = count(history) > 0
    made, last = gru(rnn.pack_padded_sequence(x[kept], count(history)[kept], batch_first=True, enforce_sorted=False))
    out = torch.zeros(len(x), H)
    out[kept] = last[-1] + rnn.pad_packed_sequence(made, batch_first=True, total_length=L)[0].sum(1)
    return out


def in_packed_sums(gru, x, history):
    lengths = count(history).clamp(min=1)
    made, _ = gru(rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    return rnn.pad_packed_sequence(made, batch_first=True, total_length=L)[0].sum(1)


LASTS = [packed_of_some, gathered, indexed, marked, masked_sum, masked_mean, all_events, packed, packed_twice,
         in_packed_sums]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("last", LASTS)
def test_ragged_empty_and_single_events(last, layers):
    exported = check(of_history(last, layers), (ids(20), histories()), axes=AXES)
    assert kinds(exported).count('"op": "recurrent"') == layers
    assert {n for n in exported.weights if n.endswith("hidden.weight")} == {
        f"{name}.hidden.weight" for name in ["gru", "gru.1"][:layers]}


def test_without_biases_and_of_time_first():
    exported = check(of_history(by_time, bias=False, batch_first=False), (ids(20), histories()), axes=AXES)
    assert not exported.weights["gru.input.bias"].any() and not exported.weights["gru.hidden.bias"].any()


def test_rows_without_events_take_what_padding_gives():
    """A state of one event of padding, where lengths have a least of 1."""
    module, history = of_history(gathered), torch.zeros(6, L, dtype=torch.int64)
    exported = check(module, (ids(20), history), axes=AXES)
    other = check(of_history(marked), (ids(20), history), axes=AXES)
    assert "is_last" in [d.name.rpartition(".")[2] for d in wr.compile(exported.graph).dense]
    assert kinds(exported) != kinds(other)  # which gives zeros


def test_gather_of_rows_that_all_have_events():
    """For others it is an error in PyTorch."""
    def last(gru, x, history):
        return gru(x)[0].gather(1, (count(history) - 1).view(-1, 1, 1).expand(-1, 1, H)).squeeze(1)
    history = histories()
    history[2, 0] = 7
    check(of_history(last), (ids(20), history), axes=AXES)


def test_the_last_event_itself():
    exported = check(of_history(last_events), (ids(20), histories()), axes=AXES)
    assert "recurrent" not in kinds(exported)


def of_last(pick):
    """Of events what `pick` picks of them, with the place of the last."""
    def forward(m, film, history):
        x = m.films(history) * (history != 0)[..., None]
        return pick(x, count(history).clamp(min=1) - 1).sum(1) + m.films(film)
    return Function(forward, films=table())


@pytest.mark.parametrize("pick", [
    lambda x, place: x.gather(1, place.view(-1, 1, 1)),  # one column of [B, 1, D]
    lambda x, place: x.gather(-2, place.view(-1, 1, 1).expand(-1, 1, 2)).sum(-1, keepdim=True),
    lambda x, place: x.mT.gather(2, place.view(-1, 1, 1).expand(-1, 3, 1)).sum(2).mean(1)[:, None, None]])
def test_gather_gives_the_columns_that_its_index_has(pick):
    check(of_last(pick), (ids(20), histories()), axes=AXES)


@pytest.mark.parametrize("pick, expected", [
    (lambda x, place: x.gather(1, place.view(-1, 1, 1).expand(-1, 2, D)), "an index of one event of each row, as "
     r"lengths.view\(-1, 1, 1\).expand\(-1, 1, dim\), got one of 2"),
    (lambda x, place: x[torch.arange(len(x))[:, None], place[:, None]], r"the last event, x\[torch.arange\(batch\), "
     r"lengths - 1\], got others by row"),
    (lambda x, place: x[torch.arange(len(x))[:, None], place], "got others by row"),
    (lambda x, place: x[torch.arange(len(x)), place[:, None]], "got others by row")])
def test_indices_of_other_shapes_are_refused(pick, expected):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.torch.export(of_last(pick), (ids(20), histories()), axes=AXES)


def test_lengths_as_an_input():
    def forward(m, lengths, history):
        kept = PLACES < lengths[:, None]
        states, _ = m.gru(m.films(history) * kept[..., None])
        return m.head(states.gather(1, (lengths.clamp(min=1) - 1).view(-1, 1, 1).expand(-1, 1, H)).squeeze(1))
    module = Function(forward, films=table(), gru=nn.GRU(D, H, batch_first=True), head=nn.Linear(H, 1))
    history = histories()
    check(module, (count(history), history), axes=dict.fromkeys(AXES, "user/history[]"))


def test_attention_of_states():
    """What padding's states are is not known: rows without events have 0 by the module alone."""
    def of(weights):
        def forward(m, film, history):
            states, _ = m.gru(m.films(history))
            q = m.query(m.films(film))
            scores = torch.bmm(states, q[..., None]).squeeze(-1).masked_fill(history == 0, -1e9)
            return m.head((weights(torch.softmax(scores, 1), history)[..., None] * states).sum(1))
        return Function(forward, films=table(), gru=nn.GRU(D, H, batch_first=True), query=nn.Linear(D, H),
                        head=nn.Linear(H, 1))
    check(of(lambda w, history: w * (history != 0)), (ids(20), histories()), axes=AXES)
    with pytest.raises(wr.InvalidArgument, match=r"a softmax, softmax\(..\) \* is_event, got one in which they have"):
        wr.torch.export(of(lambda w, history: w), (ids(20), histories()), AXES)


def test_over_columns_its_steps_are_made():
    def forward(m, film, other):
        return m.head(m.gru(torch.stack([m.films(film), m.films(other)], 1))[1][-1])
    module = Function(forward, films=table(), gru=nn.GRU(D, H, batch_first=True), head=nn.Linear(H, 1))
    check(module, (ids(20), ids(20)))


def last_events(gru, x, history):
    return indexed(lambda x: (x[..., :H],), x, history)


@pytest.mark.parametrize("last", [gathered, masked_sum, last_events])
def test_padding_ahead_of_events_is_refused(last):
    exported = check(of_history(last), (ids(20), histories()), axes=AXES)
    history = histories()
    history[3] = torch.tensor([0, 4, 5, 0, 0])
    with pytest.raises(wr.InvalidArgument, match="'batch_1': expected padding behind the events.*row 3"):
        exported.check((ids(20), history))


def final(gru, x, history):
    return gru(x * (history != 0)[..., None])[1][-1]


def behind(gru, x, history):
    return gru(x)[0][torch.arange(len(x)), count(history) - 1]


def as_long_as_the_longest(gru, x, history, length=None):
    made, _ = gru(rnn.pack_padded_sequence(x, count(history), batch_first=True, enforce_sorted=False))
    return rnn.pad_packed_sequence(made, batch_first=True, total_length=length)[0].mean(1)


def longer_than_histories(gru, x, history):
    return as_long_as_the_longest(gru, x, history, L + 2)


def given(gru, x, history):
    return masked_sum(lambda x: gru(x, torch.ones(1, len(x), H)), x, history)


def of_lstm(gru, x, history):
    return masked_sum(lstm, x, history)


def of_data(gru, x, history):
    return rnn.pack_padded_sequence(x, count(history), batch_first=True).data.sum(0)


lstm = nn.LSTM(D, H, batch_first=True)


@pytest.mark.parametrize("last, expected, options", [
    (final, "pack_padded_sequence, got h_n of padded events", {}),
    (behind, r"lengths.clamp\(min=1\) - 1, got lengths - 1", {}),
    (as_long_as_the_longest, "the longest of a batch has: use total_length=5, as many as histories have", {}),
    (longer_than_histories, "use total_length=5, as many as histories have", {}),
    (given, "begins with zeros, nn.GRU, got nn.GRU with a state that is given", {}),
    (masked_sum, "got nn.GRU of both directions; use bidirectional=False", {"bidirectional": True}),
    (of_lstm, "got lstm; use nn.GRU", {}),
    (of_data, "nn.GRU and pad_packed_sequence can be expressed, not 'data'", {}),
])
def test_what_would_be_another_state_is_refused(last, expected, options):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.torch.export(of_history(last, **options), (ids(20), histories()), axes=AXES)


def test_padding_that_is_not_known_is_refused():
    def forward(m, lengths, history):
        states, _ = m.gru(m.films(history))
        return m.head(states[torch.arange(len(history)), lengths.clamp(min=1) - 1])
    module = Function(forward, films=table(), gru=nn.GRU(D, H, batch_first=True), head=nn.Linear(H, 1))
    with pytest.raises(wr.InvalidArgument, match="known what they are for padding"):
        wr.torch.export(module, (count(histories()), histories()), axes=dict.fromkeys(AXES, "user/history[]"))


@pytest.mark.parametrize("function, expected", [
    (lambda m, x: x[x[:, 0] > 0] * 2, "outputs: expected scores of each row, got of some rows"),
    (lambda m, x: x[x[:, 0] > 0].mean(0) + x, "scores of a row that do not depend on the others of a batch, also behind"),
    (lambda m, x: x.index_put((x > 0,), torch.tensor(1.0)), "x.is_row. = values, got another change of elements"),
])
def test_of_some_rows_others_are_refused(function, expected):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.torch.export(Function(function), torch.randn(6, 4))


def changed(mask, values):
    """A model that changes the rows of a mask, its parts being what the two functions make of them."""
    def forward(m, x):
        out = torch.full((6, 4), 0.5)
        kept = mask(x)
        out[kept] = values(m, x, kept)
        return out
    return Function(forward, layer=nn.Linear(4, 4))


def first(x):
    return x[:, 0] > 0


def long_chain(x):
    """Of which each value is read twice."""
    z = x[:, 0]
    for _ in range(12):
        z = torch.relu(z) - z
    return z > 0


def of_some_of_them(m, x, kept):
    made, is_large = torch.zeros_like(x[kept]), x[kept][:, 1] > 0
    made[is_large] = m.layer(x[kept][is_large])
    return made + x[kept]


@pytest.mark.parametrize("mask, values", [
    (first, lambda m, x, kept: m.layer(x[kept])),
    (first, lambda m, x, kept: m.layer(x[first(x)])),
    (lambda x: ~first(x), lambda m, x, kept: m.layer(x[~first(x)]) + x[kept]),
    (lambda x: first(x) & (x[:, 1] != 0), lambda m, x, kept: x[(x[:, 0] > 0) & (x[:, 1] != 0)] * 2),
    (long_chain, lambda m, x, kept: x[long_chain(x)]),
    (first, of_some_of_them)])
def test_rows_that_are_changed_by_a_mask(mask, values):
    check(changed(mask, values), torch.randn(6, 4))


def test_rows_that_are_changed_by_several_masks():
    def forward(m, x):
        out, kept = x.clone(), first(x)
        out[kept] = m.layer(x[kept])
        out[~kept] = m.layer(x[~kept]) * 2
        out[x[:, 1] > 0] = out[x[:, 1] > 0] - 1
        return out
    check(Function(forward, layer=nn.Linear(4, 4)), torch.randn(6, 4))


@pytest.mark.parametrize("values", [
    lambda m, x, kept: m.layer(x[x[:, 1] > 0]),
    lambda m, x, kept: x[~kept],
    lambda m, x, kept: x[kept] + x[x[:, 0] >= 0],
    lambda m, x, kept: x[kept][x[kept][:, 1] > 0]])
def test_values_of_the_rows_of_another_mask_are_refused(values):
    x = torch.tensor([1.0, 1, 1, -1, -1, -1])[:, None] * torch.rand(6, 4)
    with pytest.raises(wr.InvalidArgument, match=r"f\(x\[is_row\]\), got of rows of another mask"):
        wr.torch.export(changed(first, values), x)


def test_loops_over_packed_events_are_refused():
    def steps(gru, x, history):
        made = rnn.pack_padded_sequence(x, count(history), batch_first=True, enforce_sorted=False)
        assert isinstance(made, rnn.PackedSequence), "expected a PackedSequence"
    with pytest.raises(wr.InvalidArgument, match="packed sequences are taken by nn.GRU and pad_packed_sequence, got"):
        wr.torch.export(of_history(steps), (ids(20), histories()), axes=AXES)
