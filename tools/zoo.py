#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports models of public zoos as they are, checks their scores, and times them beside PyTorch on one thread.

    tools/zoo.py FOLDER                       a row for each model: difference, launches, milliseconds for 100 and 500 rows
    tools/zoo.py FOLDER --only DCN --out RECORD.json
    tools/zoo.py FOLDER --onnx                as files of ONNX, too: onnxruntime's milliseconds, and their conversions

FOLDER keeps the zoos, which come from PyPI by pip; one that cannot be had is named and left out. Most models of FuxiCTR
are in its repository alone: `git clone https://github.com/reczoo/FuxiCTR FOLDER/FuxiCTR` adds them. Needs warprank with
PyTorch: the environment of `tests/python/run.py build/cpu/python --torch` has both
(build/cpu/python/torchrec/bin/python tools/zoo.py build/zoo). What is timed runs in turns, minima count. Exits with 1
when a model that was exported scores otherwise than its module, by more than 1e-5 of its largest score, and by more than
four times what the module itself is off by in FP32.
"""

import argparse
import copy
import functools
import os
import subprocess
import sys
import tempfile

import torch
import zoo_onnx
from bench_record import Record, best_of
from zoo_measures import LARGEST_DIFFERENCE, ROWS, TURNS, launches, relative
from zoo_models import ZOOS, Model

import warprank as wr
import warprank.torch


def install(folder, packages):
    """Whether they are there."""
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", folder,
                           *packages], capture_output=True, text=True, check=False)
    return done.returncode == 0


def made(make):
    """In evaluation, with weights that do not hide what a layer does."""
    torch.manual_seed(1)
    module = make().eval()
    with torch.no_grad():
        for weights in module.parameters():
            if weights.dim() > 1 and weights.is_floating_point():
                weights.normal_(0, 0.1)
        for part in module.modules():
            if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
                part.weight[part.padding_idx] = 0
    return module


def called(module, batch):
    args, kwargs = warprank.torch.exported.arguments(warprank.torch.exported.as_arguments(module, batch))
    return module(*args, **kwargs)


def own_difference(module, batch):
    """What a module is off by in FP32, as a share of its largest score, by what it gives in FP64."""
    def doubled(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    with torch.no_grad():
        ours = torch.utils._pytree.tree_leaves(called(module, batch))
        exact = torch.utils._pytree.tree_leaves(called(copy.deepcopy(module).double(),
                                                       torch.utils._pytree.tree_map(doubled, batch)))
    return max(float((x - y).abs().max() / max(1.0, float(y.abs().max()))) for x, y in zip(ours, exact))


def measure(of_zoo, name):
    """What there is to say of a model, and by rows a call that scores them."""
    torch.manual_seed(ROWS[0])
    given = Model(*of_zoo(ROWS[0])[name])
    module, batch = made(given.make), given.batch
    exported = wr.torch.export(module, batch, given.axes, outputs=given.outputs)
    difference, model = relative(exported.check(), exported.score(batch)), exported.model()
    allowed = LARGEST_DIFFERENCE if difference <= LARGEST_DIFFERENCE else 4 * own_difference(module, batch)
    found = {"difference": difference, "allowed_difference": allowed, "launches": launches(wr.compile(exported.graph))}
    calls = {}
    for rows in ROWS:
        batch = of_zoo(rows)[name][1]
        calls[rows] = functools.partial(model.score, *exported.columns(batch))
        with torch.no_grad():
            ours, theirs = best_of([calls[rows], lambda: called(module, batch)], TURNS)
        found |= {f"warprank_ms_{rows}": 1e3 * ours, f"eager_ms_{rows}": 1e3 * theirs, f"eager_ratio_{rows}": theirs / ours}
    return found, calls


def of_onnx(of_zoo, name, calls):
    """What there is to say of a model as a file of ONNX, and what is wrong with it. calls: of `measure`"""
    try:
        with tempfile.TemporaryDirectory() as folder:
            found, problems = zoo_onnx.measured(of_zoo, name, lambda: made(of_zoo(ROWS[0])[name][0]), calls, folder,
                                                lambda ours, theirs: best_of([ours, theirs], TURNS))
    except Exception as error:  # of PyTorch's exporter, or of onnxruntime
        return {}, [f"no file of ONNX: {type(error).__name__}: {(str(error).strip() or ' ').splitlines()[0]}"]
    for key, file in (("onnx_difference", "its file of ONNX"),
                      ("onnx_first_difference", "its file of the first exporter")):
        if not found.get(key, 0) <= LARGEST_DIFFERENCE:  # nor is it NaN
            problems.append(f"{file}: scores that differ by {found[key]:.2g}")
    return found, problems


def _times(found, rows, with_onnx):
    ratios = [found.get(f"{other}_ratio_{rows}") for other in ("eager", "onnxruntime")[:1 + with_onnx]]
    return " | ".join([f"{found[f'warprank_ms_{rows}']:.3f}", *("" if x is None else f"{x:.1f}" for x in ratios)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="models whose zoo and name have this")
    parser.add_argument("--onnx", action="store_true", help="with onnxruntime, which takes minutes")
    parser.add_argument("--out", help="a record, as Google Benchmark writes it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.abspath(options.folder)
    record, refused, wrong, count = Record(torch=torch.__version__), [], [], 0
    of_files, num_whole = [], 0
    if options.onnx and zoo_onnx.missing():
        print(f"skipped: --onnx: no {', '.join(zoo_onnx.missing())}", file=sys.stderr)
        options.onnx = False
    others = ["PyTorch", *["onnxruntime"] * options.onnx]
    columns = [f"ms, {n} rows | " + " | ".join(f"{other} / ours" for other in others) for n in ROWS]
    print("| model | difference | launches | " + " | ".join(columns) + " |")
    print("|---" * (3 + (1 + len(others)) * len(ROWS)) + "|")
    for zoo, (of_zoo, packages) in ZOOS.items():
        path = f"{folder}/{zoo}"
        if not os.path.isdir(path) and not (packages and install(path, packages)):
            reason = f"{', '.join(packages)} cannot be installed" if packages else f"no checkout in {path}"
            record.skip(zoo, reason)
            print(f"skipped: {zoo}: {reason}", file=sys.stderr)
            continue
        sys.path.insert(0, path)
        for name in (n for n in of_zoo(ROWS[0]) if options.only in f"{zoo}/{n}"):
            count += 1
            try:
                found, calls = measure(of_zoo, name)
            except wr.InvalidArgument as error:
                refused.append(f"{zoo}/{name}: {error}")
                record.skip(f"zoo/{zoo}/{name}", str(error).splitlines()[0])
                continue
            if options.onnx:
                more, problems = of_onnx(of_zoo, name, calls)
                found |= more
                of_files += [f"{zoo}/{name}: {problem}" for problem in problems]
                num_whole += not problems
            record.add(f"zoo/{zoo}/{name}", found[f"warprank_ms_{ROWS[0]}"] / 1e3, **found)
            if found["difference"] > found["allowed_difference"]:
                wrong.append(f"{zoo}/{name}: expected scores that differ by {found['allowed_difference']:.2g} at most, got "
                             f"{found['difference']:.2g}")
            times = " | ".join(_times(found, n, options.onnx) for n in ROWS)
            print(f"| {zoo}/{name} | {found['difference']:.1g} | {found['launches']} | {times} |", flush=True)
    print(f"\n{count - len(refused)} of {count} models are exported")
    if options.onnx:
        print(f"{num_whole} of them convert as files of both exporters of ONNX, too")
    for line in refused + wrong + of_files:
        print(f"- {line}")
    if options.out:
        record.save(options.out)
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
