# SPDX-License-Identifier: Apache-2.0
"""What golden cases are made of: requests, seeded weights, and the file that holds them with PyTorch's outputs."""

import pathlib
import zlib

import numpy as np
import safetensors.torch
import torch

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"


def f64(values):
    """A float64 tensor of float32 values: what the library is given, exactly."""
    return torch.as_tensor(np.asarray(values)).to(torch.float64)


def f32(number):
    """The float64 that is nearest in float32: options such as eps are floats in C++."""
    return float(np.float32(number))


class Request:
    """The inputs of one request by name. `lengths` has, for each nested axis, its rows in each row of the parent."""

    def __init__(self):
        self.lengths, self.ids, self.values = {}, {}, {}

    def rows(self, axis):
        return int(sum(self.lengths[axis]))

    def dense(self, name):
        return f64(self.values[name])

    def expand(self, x, *axes):
        """Rows repeated along a chain of nested axes."""
        for axis in axes:
            x = torch.repeat_interleave(x, torch.tensor(self.lengths[axis], dtype=torch.int64), 0)
        return x

    def split(self, x, axis):
        """The rows of `axis`, one tensor for each row of its parent."""
        return torch.split(x, [int(length) for length in self.lengths[axis]])


class Case:
    """One file: seeded weights and tables, requests, and what `model` makes of each. Weights whose names are asked for
    with `weight` are made up at the first call and are the same afterwards."""

    def __init__(self, name):
        self.name = name
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.weights, self.tables, self.requests = {}, {}, []

    # --- weights

    def weight(self, name, *shape):
        """A matrix if it has two dimensions or more, else a vector. Variances are positive."""
        if name not in self.weights:
            scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.2
            values = self.random.normal(size=shape) * scale
            if name.endswith(".running_var"):
                values = self.random.uniform(0.5, 1.5, size=shape)
            self.weights[name] = values.astype(np.float32)
        assert self.weights[name].shape == shape, (name, self.weights[name].shape, shape)
        return f64(self.weights[name])

    def table(self, name, rows, dim, dtype="float32", keys=None, default=False):
        """Rows of a table as float64, the last one for ids that are not in it. `dtype`: also float16, bfloat16, int8."""
        prefix = name if keys is None else name + ".rows"
        if dtype == "int8":
            stored = torch.from_numpy(self.random.integers(-128, 128, (rows, dim)).astype(np.int8))
            scale = self.random.uniform(0.001, 0.02, rows).astype(np.float32)
            offset = self.random.normal(size=rows).astype(np.float32)
            self.tables[name + ".scale"], self.tables[name + ".offset"] = scale, offset
            decoded = f64(scale)[:, None] * stored.to(torch.float64) + f64(offset)[:, None]
        else:
            stored = torch.from_numpy(self.random.normal(size=(rows, dim)).astype(np.float32))
            stored = stored.to(getattr(torch, dtype))
            decoded = stored.to(torch.float64)
        self.tables[prefix] = stored
        if keys is not None:
            self.tables[name + ".keys"] = np.asarray(keys, dtype=np.int64)
        unknown = np.zeros(dim, np.float32)
        if default:
            unknown = self.random.normal(size=dim).astype(np.float32)
            self.tables[name + ".default"] = unknown
        return torch.cat([decoded, f64(unknown)[None]])

    # --- requests

    def lengths(self, request, axis, parents, most, least=0):
        request.lengths[axis] = [int(n) for n in self.random.integers(least, most + 1, parents)]
        return request.rows(axis)

    def normal(self, rows, width, scale=1.0):
        return (self.random.normal(size=(rows, width)) * scale).astype(np.float32)

    def add(self, request):
        self.requests.append(request)

    def add_items(self, widths, numbers=(3, 0, 5), scales=(1.0,), axis="item"):
        """Requests of `numbers` items for each scale, with dense inputs {name: columns} on the item axis."""
        for scale in scales:
            for number in numbers:
                request = Request()
                request.lengths[axis] = [number]
                for name, width in widths.items():
                    request.values[name] = self.normal(number, width, scale)
                self.add(request)

    # --- the file

    def save(self, model, stored_weights=True):
        """Runs `model(request) -> {output: tensor}` on every request and writes the file."""
        tensors = {}
        for r, request in enumerate(self.requests):
            for output, rows in model(request).items():
                tensors[f"request/{r}/output/{output}"] = rows.detach().to(torch.float64)
            for axis, lengths in request.lengths.items():
                tensors[f"request/{r}/lengths/{axis}"] = np.asarray(lengths, dtype=np.int64)
            for name, ids in request.ids.items():
                tensors[f"request/{r}/ids/{name}"] = np.asarray(ids, dtype=np.int64)
            for name, values in request.values.items():
                tensors[f"request/{r}/dense/{name}"] = values
        if stored_weights:
            tensors.update({f"weight/{name}": values for name, values in self.weights.items()})
            tensors.update({f"table/{name}": values for name, values in self.tables.items()})
        tensors = {name: torch.as_tensor(values).clone().contiguous() for name, values in tensors.items()}
        path = FOLDER / f"{self.name}.safetensors"
        safetensors.torch.save_file(tensors, path, {"requests": str(len(self.requests))})
        print(f"{path.stat().st_size:8d} bytes  {path.name}")
