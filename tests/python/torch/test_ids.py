# SPDX-License-Identifier: Apache-2.0
"""Ids that are columns of a matrix, of integers or of numbers, and share a table; and layers that go with them."""

import numpy as np
import pytest
import torch
from test_export import Function, check, ids
from torch import nn

import warprank as wr
from warprank.torch import export

FIELDS, ROWS = [10, 20, 5, 30], 8


def exact(module, batch, **options):
    made = export(module.eval(), batch, **options)
    scores = made.score(batch)
    for name, difference in made.check().items():
        assert difference.largest <= 2e-6 * max(1, np.abs(scores[name]).max()), name
    return made


def matrix(fields=FIELDS, rows=ROWS):
    return torch.stack([torch.randint(0, field, (rows,)) for field in fields], 1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


class Offsets(nn.Module):
    """Fields that share a table, one behind the other."""

    def __init__(self, offsets=None, turned=False, rows=sum(FIELDS)):
        super().__init__()
        self.offsets = np.array((0, *np.cumsum(FIELDS)[:-1])) if offsets is None else np.array(offsets)
        self.turned = turned
        self.table, self.first = nn.Embedding(rows, 6), nn.Embedding(rows, 1)
        self.head = nn.Linear(6 * len(FIELDS), 1)

    def forward(self, x):
        offsets = x.new_tensor(self.offsets).unsqueeze(0)
        x = offsets + x if self.turned else x + offsets
        fields = self.table(x)
        crossed = fields.sum(1) ** 2 - (fields ** 2).sum(1)
        return self.head(fields.flatten(1)).squeeze(1) + self.first(x).sum((1, 2)) + 0.5 * crossed.sum(1)


@pytest.mark.parametrize("turned", [False, True])
def test_fields_that_share_a_table(turned):
    made = exact(Offsets(turned=turned), matrix())
    assert {name: len(array) for name, array in made.tables.items() if name.startswith("table")} == {
        "table.rows_0": 10, "table.rows_10": 20, "table.rows_30": 5, "table.rows_35": 30}
    assert [i.name for i in wr.compile(made.graph).ids] == ["x.0", "x.1", "x.2", "x.3"]
    wrong = matrix()
    wrong[2, 1] = 20  # the next field's row in the module
    with pytest.raises(wr.InvalidArgument, match="ids of 0 to 19, the rows of table 'table.rows_10', got 20"):
        made.columns(wrong)


def test_fields_in_another_order_and_two_with_the_same_rows():
    made = exact(Offsets([35, 5, 35, 0], rows=80), matrix([5, 30, 20, 5]))
    assert {name: len(array) for name, array in made.tables.items() if name.startswith("table")} == {
        "table.rows_35": 45, "table.rows_5": 30, "table.rows_0": 5}


def test_offsets_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(30, 1)

        def forward(self, x):
            return self.table((x + torch.tensor([0, 5])) + torch.tensor([[2, 4]])).sum((1, 2))
    made = exact(Twice(), matrix([3, 21]))
    assert sorted(made.tables) == ["table.rows_2", "table.rows_9"]

    class Multiplied(Twice):
        def forward(self, x):
            return self.table((x + torch.tensor([0, 5])) * 2 + 1).sum((1, 2))
    made = exact(Multiplied(), matrix([3, 9]))
    assert sorted(made.tables) == ["table.rows_11_by_2", "table.rows_1_by_2"]


class FieldAware(nn.Module):
    """A row for each id and field that it meets, side by side."""

    def __init__(self, fields=3):
        super().__init__()
        self.fields, self.table = fields, nn.Embedding(7 * fields, 4)

    def forward(self, x):
        met = self.table(x.unsqueeze(1) * self.fields + torch.arange(self.fields))
        return (met[:, 0] * met[:, 1] + met[:, 2]).sum(1)


def test_rows_side_by_side():
    made = exact(FieldAware(), torch.randint(0, 7, (ROWS,)))
    assert {name: len(array) for name, array in made.tables.items()} == {
        "table.rows_0_by_3": 7, "table.rows_1_by_3": 7, "table.rows_2_by_3": 7}
    assert [i.name for i in wr.compile(made.graph).ids] == ["x"]
    with pytest.raises(wr.InvalidArgument, match="ids of 0 to 6, the rows of table 'table.rows_0_by_3', got 7"):
        made.columns(torch.tensor([7, 0]))

    class Rows(FieldAware):
        def forward(self, x):
            return super().forward(x * torch.arange(1, 1 + len(x)))
    class Nothing(FieldAware):
        def forward(self, x):
            return super().forward(x * torch.tensor(0))
    for module in (Rows(), Nothing()):
        with pytest.raises(wr.InvalidArgument,
                           match="times and plus whole numbers, for each column, got 'mul' of int64"):
            export(module.eval(), torch.zeros(ROWS, dtype=torch.long))


def test_offsets_that_are_none_are_told():
    def told(offsets):
        with pytest.raises(wr.InvalidArgument) as raised:
            export(Offsets(offsets).eval(), matrix())
        return str(raised.value)
    for offset in (65, 70):
        assert f"expected offsets below 65, the rows of the table, got {offset}" in told([0, 10, 30, offset])
    assert "ids times and plus whole numbers, for each column, got 'add' of int64 [1, 4]" in told([0, -1, 2, 3])

    class Fractions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(65, 1)

        def forward(self, x):
            return self.table((x + torch.tensor([0.5, 1, 2, 3])).long()).sum((1, 2))
    with pytest.raises(wr.InvalidArgument, match="times and plus whole numbers, for each column, got 'add' of float32"):
        export(Fractions().eval(), matrix())


def test_ids_that_are_columns_of_events_are_refused():
    class Events(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, x):
            return self.table(x[:, :, 0].long()).sum(1) + x[:, :, 1:].sum(1)
    with pytest.raises(wr.InvalidArgument, match="ids that are columns of an input, got numbers that are computed"):
        export(Events().eval(), torch.randint(0, 10, (ROWS, 3, 2)).float(), axes={"x": "user/history[]"})


class Mixed(nn.Module):
    """Ids and numbers as columns of one matrix of numbers."""

    def __init__(self, kind=torch.long):
        super().__init__()
        self.kind = kind
        self.tables = nn.ModuleList(nn.Embedding(field, 4) for field in (10, 20))
        self.head = nn.Linear(8 + 3, 1)

    def forward(self, x):
        ids = [x[:, i:i + 1].to(self.kind) for i in (0, 3)]
        embedded = torch.cat([table(i) for table, i in zip(self.tables, ids)], -1)
        return torch.sigmoid(self.head(torch.cat([embedded.flatten(1), x[:, 1:3], x[:, 4:]], 1)))


def mixed(rows=ROWS):
    x = torch.randn(rows, 5)
    x[:, 0], x[:, 3] = torch.randint(0, 10, (rows,)), torch.randint(0, 20, (rows,))
    return x


@pytest.mark.parametrize("kind", [torch.long, torch.int])
def test_ids_among_numbers(kind, tmp_path):
    made = exact(Mixed(kind), mixed())
    plan = wr.compile(made.graph)
    assert [i.name for i in plan.ids] == ["x.0", "x.3"]
    assert [(d.name, d.width) for d in plan.dense] == [("x", 3)]
    data, _ = made.columns(batch := mixed())
    np.testing.assert_array_equal(data["x.3"], batch[:, 3].long())
    np.testing.assert_array_equal(data["x"], batch[:, [1, 2, 4]])
    made.save(tmp_path / "model")
    scores = wr.load(tmp_path / "model").score(data)["output"]
    np.testing.assert_allclose(scores, made.score(batch)["output"], rtol=0, atol=1e-7)


def test_ids_among_numbers_that_do_not_fit_are_told():
    made = exact(Mixed(), mixed())
    batch = mixed()
    batch[1, 0], batch[4, 3] = 2.5, 20
    with pytest.raises(wr.InvalidArgument) as raised:
        made.columns(batch)
    assert [(p.expected, p.got) for p in raised.value.problems] == [
        ("ids in column 0", "2.5"), ("ids of 0 to 19, the rows of table 'tables.1'", "20")]
    batch[1, 0], batch[4, 3] = float("nan"), 3
    with pytest.raises(wr.InvalidArgument, match="ids in column 0, got nan"):
        made.columns(batch)


def test_columns_that_are_ids_alone():
    class Ids(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 1)

        def forward(self, x):
            return self.table(x.long()).sum((1, 2))
    made = exact(Ids(), matrix([20, 20]).float())
    assert [i.name for i in wr.compile(made.graph).ids] == ["x.0", "x.1"] and not wr.compile(made.graph).dense


def test_a_column_that_is_both_is_refused():
    class Both(Mixed):
        def forward(self, x):
            return super().forward(x) + x[:, 0:1]
    with pytest.raises(wr.InvalidArgument, match="columns of 'x' that are ids, or numbers, got one that is both"):
        export(Both().eval(), mixed())

    class Computed(Mixed):
        def forward(self, x):
            return super().forward(x) + self.tables[0]((x[:, 1] * 2).long()).sum(1, keepdim=True)
    with pytest.raises(wr.InvalidArgument, match="expected floating-point numbers, got a conversion to"):
        export(Computed().eval(), mixed())


def test_bags_of_columns_are_refused():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.EmbeddingBag(20, 1)

        def forward(self, x):
            return self.table(x[:, :2].long()).squeeze(1)
    with pytest.raises(wr.InvalidArgument, match="expected a bag of ids that are an input, got columns of 'x'"):
        export(Bag().eval(), mixed())


class Fields(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3) * 0.3)
        self.cube = nn.Parameter(torch.randn(2, 5, 3) * 0.3)
        self.one, self.plane = nn.Conv1d(4, 6, 1), nn.Conv2d(4, 2, 1, bias=False)
        self.wide = nn.Conv1d(4, 6, 2)
        self.of = forward

    def forward(self, x):  # [B, 4 fields, 5]
        return self.of(self, x).flatten(1).sum(1)


@pytest.mark.parametrize("forward", [
    lambda m, x: torch.tensordot(x, m.weight, dims=([-1], [0])) * 2,
    lambda m, x: torch.tensordot(x.transpose(1, 2), m.weight, dims=([1], [0])).relu(),
    lambda m, x: torch.tensordot(x, m.cube, dims=([2], [1])).relu(),
    lambda m, x: torch.tensordot(x.reshape(-1, 2, 2, 5), m.cube, dims=([1, 3], [0, 1])).relu(),
    lambda m, x: torch.tensordot(x, m.weight[:, 0], dims=([2], [0])).relu(),
    lambda m, x: m.one(x).relu(),
    lambda m, x: m.plane(x.unflatten(2, (5, 1))).relu(),
    lambda m, x: m.wide(x),
    lambda m, x: nn.functional.conv1d(x, m.one.weight, padding=1),
    lambda m, x: torch.expm1(x * 0.1),
    lambda m, x: nn.functional.dropout(x, 0.0),
    lambda m, x: x + x.new_zeros(len(x), 1, 1) + x.new_full((1,), 2.0) * x.new_ones(1)])
def test_layers_by_another_name(forward):
    exact(Fields(forward), torch.randn(ROWS, 4, 5))


@pytest.mark.parametrize("is_layer, forward", [
    (True, lambda m, x: (x[:, :, None] * m.weight[0, :, None]).sum(1).sum(1)),  # of three constants, for each column
    (True, lambda m, x: (x[:, 0, :, None] * m.weight).sum(1)),
    (True, lambda m, x: ((x[:, :2, None] * m.cube.transpose(1, 2)).sum(-1)).relu()),
    (False, lambda m, x: (x[:, 0, :, None] * m.weight + m.weight).sum(1)),
    (False, lambda m, x: (x * x).sum(1))])
def test_sums_of_products_with_constants_are_layers(is_layer, forward):
    made = exact(Fields(lambda m, x: forward(m, x).reshape(len(x), -1)), torch.randn(ROWS, 4, 5))
    assert ('"op": "linear"' in made.graph.to_json()) == is_layer


@pytest.mark.parametrize("forward, told", [
    (lambda m, x: torch.tensordot(x, x, dims=([2], [2])), "a batch and a parameter"),
    (lambda m, x: nn.functional.dropout(x, 0.3), "dropout that is off in evaluation")])
def test_layers_that_are_others_are_refused(forward, told):
    with pytest.raises(wr.InvalidArgument, match=told):
        export(Fields(forward).eval(), torch.randn(ROWS, 4, 5))


def test_outputs_in_dicts_of_lists():
    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(3, 1) for _ in range(3))

        def forward(self, x):
            a, b, c = (head(x) for head in self.heads)
            return {"tasks": [a, b], "all": {"last": c}}
    made = exact(Tasks(), torch.randn(ROWS, 3))
    assert made.outputs == ["tasks_0", "tasks_1", "all_last"]


class OfDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.head = nn.Embedding(10, 4), nn.Linear(6, 1)

    def forward(self, inputs):
        return self.head(torch.cat([self.users(inputs["user"]), inputs["age"], inputs["price"]], 1))


def of_dict():
    return {"user": torch.randint(0, 10, (ROWS,)), "age": torch.randn(ROWS, 1), "price": torch.randn(ROWS, 1)}


def test_a_dict_that_is_the_one_argument():
    axes = {"user": "user", "age": "user", "price": "user/item"}
    made = exact(OfDict(), of_dict(), axes=axes)
    plan = wr.compile(made.graph)
    assert [i.name for i in plan.ids] + [d.name for d in plan.dense] == ["user", "age", "price"]
    batch = of_dict()
    scores = made.score(batch)["output"]
    other_order = {"price": batch["price"], "user": batch["user"], "age": batch["age"]}
    np.testing.assert_array_equal(made.score(other_order)["output"], scores)
    assert made.check(other_order)["output"].largest <= 1e-6
    del other_order["age"]
    with pytest.raises(wr.InvalidArgument, match="batch: input 'age': expected a tensor, got none"):
        made.score(other_order)
    with pytest.raises(wr.InvalidArgument, match="batch: 'prize': expected an input, as the example has, got none of "
                       "that name .did you mean 'price'"):
        made.score(batch | {"prize": batch["price"]})
    exact(OfDict(), {"inputs": of_dict()})


def test_a_constant_beside_ids_that_are_columns():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 3)

        def forward(self, x):
            fields = self.table(x[:, 0].long()) * x[:, 1:]
            return torch.softmax(fields.masked_fill(torch.tensor([True, False, False]), -torch.inf), 1)
    exact(Masked(), torch.cat([matrix([9]).float(), torch.randn(ROWS, 3)], 1))


class Named:
    """As a library's own class of a batch: no dict, but iterated over by names."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __iter__(self):
        return iter(self.tensors)

    def __getitem__(self, which):
        return self.tensors[which] if isinstance(which, str) else Named({n: t[which] for n, t in self.tensors.items()})


def test_an_object_that_has_tensors_by_name():
    batch = of_dict()
    made = exact(OfDict(), Named(batch))
    scores = made.score(batch)["output"]
    np.testing.assert_array_equal(made.score(Named(batch))["output"], scores)
    np.testing.assert_array_equal(made.score(Named(batch)[1:2])["output"], scores[1:2])
    with pytest.raises(wr.InvalidArgument, match="batch: input 'age': expected a tensor, got none"):
        made.score(Named({"user": batch["user"], "price": batch["price"]}))


def test_ids_beside_lengths_in_one_matrix():
    """As deepctr-torch's DIN takes them, of which a history and its length are columns."""
    def scores(m, film, history, length):
        x = torch.cat([film[:, None], history, length[:, None]], 1)
        is_event = torch.arange(4) < x[:, 5:6].long()
        return (m.films(x[:, 1:5].long()) * is_event.unsqueeze(-1)).sum(1).sum(-1) + m.films(x[:, 0].long()).sum(-1)
    length = torch.tensor([0, 1, 4, 2, 3, 4, 0, 1])
    batch = (torch.randint(0, 9, (ROWS,)), torch.randint(0, 9, (ROWS, 4)), length)
    exact(Function(scores, films=nn.Embedding(9, 3)), batch,
          axes={"batch_0": "row", "batch_1": "row/seen[]", "batch_2": "row/seen[]"})

    def of_lengths(m, film, history, length):
        return m.films(torch.cat([film[:, None], length[:, None]], 1)).sum(1).sum(-1)

    def arithmetic(m, film, history, length):
        return scores(m, film, history, length) + torch.cat([film[:, None], length[:, None]], 1)[:, 0] * 0.5
    for function, message in ((of_lengths, "expected ids that are an input, got numbers that are computed"),
                              (arithmetic, "ids can only be looked up, and compared with padding, got arithmetic on ids")):
        with pytest.raises(wr.InvalidArgument, match=message):
            exact(Function(function, films=nn.Embedding(9, 3)), batch,
                  axes={"batch_0": "row", "batch_1": "row/seen[]", "batch_2": "row/seen[]"})


@pytest.mark.parametrize("function", [
    lambda m, x: m.bias[x], lambda m, x: m.matrices[x].flatten(1), lambda m, x: torch.index_select(m.rows, 0, x)])
def test_parameters_by_ids(function):
    check(Function(function, bias=nn.Parameter(torch.randn(9)), matrices=nn.Parameter(torch.randn(9, 2, 3)),
                   rows=nn.Parameter(torch.randn(9, 4))), (ids(9),))


def test_rounded_quotients():
    module = Function(lambda m, x: m.films(x // 2), films=nn.Embedding(5, 2))
    with pytest.raises(wr.InvalidArgument, match="a rounded one, as of ids, as an input of its own"):
        wr.torch.export(module, (ids(9),))


def test_numbers_that_fp32_does_not_hold():
    seconds = torch.arange(6, dtype=torch.float64) * 100
    exported = check(Function(lambda m, now, shown: (now - shown).float()), (seconds + 900, seconds))
    late = 1.7e9 + seconds
    with pytest.raises(wr.InvalidArgument, match="input 'batch_0': expected numbers that FP32 holds, such as the diff"):
        exported.score((late + 900, late))


def test_outputs_of_events_cannot_be_compared():
    history = torch.tensor([[3, 4, 0], [5, 0, 0]])
    exported = wr.torch.export(
        Function(lambda m, h: m.films(h).sum(2).masked_fill(h == 0, -1e9).softmax(1),
                 films=nn.Embedding(9, 2, padding_idx=0)), (history,), {"batch_0": "user/history[]"})
    with pytest.raises(wr.InvalidArgument, match="output 'output': expected values of rows, .* got 3 values of events"):
        exported.check()


def test_ids_that_fp32_does_not_hold():
    """In a matrix of float64, beside a number."""
    rows = 2**24 + 3
    table = nn.Embedding(rows, 1, _weight=torch.arange(rows, dtype=torch.float32).remainder(7).unsqueeze(1))
    module = Function(lambda m, x: m.films(x[:, 0].long()) * x[:, 1:].float(), films=table)
    exact(module, (torch.tensor([[rows - 2.0, 0.5], [1.0, 2.0], [rows - 1.0, -1.0]], dtype=torch.float64),))
