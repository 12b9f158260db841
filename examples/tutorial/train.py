# SPDX-License-Identifier: Apache-2.0
"""Trains the tutorial's model on made-up views and writes what the server needs: train.py FOLDER

FOLDER gets dense.safetensors and tables.safetensors, and expected.npz: some requests with PyTorch's scores of them.
"""
import os
import sys

import numpy
import torch
from safetensors.torch import save_file
from torch import nn

VIDEOS, REGIONS, WATCHED = 2000, 8, 20


class Watch(nn.Module):
    def __init__(self):
        super().__init__()
        self.videos = nn.Embedding(VIDEOS, 16)
        self.regions = nn.Embedding(REGIONS, 4)
        self.tower = nn.Sequential(nn.Linear(54, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, video, watched, region, hour):
        """A video for each viewer: [N], [N, WATCHED], [N], [N, 2] to logits [N]."""
        taste = self.videos(watched).mean(1)
        candidate = self.videos(video)
        x = torch.cat([taste, self.regions(region), hour, candidate, taste * candidate], 1)
        return self.tower(x).squeeze(1)


def made_up_views(count, random):
    """Viewers like one of 20 subjects, and watch such videos twice as often at night."""
    subject = random.integers(0, 20, count)
    watched = random.integers(0, VIDEOS // 20, (count, WATCHED)) * 20 + subject[:, None]
    video = random.integers(0, VIDEOS, count)
    hour = random.uniform(0, 24, count)
    chance = numpy.where(video % 20 == subject, 0.3 + 0.3 * (hour > 18), 0.05)
    clock = numpy.stack([numpy.sin(hour * numpy.pi / 12), numpy.cos(hour * numpy.pi / 12)], 1)
    columns = video, watched, random.integers(0, REGIONS, count), clock.astype(numpy.float32)
    return [torch.from_numpy(column) for column in columns], torch.from_numpy(random.uniform(size=count) < chance)


def train(model, random):
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(1001):
        inputs, watched = made_up_views(512, random)
        loss = nn.functional.binary_cross_entropy_with_logits(model(*inputs), watched.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def export(model, folder):
    """Names as model.hpp gives them: layer i of the tower is module 2 i of the Sequential."""
    dense = {f"tower.{i}.{kind}": getattr(model.tower[2 * i], kind).detach() for i in range(3)
             for kind in ("weight", "bias")}
    save_file(dense, os.path.join(folder, "dense.safetensors"))
    save_file({"videos": model.videos.weight.detach(), "regions": model.regions.weight.detach()},
              os.path.join(folder, "tables.safetensors"))


def expect(model, folder, random, requests=10, items=50):
    """Requests of one viewer and some videos each."""
    (_, watched, region, hour), _ = made_up_views(requests, random)
    videos = torch.from_numpy(random.integers(0, VIDEOS, (requests, items)))
    with torch.no_grad():
        scores = torch.stack([torch.sigmoid(model(videos[r], watched[r].expand(items, -1), region[r].expand(items),
                                                  hour[r].expand(items, -1))) for r in range(requests)])
    numpy.savez(os.path.join(folder, "expected.npz"), video_id=videos, watched_id=watched, region=region, hour=hour,
                scores=scores)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: train.py FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    torch.manual_seed(1)
    torch.set_num_threads(1)  # layers this small are slower on several
    random = numpy.random.default_rng(1)
    model = Watch()
    train(model, random)
    export(model, sys.argv[1])
    expect(model, sys.argv[1], random)


if __name__ == "__main__":
    main()
