# SPDX-License-Identifier: Apache-2.0
"""Models of torchrec, exported as they are."""

import numpy as np
import pytest
import references
import torch
from torch import nn

import warprank as wr
import warprank.torch

torchrec = pytest.importorskip("torchrec", exc_type=ImportError)
from torchrec import (EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig,  # noqa: E402
                      KeyedJaggedTensor, PoolingType)
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection  # noqa: E402

B, CLOSE = 6, 1e-5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def keyed(keys, high=20, least=0, most=3, weighted=False, rows=B):
    """A row has 0 to 3 ids of each key."""
    lengths = torch.randint(least, most + 1, (len(keys) * rows,))
    count = int(lengths.sum())
    return KeyedJaggedTensor(keys=keys, values=torch.randint(0, high, (count,)), lengths=lengths,
                             weights=torch.rand(count) if weighted else None)


def collection(*tables, weighted=False):
    return EmbeddingBagCollection(is_weighted=weighted, tables=[
        EmbeddingBagConfig(name=name, embedding_dim=8, num_embeddings=20, feature_names=keys, pooling=pooling)
        for name, keys, pooling in tables])


KEYS = ["city", "tags", "film"]
TABLES = [("places", ["city"], PoolingType.SUM), ("words", ["tags"], PoolingType.MEAN),
          ("films", ["film"], PoolingType.SUM)]


def check(module, batch, **options):
    exported = wr.torch.export(module, batch, **options)
    for name, difference in exported.check().items():
        assert difference.largest <= CLOSE, (name, difference)
    return exported


MODELS = {
    "dlrm": lambda c: DLRM(c, 5, [16, 8], [16, 8, 1]),
    "dcn": lambda c: DLRM_DCN(c, 5, [16, 8], [16, 8, 1], dcn_num_layers=2, dcn_low_rank_dim=4),
    "projection": lambda c: DLRM_Projection(c, 5, [16, 8], [16, 8, 1], interaction_branch1_layer_sizes=[16, 16],
                                            interaction_branch2_layer_sizes=[16, 16]),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("least, most", [(0, 3), (1, 1)])
def test_models_of_torchrec(model, least, most, tmp_path):
    module = MODELS[model](collection(*TABLES))
    batch = torch.randn(B, 5), keyed(KEYS, least=least, most=most)
    exported = check(module, batch, outputs=["ctr"])
    prefix = "sparse_arch.embedding_bag_collection.embedding_bags."
    assert set(exported.tables) == {prefix + name for name, *_ in TABLES}
    plan = wr.compile(exported.graph)
    if model == "dlrm":
        assert plan.num_steps == wr.compile(references.dlrm_of_bags).num_steps
    assert {i.name for i in plan.ids} == set(KEYS) and {d.name for d in plan.dense} == {"dense_features"}
    assert ('"op": "dot"' in plan.graph.to_json()) == (model != "dcn")
    assert ("inter_arch.crossnet.1.v.weight" in exported.weights) == (model == "dcn")
    other = torch.randn(9, 5), keyed(KEYS, rows=9)
    assert exported.check(other)["ctr"].largest <= CLOSE
    exported.save(tmp_path / "model")
    assert wr.load(tmp_path / "model").plan.num_steps == plan.num_steps
    assert "forward" not in vars(module)


class TwoTowers(nn.Module):
    """The ids of a user and those of a film, without a number beside them."""

    def __init__(self, weighted=False):
        super().__init__()
        self.user = collection(("places", ["city", "home"], PoolingType.SUM), ("words", ["tags"], PoolingType.MEAN))
        self.item = collection(("films", ["film"], PoolingType.SUM), weighted=weighted)
        self.user_tower, self.item_tower = nn.Linear(24, 4), nn.Linear(8, 4)

    def forward(self, user, item):
        item = self.item_tower(self.item(item).values())
        return {"score": (self.user_tower(self.user(user).values()) * item).sum(-1)}


USER = ["city", "home", "tags"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("axes", [None, {"user": "user", "item": "user/item"},
                                  {"city": "user", "home": "user", "tags": "user", "film": "user/item"}])
def test_users_and_items(weighted, axes):
    batch = {"user": keyed(USER), "item": keyed(["film"], weighted=weighted)}
    exported = check(TwoTowers(weighted), batch, axes=axes)
    plan = wr.compile(exported.graph)
    assert {i.name for i in plan.ids} == {*USER, "film"} and len(plan.tables) == 3
    assert {d.name for d in plan.dense} == ({"film.weights"} if weighted else set())
    assert exported.check({"user": keyed(USER, rows=3), "item": keyed(["film"], weighted=weighted, rows=3)}
                          )["score"].largest <= CLOSE
    if axes is not None:
        assert [a.name for a in plan.axes] == ["user", *USER, "item", "film"]
        assert {t.name for t in plan.tables} == {f"{part}.embedding_bags.{name}" for part, name in (
            ("user", "places"), ("user", "words"), ("item", "films"))}


def test_keys_and_inputs_of_any_name():
    module = DLRM(collection(("t", ["f:1", "f.2", "1st", "lambda"], PoolingType.SUM)), 5, [8], [8, 1])
    exported = check(module, (torch.randn(B, 5), keyed(["f:1", "f.2", "1st", "lambda"])))
    assert {i.name for i in wr.compile(exported.graph).ids} == {"f:1", "f.2", "1st", "lambda"}


def test_one_id_for_each_row():
    """As many ids as rows, which would be an input of the batch where tensors are given."""
    batch = torch.randn(B, 5), keyed(KEYS, least=1, most=1)
    data, _ = check(MODELS["dlrm"](collection(*TABLES)), batch).columns(batch)
    assert all(np.array_equal(data[key].offsets, np.arange(B + 1)) for key in KEYS)


class Histories(nn.Module):
    """What a user saw, and what was said of it, beside bags of the user's and the film that is asked for."""

    def __init__(self, length, pool):
        super().__init__()
        self.events = EmbeddingCollection(tables=[
            EmbeddingConfig(name="films", embedding_dim=8, num_embeddings=20, feature_names=["seen", "film"]),
            EmbeddingConfig(name="stars", embedding_dim=8, num_embeddings=20, feature_names=["stars"])])
        self.bags = collection(("words", ["tags"], PoolingType.SUM))
        self.head, self.length, self.pool = nn.Linear(24, 1), length, pool

    def forward(self, features):
        made = self.events(features)
        seen, stars = (made[key].to_padded_dense(self.length) for key in ("seen", "stars"))
        film = made["film"].to_padded_dense(1).squeeze(1)
        pooled = self.pool(film, seen + stars, made["seen"].lengths())
        return self.head(torch.cat([pooled, film, self.bags(features).values()], 1)).squeeze(1)


def attended(film, events, lengths):
    scores = torch.einsum("bd,bld->bl", film, events)
    is_event = torch.arange(events.shape[1])[None] < lengths[:, None]
    return torch.einsum("bl,bld->bd", torch.softmax(scores.masked_fill(~is_event, -1e9), 1), events)


def histories(rows=B, most=4, length_of_film=1, **high):
    count = torch.randint(1, most + 1, (rows,))
    lengths = torch.cat([count, count, torch.full((rows,), length_of_film), torch.randint(0, 3, (rows,))])
    return KeyedJaggedTensor(keys=["seen", "stars", "film", "tags"], lengths=lengths,
                             values=torch.randint(0, high.get("high", 20), (int(lengths.sum()),)))


@pytest.mark.parametrize("length", [None, 3, 5])
@pytest.mark.parametrize("pool", [lambda film, events, lengths: events.sum(1), attended])
def test_sequences(length, pool, tmp_path):
    """Padded by the module, or cut: of no request more than the first events that it takes."""
    axes = {"seen": "user/history[]", "stars": "user/history[]", "film": "user", "tags": "user"}
    exported = check(Histories(length, pool), histories(), axes=axes, outputs=["ctr"])
    plan = wr.compile(exported.graph)
    assert {a.name for a in plan.axes} == {"user", "history", "tags"}
    assert set(exported.tables) == {"events.embeddings.films", "events.embeddings.stars", "bags.embedding_bags.words"}
    assert {i.name for i in plan.ids} == {"seen", "stars", "film", "tags"} and not plan.dense
    other = histories(9, 7)
    assert exported.check(other)["ctr"].largest <= CLOSE
    data, offsets = exported.columns(other)
    most = 7 if length is None else length
    wanted = other["seen"].lengths().clamp(max=most)
    assert np.diff(data["seen"].offsets).tolist() == wanted.tolist()
    exported.save(tmp_path / "model")
    assert wr.load(tmp_path / "model").plan.num_steps == plan.num_steps
    with pytest.raises(wr.InvalidArgument, match="input 'seen': expected ids of 0 to 19, the rows of table 'events."):
        exported.check(histories(high=500))
    with pytest.raises(wr.InvalidArgument, match="input 'film': expected one id for each row, got 2 in row 0"):
        exported.check(histories(length_of_film=2))
    uneven = histories()
    uneven = KeyedJaggedTensor(keys=uneven.keys(), values=uneven.values(), lengths=torch.cat([
        uneven.lengths()[:B], uneven.lengths()[:B].flip(0), uneven.lengths()[2 * B:]]))
    with pytest.raises(wr.InvalidArgument, match="input 'stars': expected as many events in each row as 'seen' has"):
        exported.check(uneven)


@pytest.mark.parametrize("use, message", [
    (lambda made: made["film"].values().sum(-1), "NotImplementedError: of what an EmbeddingCollection gives, .* not v"),
    (lambda made: made["film"].to_padded_dense(3).sum((1, 2)) + made["film"].to_padded_dense(4).sum((1, 2)),
     "key 'film': expected one desired_length, 3, got 4"),
])
def test_what_cannot_be_expressed_of_sequences(use, message):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.events = EmbeddingCollection(tables=[
                EmbeddingConfig(name="films", embedding_dim=8, num_embeddings=20, feature_names=["film"])])

        def forward(self, features):
            return use(self.events(features))
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(Module(), keyed(["film"]))
    assert torchrec.modules.embedding_modules.JaggedTensor is torchrec.JaggedTensor


def test_keys_of_bags_and_of_sequences():
    module = Histories(3, attended)
    module.bags = collection(("words", ["tags", "seen"], PoolingType.SUM))
    with pytest.raises(wr.InvalidArgument, match="key 'seen': expected a key of EmbeddingBagCollections or of "):
        wr.torch.export(module, histories())


class Uses(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.tables, self.use = collection(("t", ["city"], PoolingType.SUM)), use

    def forward(self, x, features):
        return self.use(self.tables, x, features)


def test_what_is_wrong_of_keys(tmp_path):
    module = MODELS["dlrm"](collection(*TABLES))
    dense, features = torch.randn(B, 5), keyed(KEYS)
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(module, (dense, features), axes={"city": "user", "fil": "user"})
    told = str(raised.value)
    assert "axes: input 'dense_features': expected its axis, got none" in told
    assert "axes: input 'tags': expected its axis" in told and "axes: input 'film': expected its axis" in told
    assert "axes: 'fil': expected an input of the module, or a key, got none of that name (did you mean 'film'?)" in told
    with pytest.raises(wr.InvalidArgument, match="input 'dense_features': expected 6 rows, as the keys have, got shape"):
        wr.torch.export(module, (torch.randn(5, 5), features))
    exported = wr.torch.export(module, (dense, features))
    with pytest.raises(wr.InvalidArgument, match="expected keys city, tags, film, got city, film, tags"):
        exported.score((dense, keyed(["city", "film", "tags"])))
    with pytest.raises(wr.InvalidArgument) as raised:
        exported.check((features, dense))
    assert sorted((p.what, p.expected, p.got) for p in raised.value.problems) == [
        ("batch: input 'dense_features'", "a tensor", "KeyedJaggedTensor"),
        ("batch: input 'sparse_features'", "a KeyedJaggedTensor", "Tensor")]
    with pytest.raises(wr.InvalidArgument) as raised:
        exported.save(tmp_path / "model", (dense, keyed(KEYS, high=300)))
    assert {p.what for p in raised.value.problems} == {f"batch: input '{key}'" for key in KEYS}
    prefix = "sparse_arch.embedding_bag_collection.embedding_bags."
    assert f"ids of 0 to 19, the rows of table '{prefix}films', got" in str(raised.value)
    assert not list(tmp_path.iterdir())
    both = TwoTowers()
    with pytest.raises(wr.InvalidArgument, match="input 'item': expected 6 rows, as the first keys have, got 4"):
        wr.torch.export(both, (keyed(USER), keyed(["film"], rows=4)))
    with pytest.raises(wr.InvalidArgument, match="key 'film': expected names that are not those of others"):
        wr.torch.export(both, (keyed([*USER, "film"]), keyed(["film"])))


@pytest.mark.parametrize("use, message", [
    (lambda t, x, f: x + f.lengths().sum(), "torch.export of Uses: expected .*AttributeError.*'lengths'"),
    (lambda t, x, f: x + f["city"].values().float().sum(), "expected .*ids can only be looked up"),
    (lambda t, x, f: x * t(f).values().cumsum(0), "aten.cumsum.default: expected each row made of itself"),
])
def test_what_cannot_be_expressed_of_keys(use, message):
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(Uses(use), (torch.randn(B, 8), keyed(["city"])))
