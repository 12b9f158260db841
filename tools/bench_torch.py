#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our engines with PyTorch on the reference models: the same weights, the same batch, scores checked before.

    tools/bench_torch.py RUN_MODEL --out RECORD.json      RUN_MODEL: build/native/benchmarks/models_run_model

With a GPU (PyTorch 2): FP16, eager, eager in a CUDA graph, and torch.compile in the modes that use CUDA graphs. The
time is what one batch takes by the clock, from ids in pinned memory to scores in pinned memory; all ids are one copy.
Without one (any PyTorch since 1.13, with MKL): FP32 on one thread, eager, in processor time. Each form of the model
(tools/graph_model.py) is a straight list of calls made by torch.fx, so that no interpreter is measured. What is
compared runs in turns.

Needs torch, numpy and safetensors.
"""

import argparse
import statistics
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError as import_error:
    print(f"skipped: {import_error}")
    sys.exit(0)

from bench_record import Record
from graph_model import FORMS, MODELS, Folder, Model, ModelRunner

# Requests and items of each.
CASES = [("wide_deep", 1, 100), ("wide_deep", 16, 100), ("dlrm", 1, 100), ("dcn_v2", 1, 100), ("din_mmoe", 1, 100),
         ("meituan_like", 1, 200), ("meituan_like", 8, 200), ("user_heavy", 1, 500),
         ("rank_mixer", 1, 100), ("hstu", 1, 200), ("xdeepfm", 1, 100), ("auto_int", 1, 100),
         ("wukong", 1, 100), ("dien", 1, 100), ("mtgr", 1, 200), ("dlrm_hstu", 1, 200)]
# Of a score. In FP16, PyTorch rounds the values of each layer to 11 bits and lets partial sums be FP16 as well.
LARGEST_ERROR = {"float32": 1e-4, "float16": 2e-2}

try:
    import torch
    import torch.nn.functional as F
except ImportError as import_error:
    torch, missing = None, str(import_error)


class TorchOps:
    """Operations on tensors; weights become buffers of a module."""

    def __init__(self, module, device, dtype):
        self.module, self.device, self.dtype = module, device, dtype
        self.names, self.arrays, self.places = {}, {}, {}
        self.packed = None  # once the inputs are known: (ids, dense)

    def weight(self, key, make):
        if key not in self.names:
            self.names[key] = f"w{len(self.names)}"
            array = torch.from_numpy(np.ascontiguousarray(make()))
            array = array.to(self.device, self.dtype if array.is_floating_point() else array.dtype)
            self.module.register_buffer(self.names[key], array)
        return getattr(self.module, self.names[key])

    def input(self, kind, name, array):
        """The part of the packed input that is this one."""
        if self.packed is None:
            self.arrays[kind, name] = array
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, self.packed_type(kind))
        begin, end = self.places[kind, name]
        return self.packed[kind][begin:end].view(array.shape)

    def packed_type(self, kind):
        return self.dtype if kind else torch.int64

    def pack(self):
        """All ids behind one another, and all dense values."""
        packed = []
        for kind in (0, 1):
            end, arrays = 0, [np.zeros(0, np.float32 if kind else np.int64)]
            for (k, name), array in self.arrays.items():
                if k == kind:
                    self.places[k, name] = (end, end + array.size)
                    end += array.size
                    arrays.append(array.ravel())
            packed.append(torch.from_numpy(np.concatenate(arrays)).to(self.packed_type(kind)))
        return packed

    def ids(self, name, array):
        return self.input(0, name, array.astype(np.int64))

    def dense(self, name):
        return self.input(1, name, self.batch["dense." + name])

    def gather(self, table, ids):
        return F.embedding(ids, table)

    def bag(self, table, ids, pooling):
        return F.embedding_bag(ids, table, mode=pooling)

    def reduce(self, x, axis, pooling, keep):
        return torch.amax(x, axis, keep) if pooling == "max" else getattr(torch, pooling)(x, axis, keepdim=keep)

    def linear(self, x, w, b):
        return F.linear(x, w, b)

    def linear_onto(self, y, x, w):
        return torch.addmm(y, x, w.t())

    def grouped_linear(self, x, w, b, groups):
        if self.device == "cpu":  # batched products are slower there
            width = w.shape[2]
            parts = [F.linear(self.columns(x, g * width, (g + 1) * width), w[g], None if b is None else b[g])
                     for g in range(groups)]
            return torch.cat(parts, 1)
        _, out, width = w.shape
        x = x.reshape(-1, groups, width).transpose(0, 1)
        y = torch.bmm(x, w.transpose(1, 2)) if b is None else torch.baddbmm(b[:, None], x, w.transpose(1, 2))
        return y.transpose(0, 1).reshape(-1, groups * out)

    def columns(self, x, begin, end):
        return x[..., begin:end]

    def take_columns(self, x, columns):
        return torch.index_select(x, 1, self.weight(("columns", *columns), lambda: columns))

    def add(self, a, b):
        return a + b

    def sub(self, a, b):
        return a - b

    def mul(self, a, b):
        return a * b

    def matmul(self, a, b):
        return torch.bmm(a, b)

    def transpose(self, x, axes):
        return x.permute(axes)

    def layer_norm(self, x, weight, bias, eps, width):
        return F.layer_norm(x, (width,), weight, bias, eps)

    def concat(self, parts):
        return torch.cat(parts, -1)

    def reshape(self, x, shape):
        return x.reshape(shape)

    def expand(self, x, shape):
        return x.expand(shape)

    def softmax(self, x):
        return torch.softmax(x, -1)

    def function(self, kind, *operands_and_alpha):
        *operands, alpha = operands_and_alpha
        if kind in ("leaky_relu", "elu"):
            return getattr(F, kind)(operands[0], alpha)
        return getattr(F if kind in ("gelu", "silu") else torch, {"min": "minimum", "max": "maximum"}.get(kind, kind))(
            *operands)


class TorchModel(torch.nn.Module if torch else object):
    def __init__(self, folder, form, device, dtype):
        super().__init__()
        self.model, self.ops = Model(folder, form), TorchOps(self, device, dtype)
        self.ops.batch = folder.batch
        self.widths = {name: y.shape[1] for name, y in self.model.run(self.ops).items()}  # sees weights and inputs, too
        self.packed = self.ops.pack()

    def forward(self, ids, dense):
        """The outputs side by side."""
        self.ops.packed = (ids, dense)
        return torch.cat(list(self.model.run(self.ops).values()), 1)


class Contestant:
    """A form of the model run in one way."""

    def __init__(self, traced, packed, widths, mode, device):
        self.widths, self.mode, self.device = widths, mode, device
        self.host = [x.pin_memory() if device == "cuda" else x for x in packed]
        self.inputs = [x.to(device) for x in self.host]
        self.call, self.graph = traced, None
        if mode not in ("eager", "graph"):
            self.call = torch.compile(traced, mode=mode, fullgraph=True, dynamic=False)
        if mode == "graph":
            self.capture()
        for _ in range(3):  # compiles, and warms up
            self.run()

    def capture(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.call(*self.inputs)
        side.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.call(*self.inputs)

    def run(self):
        if self.device == "cpu":
            self.scores = self.call(*self.inputs)
            return
        for device_input, host_input in zip(self.inputs, self.host):
            device_input.copy_(host_input, non_blocking=True)
        if self.graph is None:
            self.output = self.call(*self.inputs)
        else:
            self.graph.replay()
        if not hasattr(self, "scores"):
            self.scores = torch.empty(self.output.shape, dtype=self.output.dtype).pin_memory()
        self.scores.copy_(self.output, non_blocking=True)
        torch.cuda.synchronize()

    def timed(self, calls):
        clock = time.process_time if self.device == "cpu" else time.perf_counter
        start = clock()
        for _ in range(calls):
            self.run()
        return clock() - start

    def results(self):
        parts = torch.split(self.scores, list(self.widths.values()), 1)
        return {name: part.float().numpy() for name, part in zip(self.widths, parts)}


def calls_for(run, seconds):
    run(3)
    return max(1, int(seconds / min(run(1) for _ in range(3))))


def bench(args, record, name, requests, items, path):
    full_name = f"torch/{name}/requests:{requests}/items:{items}"
    runner = ModelRunner(args.run_model, name, path, requests, items, args.table_rows,
                         "cuda" if args.device == "cuda" else "host")
    folder = Folder(path)
    which = 1 if args.device == "cpu" else 0
    contestants = {("warprank", ""): lambda calls: runner.run(calls)[which]}
    counters = {}
    with torch.no_grad():
        for form in FORMS:
            if form.name not in args.forms:
                continue
            model = TorchModel(folder, form, args.device, getattr(torch, args.dtype)).eval()
            traced = torch.fx.symbolic_trace(model)
            for mode in args.modes:
                try:
                    contestant = Contestant(traced, model.packed, model.widths, mode, args.device)
                except Exception as error:  # a compiler that is missing or fails is no failure of ours
                    reason = f"{mode}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                    print(f"skipped: {full_name}: {form.name}, {reason}", flush=True)
                    record.skip(f"{full_name}/{form.name}", reason)
                    continue
                error = folder.error_of(contestant.results())
                if not error <= LARGEST_ERROR[args.dtype]:
                    raise SystemExit(f"{full_name}: PyTorch's scores ({form.name}, {mode}) are off by {error}")
                contestants[mode, form.name] = contestant.timed

        calls = {key: calls_for(run, args.seconds) for key, run in contestants.items()}
        samples = {key: [] for key in contestants}
        for _ in range(args.rounds):
            for key, run in contestants.items():
                samples[key].append(run(calls[key]) / calls[key])
    runner.close()
    times = {key: min(s) if args.device == "cpu" else statistics.median(s) for key, s in samples.items()}
    ours = times.pop(("warprank", ""))
    counters = {"warprank_ms": ours * 1e3}
    counters.update({f"{mode}_{form}_ms".replace("-", "_"): t * 1e3 for (mode, form), t in times.items()})
    for mode in args.modes:
        of_mode = [t for (m, _), t in times.items() if m == mode]
        if of_mode:
            counters[mode.replace("-", "_") + "_ratio"] = min(of_mode) / ours
    if times:
        counters["ratio_to_best"] = min(times.values()) / ours
    record.add(full_name, ours, **counters)
    print(f"{full_name:48} {ours * 1e3:8.3f} ms   " +
          "  ".join(f"{mode}.{form} {t * 1e3:.3f} ({t / ours:.2f}x)" for (mode, form), t in times.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_model", help="the program made of benchmarks/models/run_model.cpp")
    parser.add_argument("--out", help="where to write the record as JSON")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="cuda where there is one")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--forms", nargs="*", default=[f.name for f in FORMS], choices=[f.name for f in FORMS])
    parser.add_argument("--modes", nargs="*", choices=["eager", "graph", "default", "reduce-overhead", "max-autotune"],
                        help="eager; graph: eager in a CUDA graph; others: torch.compile's")
    parser.add_argument("--quick", action="store_true", help="without max-autotune, and only one case of each model")
    parser.add_argument("--table-rows", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each sample")
    args = parser.parse_args()

    record = Record(torch=torch.__version__ if torch else None)
    if torch is None:
        print(f"skipped: PyTorch: {missing}")
        record.skip("torch", missing)
    else:
        torch.set_num_threads(1)
        args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
        args.dtype = "float16" if args.device == "cuda" else "float32"
        if args.modes is None:
            args.modes = ["eager"] if args.device == "cpu" else ["eager", "graph", "reduce-overhead"]
            if args.device == "cuda" and not args.quick:
                args.modes.append("max-autotune")
        record.context.update(device=torch.cuda.get_device_name() if args.device == "cuda" else "cpu", dtype=args.dtype)
        if args.device == "cpu":
            record.context["mkl"] = torch.backends.mkl.is_available()
            if not record.context["mkl"]:  # as Debian's: its products are many times slower than PyPI's
                print("note: this PyTorch is built without MKL; its figures say nothing about PyTorch", flush=True)
        done = set()
        for name, requests, items in CASES:
            if name not in args.models or args.quick and name in done:
                continue
            done.add(name)
            with tempfile.TemporaryDirectory() as path:
                bench(args, record, name, requests, items, path)
            if args.out:  # what there is so far, should the time be over
                record.save(args.out)
    if args.out:
        record.save(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
