# SPDX-License-Identifier: Apache-2.0
"""The command line: warprank convert, check and score."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import folder as folders
from . import metrics, offline
from .errors import CudaError, InvalidArgument, Problems, refuse
from .files import has_rows
from .model import load
from .transforms import Transforms

MODELS = "a .pt2 of torch.export.save, a .keras, an .h5, an .onnx, or the folder of a SavedModel"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except (CudaError, InvalidArgument, OSError) as error:
        print(f"warprank {given.command}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="warprank", description="Models of trained frameworks, served by warprank.")
    commands = parser.add_subparsers(dest="command", required=True)

    convert = commands.add_parser("convert", help="a model of PyTorch, TensorFlow or ONNX to a folder for servers",
                                  description="Writes graph, weights, tables, and sample requests with the scores "
                                  "that the framework gives them.")
    convert.add_argument("model", metavar="MODEL", help=MODELS)
    convert.add_argument("--out", required=True, metavar="DIR")
    convert.add_argument("--axis", action="append", default=[], metavar="INPUT=AXIS",
                         help="'film_id=user/item', of events 'hist=user/history[]'; for each input, or for none")
    convert.add_argument("--output", action="append", metavar="NAME", help="names of the outputs, in their order")
    convert.add_argument("--rows", action="append", default=[], metavar="[TABLE=]TYPE",
                         help="of tables' rows: f32, f16, bf16 or i8")
    convert.add_argument("--hashed", action="append", default=[], metavar="TABLE=IDS.npy",
                         help="64-bit ids of a table's rows, in their order")
    convert.add_argument("--transforms", metavar="FILE", help="what makes inputs of the columns of logs; models of "
                         "Keras that begin with preprocessing layers have it, and SavedModels with their ops")
    convert.set_defaults(run=_convert)

    check = commands.add_parser("check", help="compare scores with the framework's")
    check.add_argument("dir", metavar="DIR")
    check.add_argument("--batch", metavar="FILE", help="requests with expected scores, as DIR's samples.safetensors, "
                       "which is it otherwise; or as score takes them, with columns expected.<output>, label.<output>")
    check.add_argument("--most-difference", type=float, metavar="X", help="fails where a score differs by more")
    check.add_argument("--threads", type=int, default=1)
    _add_precision(check)
    check.add_argument("--calibration", metavar="FILE.svg", help="draws the shares of positives by score")
    check.add_argument("--columns", metavar="NAME,NAME", help="of CSV whose first line has no names")
    check.set_defaults(run=_check)

    score = commands.add_parser("score", help="score the rows of a Parquet or CSV file",
                                description="Rows have the model's inputs or, where DIR has transforms.json, the "
                                "columns that are made into them.")
    score.add_argument("dir", metavar="DIR")
    score.add_argument("--data", required=True, metavar="FILE", help=".parquet, .csv or .tsv")
    score.add_argument("--out", required=True, metavar="FILE.parquet", help="goes on where a run was ended")
    score.add_argument("--keep", action="append", default=[], metavar="COLUMN", help="that is copied")
    score.add_argument("--threads", type=int, default=0, help="0: one for each processor")
    score.add_argument("--device", default="host", help="host, cuda or cuda:<n>")
    _add_precision(score)
    score.add_argument("--quiet", action="store_true", help="does not say how far it is")
    score.add_argument("--columns", metavar="NAME,NAME", help="of CSV whose first line has no names")
    score.set_defaults(run=_score)
    return parser


def _add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8_weights", "automatic"), default="fp32",
                        help="of products on the host; automatic: the faster one")


def _pairs(options: Sequence[str], what: str) -> dict[str, str]:
    problems = Problems()
    for option in options:
        if "=" not in option:
            problems.add(what, "NAME=VALUE", f"'{option}'")
    problems.raise_if_any()
    return dict(option.split("=", 1) for option in options)


def _names(option: str | None) -> list[str] | None:
    return None if option is None else option.split(",")


def _convert(given: argparse.Namespace) -> int:
    exporting = _framework_of(given.model)
    axes = _pairs(given.axis, "--axis") or None
    by_table = _pairs([r for r in given.rows if "=" in r], "--rows")
    for_all = [r for r in given.rows if "=" not in r]
    if len(for_all) + bool(by_table) > 1:
        refuse("--rows", "one type, or types by table", " ".join(given.rows))
    rows: Any = by_table or (for_all[0] if for_all else "f32")
    hashed = {table: _ids(path) for table, path in _pairs(given.hashed, "--hashed").items()}
    options = {} if given.output is None else {"outputs": given.output}
    exported = exporting(given.model, axes=axes, rows=rows, hashed=hashed, **options)
    if given.transforms is not None:
        if exported.transforms is not None:
            refuse("--transforms", "a model without preprocessing layers", "one that has them")
        exported.transforms = Transforms.load(given.transforms)
    exported.save(given.out)
    for name, difference in exported.check().items():
        print(f"{name}: differs by {difference.largest:.3g} at most, {difference.mean:.3g} on average")
    for name, error in exported.row_errors.items():
        if error.largest > 0:
            print(f"table {name} as {error.type}: {error.largest:.3g} off at most, {error.root_mean_square:.3g} RMS")
    return 0


def _ids(path: str) -> np.ndarray:
    """The array of a file of NumPy."""
    try:
        return np.asarray(np.load(path))
    except (ValueError, EOFError) as error:  # as of text
        refuse(f"--hashed: file '{path}'", "an array that numpy.save wrote", str(error).splitlines()[0])


def _framework_of(model: str) -> Any:
    """The export that takes the model."""
    what = f"model '{model}'"
    is_saved_model = os.path.exists(os.path.join(model, "saved_model.pb"))
    if not is_saved_model and not model.endswith((".pt2", ".keras", ".h5", ".hdf5", ".onnx")):
        refuse(what, MODELS, "another")
    if not os.path.exists(model):
        refuse(what, "a file", "none")
    ending = "" if is_saved_model else os.path.splitext(model)[1]
    needed = {".pt2": "PyTorch, by pip install torch", ".onnx": "PyTorch, onnx and onnxruntime, by pip install torch "
              "onnx onnxruntime"}.get(ending, "TensorFlow, by pip install tensorflow-cpu")
    try:
        if ending == ".onnx":
            from .onnx import export as of_onnx
            return of_onnx
        if ending != ".pt2":
            from .keras import export as of_keras
            return of_keras
        import torch

        from .torch import export as of_torch
    except ImportError as error:
        refuse(what, needed, str(error))
    try:
        program = torch.export.load(model)
    except Exception as error:  # whatever PyTorch raises, of a file of another kind or version
        refuse(what, "what torch.export.save wrote", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
    return lambda _, **options: of_torch(program, **options)


def _check(given: argparse.Namespace) -> int:
    model = load(given.dir, precision=given.precision)
    path = given.batch or os.path.join(given.dir, folders.SAMPLES)
    if not os.path.exists(path):
        refuse(f"batch '{path}'", "a file", "none; --batch names one")
    samples = (offline.read_samples(model, path, offline.transforms_of(given.dir),
                                    _names(given.columns)) if has_rows(path) else
               folders.Samples.open(path))
    worst = 0.0
    problems = Problems()
    for name, found in folders.check(model, samples).items():
        told = [f"{found.rows} scores"]
        if found.largest is not None and found.mean is not None:
            worst = max(worst, found.largest)
            told.append(f"differ by {found.largest:.3g} at most, {found.mean:.3g} on average")
        if found.not_finite:
            problems.add(f"scores '{name}'", "finite ones", f"{found.not_finite} that are not")
        if found.auc is not None:
            told.append(f"AUC {found.auc:.6f}")
        if found.expected_auc is not None:
            told.append(f"the framework's {found.expected_auc:.6f}")
        print(f"{name}: {', '.join(told)}")
    seconds = folders.seconds_to_score(model, samples, given.threads)
    framework = "" if samples.seconds is None else f"; the framework took {1e3 * samples.seconds:.3g} ms"
    print(f"{1e3 * seconds:.3g} ms for all on {given.threads} thread{'s' * (given.threads != 1)}{framework}")
    problems.raise_if_any()
    if given.calibration is not None:
        _draw(model, samples, given.calibration)
    if given.most_difference is not None and not worst <= given.most_difference:
        print(f"warprank check: expected scores that differ by {given.most_difference:g} at most, got {worst:.3g}",
              file=sys.stderr)
        return 1
    return 0


def _draw(model: Any, samples: folders.Samples, path: str) -> None:
    if not samples.labels:
        refuse("--calibration", "a batch with labels, 'label.<output>'", "none")
    scores = model.score(samples.data, samples.offsets)
    name = next(iter(samples.labels))
    metrics.calibration_svg(samples.labels[name], scores[name].reshape(-1), path, title=f"Calibration of {name}")


def _score(given: argparse.Namespace) -> int:
    model = load(given.dir, given.device, given.precision)
    for path, what in ((given.data, "--data"), (os.path.dirname(os.path.abspath(given.out)), "the folder of --out")):
        if not os.path.exists(path):
            refuse(f"{what} '{path}'", "one that is there", "none")
    offline.score_file(model, given.data, given.out, transforms=offline.transforms_of(given.dir), keep=given.keep,
                       columns=_names(given.columns), threads=given.threads,
                       progress=None if given.quiet else sys.stderr)
    for feature, met in model.counters().items():
        for kind, where in (("out_of_range", "beyond the rows of their table"), ("unknown", "not in their table")):
            if met[kind]:
                print(f"{feature}: {met[kind]} of {met['ids']} ids are {where}, and count as none", file=sys.stderr)
    return 0
