# SPDX-License-Identifier: Apache-2.0
"""Layers of ranking models on PyTorch, each from its formula, in float64. Weights come from `w(name, *shape)`."""

import torch
import torch.nn.functional as F

from golden import f32

# Names of activations, as the cases use them in names of layers.
ACTIVATIONS = ["identity", "relu", "leaky_relu", "elu", "prelu", "dice", "dice_affine", "sigmoid", "tanh", "gelu",
               "gelu_tanh", "silu"]


def batch_norm(w, name, x, eps=1e-5, affine=True):
    width = x.shape[1]
    weight, bias = (w(name + ".weight", width), w(name + ".bias", width)) if affine else (None, None)
    return F.batch_norm(x, w(name + ".running_mean", width), w(name + ".running_var", width), weight, bias,
                        eps=f32(eps))


def activate(w, layer, kind, x):
    if kind == "prelu":
        return F.prelu(x, w(layer + ".prelu.alpha", x.shape[1]))
    if kind in ("dice", "dice_affine"):  # Zhou et al. 2018
        affine = kind == "dice_affine"
        p = torch.sigmoid(batch_norm(w, layer + ".dice", x, 1e-8 if affine else 1e-9, affine))
        return x * (p + w(layer + ".dice.alpha", x.shape[1]) * (1 - p))
    return {
        "identity": lambda: x,
        "relu": lambda: F.relu(x),
        "leaky_relu": lambda: F.leaky_relu(x, f32(0.01)),
        "elu": lambda: F.elu(x, 1.5),
        "sigmoid": lambda: torch.sigmoid(x),
        "tanh": lambda: torch.tanh(x),
        "gelu": lambda: F.gelu(x),
        "gelu_tanh": lambda: F.gelu(x, approximate="tanh"),
        "silu": lambda: F.silu(x),
    }[kind]()


def linear(w, name, x, out, activation="identity", bias=True):
    y = F.linear(x, w(name + ".weight", out, x.shape[1]), w(name + ".bias", out) if bias else None)
    return activate(w, name, activation, y)


def mlp(w, name, x, sizes, activation="relu", bias=True, output_activation="identity", norm=False, eps=1e-5):
    for i, size in enumerate(sizes):
        layer, last = f"{name}.{i}", i + 1 == len(sizes)
        x = linear(w, layer, x, size, bias=bias)
        if norm and not last:
            x = batch_norm(w, layer + ".norm", x, eps)
        x = activate(w, layer, output_activation if last else activation, x)
    return x


def experts(w, name, x, count, sizes, activation="relu"):
    """[rows, count, sizes[-1]]: experts side by side, each through layers of its own."""
    outputs = []
    for e in range(count):
        def of_expert(tensor, *shape):
            return w(tensor, count, *shape)[e]

        y = x
        for i, size in enumerate(sizes):
            y = linear(of_expert, f"{name}.{i}", y, size, activation)
        outputs.append(y)
    return torch.stack(outputs, 1)


def mix(outputs, logits, normalization="softmax"):
    """sum_e normalization(logits)_e outputs_e of outputs [rows, experts, width]."""
    weights = {"softmax": lambda: torch.softmax(logits, 1), "sigmoid": lambda: torch.sigmoid(logits),
               "none": lambda: logits}[normalization]()
    return torch.einsum("ne,ned->nd", weights, outputs)


def ple(w, name, x, tasks, task_experts, shared_experts, levels):
    """Tang et al. 2020, progressive layered extraction: one tensor per task."""
    of_task, shared = [x] * tasks, x
    for level, sizes in enumerate(levels):
        prefix = f"{name}.{level}."
        shared_out = experts(w, prefix + "shared", shared, shared_experts, sizes)
        own = [experts(w, f"{prefix}task{t}", of_task[t], task_experts, sizes) for t in range(tasks)]
        extracted = [mix(torch.cat([own[t], shared_out], 1),
                         linear(w, f"{prefix}gate{t}", of_task[t], task_experts + shared_experts))
                     for t in range(tasks)]
        if level + 1 < len(levels):
            everything = torch.cat(own + [shared_out], 1)
            shared = mix(everything, linear(w, prefix + "shared_gate", shared, everything.shape[1]))
        of_task = extracted
    return of_task


def din_attention(w, name, q, histories, hidden, activation, normalization="none", scaled=False):
    """Zhou et al. 2018. `q`: one tensor of items for each history. A history without events gives zeros."""
    outputs = []
    for items, k in zip(q, histories):
        for item in items:
            if len(k) == 0:
                outputs.append(torch.zeros_like(item))
                continue
            query = item.expand_as(k)
            x = torch.cat([query, k, query - k, query * k], 1)
            score = mlp(w, name, x, hidden + [1], activation)[:, 0]
            if scaled:
                score = score / item.numel() ** 0.5
            if normalization == "softmax":
                score = torch.softmax(score, 0)
            if normalization == "sigmoid":
                score = torch.sigmoid(score)
            outputs.append(score @ k)
    return torch.stack(outputs) if outputs else torch.zeros(0, q[0].shape[1], dtype=torch.float64)


def embedding_bag(table, rows, bags, mode, weights=None):
    """Sums of weighted rows over bags of these lengths, by what the mode divides by; the empty bag gives zeros."""
    outputs, first = [], 0
    for length in bags:
        x = table[rows[first:first + length]]
        wt = torch.ones(length, dtype=torch.float64) if weights is None else weights[first:first + length]
        first += length
        if length == 0:
            outputs.append(torch.zeros(table.shape[1], dtype=torch.float64))
        elif mode == "max":
            outputs.append(x.max(0).values)
        else:
            divisor = {"sum": 1.0, "mean": wt.sum(), "sqrtn": (wt * wt).sum().sqrt()}[mode]
            outputs.append((wt[:, None] * x).sum(0) / divisor)
    return torch.stack(outputs) if outputs else torch.zeros(0, table.shape[1], dtype=torch.float64)


def dot_interaction(fields, order, self):
    """All pairs of fields [rows, fields, dim] (Naumov et al. 2019)."""
    products = torch.bmm(fields, fields.transpose(1, 2))
    count = fields.shape[1]
    if order == "upper":
        i, j = torch.triu_indices(count, count, 0 if self else 1)
    else:
        i, j = torch.tril_indices(count, count, 0 if self else -1)
    y = products[:, i, j]
    return F.pad(y, (0, 1)) if order == "lower_padded" else y


def fm(fields, reduce):
    """Rendle 2010: 1/2 [(sum e)^2 - sum e^2] of fields [rows, fields, dim]."""
    y = 0.5 * (fields.sum(1) ** 2 - (fields ** 2).sum(1))
    return y.sum(1, keepdim=True) if reduce else y


def cross(w, name, x0, layers, rank=0):
    """Wang et al. 2021, DCN-v2."""
    x, width = x0, x0.shape[1]
    for i in range(layers):
        if rank:
            inner = F.linear(x, w(f"{name}.{i}.v.weight", rank, width))
            x = x0 * linear(w, f"{name}.{i}.w", inner, width) + x
        else:
            x = x0 * linear(w, f"{name}.{i}", x, width) + x
    return x
