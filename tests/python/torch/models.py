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
