# SPDX-License-Identifier: Apache-2.0
"""Ranking models as users of PyTorch write them: none knows of warprank."""

import torch
from torch import nn


class DeepFM(nn.Module):
    """Guo et al. 2017: a table and a weight for each field, FM over the embeddings, an MLP beside it."""

    def __init__(self, vocabularies, num_dense, dim=8, hidden=(32, 16)):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, dim) for n in vocabularies)
        self.first_order = nn.ModuleList(nn.Embedding(n, 1) for n in vocabularies)
        self.dense_linear = nn.Linear(num_dense, 1)
        layers = []
        width = len(vocabularies) * dim + num_dense
        for size in hidden:
            layers += [nn.Linear(width, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(0.2)]
            width = size
        self.deep = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, sparse, dense):
        fields = torch.stack([table(sparse[:, i]) for i, table in enumerate(self.embeddings)], dim=1)
        linear = sum(table(sparse[:, i]) for i, table in enumerate(self.first_order)) + self.dense_linear(dense)
        square_of_sum = fields.sum(dim=1) ** 2
        sum_of_square = (fields ** 2).sum(dim=1)
        fm = 0.5 * (square_of_sum - sum_of_square).sum(dim=1, keepdim=True)
        deep = self.deep(torch.cat([fields.flatten(1), dense], dim=1))
        return torch.sigmoid((linear + fm + deep).squeeze(1))


class CrossV2(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x0):
        x = x0
        for layer in self.layers:
            x = x0 * layer(x) + x
        return x


class DCNv2(nn.Module):
    """Wang et al. 2021, parallel, with inputs by name and a bag of tags."""

    def __init__(self, num_users=50, num_films=80, num_tags=20, dim=8):
        super().__init__()
        self.user = nn.Embedding(num_users, dim)
        self.film = nn.Embedding(num_films, dim, padding_idx=0)
        self.tags = nn.EmbeddingBag(num_tags, dim, mode="mean", padding_idx=0)
        self.norm = nn.LayerNorm(3)
        width = 3 * dim + 3
        self.cross = CrossV2(width, 3)
        self.deep = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 16), nn.SiLU())
        self.head = nn.Linear(width + 16, 2)

    def forward(self, user_id, film_id, tags, context):
        x = torch.cat([self.user(user_id), self.film(film_id), self.tags(tags), self.norm(context)], dim=-1)
        logits = self.head(torch.cat([self.cross(x), self.deep(x)], dim=-1))
        ctr, like = logits.unbind(-1)
        return {"ctr": torch.sigmoid(ctr), "like": torch.sigmoid(like)}


class DLRM(nn.Module):
    """Naumov et al. 2019: the products of all pairs of fields, picked by indices."""

    def __init__(self, vocabularies, num_dense, dim=8):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum") for n in vocabularies)
        self.bot_l = nn.Sequential(nn.Linear(num_dense, 16), nn.ReLU(), nn.Linear(16, dim), nn.ReLU())
        num_fields = len(vocabularies) + 1
        self.top_l = nn.Sequential(nn.Linear(dim + num_fields * (num_fields - 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1),
                                   nn.Sigmoid())

    def forward(self, dense_x, *bags):
        x = self.bot_l(dense_x)
        ly = [table(bag) for table, bag in zip(self.emb_l, bags)]
        batch_size, d = x.shape
        T = torch.cat([x] + ly, dim=1).view((batch_size, -1, d))
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        _, ni, nj = Z.shape
        li = torch.tensor([i for i in range(ni) for j in range(i)])
        lj = torch.tensor([j for i in range(nj) for j in range(i)])
        R = torch.cat([x] + [Z[:, li, lj]], dim=1)
        return self.top_l(R)


class Dice(nn.Module):
    """As in FuxiCTR and DeepCTR-Torch."""

    def __init__(self, width, eps=1e-9):
        super().__init__()
        self.bn = nn.BatchNorm1d(width, eps=eps, affine=False)
        self.alpha = nn.Parameter(torch.rand(width))

    def forward(self, x):
        p = torch.sigmoid(self.bn(x))
        return p * x + self.alpha * (1 - p) * x


class ActivationUnit(nn.Module):
    """The score of each event: an MLP of [q, k, q - k, q * k], over rows of all events together."""

    def __init__(self, dim, hidden=(16, 8)):
        super().__init__()
        layers, width = [], 4 * dim
        for size in hidden:
            layers += [nn.Linear(width, size), Dice(size)]
            width = size
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, query, keys, mask):
        batch, length, dim = keys.shape
        queries = query.unsqueeze(1).expand(-1, length, -1)
        x = torch.cat([queries, keys, queries - keys, queries * keys], dim=-1)
        scores = self.mlp(x.view(-1, 4 * dim)).view(batch, length)
        scores = scores * mask.float()
        return (scores.unsqueeze(-1) * keys).sum(dim=1)


class DIN(nn.Module):
    """Zhou et al. 2018: what of the history is like the candidate."""

    def __init__(self, num_users=50, num_films=80, num_genres=9, dim=8):
        super().__init__()
        self.user = nn.Embedding(num_users, dim)
        self.film = nn.Embedding(num_films, dim, padding_idx=0)
        self.genre = nn.Embedding(num_genres, dim, padding_idx=0)
        self.attention = ActivationUnit(2 * dim)
        self.tower = nn.Sequential(nn.Linear(5 * dim + 3, 32), Dice(32), nn.Linear(32, 1))

    def event(self, film_id, genre_id):
        return torch.cat([self.film(film_id), self.genre(genre_id)], dim=-1)

    def forward(self, user_id, context, film_id, genre_id, hist_film_id, hist_genre_id):
        query = self.event(film_id, genre_id)
        keys = self.event(hist_film_id, hist_genre_id)
        interest = self.attention(query, keys, hist_film_id > 0)
        x = torch.cat([self.user(user_id), context, interest, query], dim=-1)
        return torch.sigmoid(self.tower(x)).squeeze(-1)


class Experts(nn.Module):
    def __init__(self, width, sizes, count):
        super().__init__()
        self.experts = nn.ModuleList(mlp(width, sizes) for _ in range(count))

    def forward(self, x):
        return torch.stack([expert(x) for expert in self.experts], dim=1)


def mlp(width, sizes):
    layers = []
    for size in sizes:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers)


class MMoE(nn.Module):
    """Ma et al. 2018, with ESMM's product of two targets."""

    def __init__(self, width=12, experts=4, sizes=(16, 8), tower=8):
        super().__init__()
        self.experts = Experts(width, sizes, experts)
        self.gates = nn.ModuleList(nn.Linear(width, experts, bias=False) for _ in range(2))
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(sizes[-1], tower), nn.ReLU(), nn.Linear(tower, 1))
                                    for _ in range(2))

    def forward(self, x):
        experts = self.experts(x)  # [B, E, D]
        scores = []
        for gate, tower in zip(self.gates, self.towers):
            weight = torch.softmax(gate(x), dim=-1)
            mixed = torch.bmm(weight.unsqueeze(1), experts).squeeze(1)
            scores.append(torch.sigmoid(tower(mixed)).squeeze(-1))
        return {"ctr": scores[0], "ctcvr": scores[0] * scores[1]}


class ExtractionLayer(nn.Module):
    """A level of PLE."""

    def __init__(self, width, size, tasks, own, shared, is_last):
        super().__init__()
        self.own = nn.ModuleList(Experts(width, [size], own) for _ in range(tasks))
        self.shared = Experts(width, [size], shared)
        self.gates = nn.ModuleList(nn.Linear(width, own + shared) for _ in range(tasks))
        self.shared_gate = None if is_last else nn.Linear(width, tasks * own + shared)

    def forward(self, inputs):
        *of_tasks, of_shared = inputs
        own = [experts(x) for experts, x in zip(self.own, of_tasks)]
        shared = self.shared(of_shared)
        outputs = [self.mix(gate(x), torch.cat([experts, shared], 1))
                   for gate, x, experts in zip(self.gates, of_tasks, own)]
        if self.shared_gate is not None:
            outputs.append(self.mix(self.shared_gate(of_shared), torch.cat([*own, shared], 1)))
        return outputs

    @staticmethod
    def mix(logits, experts):
        return (torch.softmax(logits, dim=1).unsqueeze(-1) * experts).sum(dim=1)


class PLE(nn.Module):
    """Tang et al. 2020."""

    def __init__(self, width=12, sizes=(16, 8), tasks=2, own=2, shared=2):
        super().__init__()
        self.tasks = tasks
        self.levels = nn.ModuleList()
        for i, size in enumerate(sizes):
            self.levels.append(ExtractionLayer(width, size, tasks, own, shared, i + 1 == len(sizes)))
            width = size
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 1))
                                    for _ in range(tasks))

    def forward(self, x):
        states = [x] * (self.tasks + 1)
        for level in self.levels:
            states = level(states)
        return tuple(torch.sigmoid(tower(state)) for tower, state in zip(self.towers, states))


class TwoTowers(nn.Module):
    """The product of a user's vector and a film's, the user's from a transformer over the history."""

    def __init__(self, num_films=80, length=7, dim=16, heads=2):
        super().__init__()
        self.film = nn.Embedding(num_films, dim, padding_idx=0)
        self.position = nn.Embedding(length, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.user_tower = nn.Sequential(nn.Linear(dim + 3, 16), nn.ReLU(), nn.Linear(16, dim))
        self.film_tower = nn.Linear(dim, dim)

    def forward(self, context, film_id, hist_film_id):
        padding = hist_film_id == 0
        x = self.film(hist_film_id) + self.position(torch.arange(hist_film_id.shape[1]))
        x = self.encoder(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).float()
        history = (x * kept).sum(1) / kept.sum(1).clamp(min=1)
        user = self.user_tower(torch.cat([history, context], dim=-1))
        return (user * self.film_tower(self.film(film_id))).sum(-1)


class Criteo(nn.Module):
    """13 numbers and 26 ids in the shape of MLPerf's DLRM; DCN-v2 with low-rank crosses, or DLRM's dots."""

    def __init__(self, crosses, rows=4, dim=128, rank=512):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(26))
        self.bottom = mlp(13, [512, 256, dim])
        width = 27 * dim
        self.inner = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(crosses))
        self.outer = nn.ModuleList(nn.Linear(rank, width) for _ in range(crosses))
        self.top = nn.Sequential(*mlp(width if crosses else dim + 27 * 13, [1024, 1024, 512, 256]), nn.Linear(256, 1))

    def forward(self, dense, categories):
        bottom = self.bottom(dense)
        fields = [bottom] + [table(categories[:, i]) for i, table in enumerate(self.tables)]
        if len(self.outer) == 0:
            stacked = torch.stack(fields, dim=1)
            products = torch.bmm(stacked, stacked.transpose(1, 2))
            rows, columns = torch.tril_indices(27, 27, offset=-1)
            x = torch.cat([bottom, products[:, rows, columns]], dim=1)
        else:
            x0 = x = torch.cat(fields, dim=1)
            for inner, outer in zip(self.inner, self.outer):
                x = x0 * outer(inner(x)) + x
        return torch.sigmoid(self.top(x).squeeze(1))
