# SPDX-License-Identifier: Apache-2.0
"""A module as a file of ONNX, which onnxruntime runs on one thread and warprank.onnx converts, for tools/zoo.py.

PyTorch has two exporters: that of today, `dynamo`, and the first one, which traces and has written most files.
"""

import importlib.util
import io
import logging
import multiprocessing
import os
import sys
import warnings

import numpy as np
import torch
from zoo_models import Model

import warprank as wr


def missing():
    """The packages that are not there."""
    return [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]


class Flat(torch.nn.Module):
    """A module that takes the tensors of its batch one behind the other."""

    def __init__(self, module, arguments):
        super().__init__()
        self.module = module
        self.form = torch.utils._pytree.tree_structure(arguments)

    def forward(self, *tensors):
        args, kwargs = torch.utils._pytree.tree_unflatten(list(tensors), self.form)
        return torch.utils._pytree.tree_leaves(self.module(*args, **kwargs))


class OfOnnx:
    """names: of the tensors of its batch"""

    def __init__(self, path, module, arguments, names, dynamo=True):
        import onnxruntime
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        self.path, self.tensors = path, torch.utils._pytree.tree_leaves(arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(Flat(module, arguments).eval(), tuple(self.tensors), path, dynamo=dynamo,
                              input_names=names, external_data=False, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        read = {given.name for given in self._session.get_inputs()}
        self.batch = {name: x.numpy() for name, x in zip(names, self.tensors) if name in read}

    def run(self):
        return self._session.run(None, self.batch)

    def difference(self, axes):
        """Of the scores of the file as warprank.onnx converts it from onnxruntime's, as a share of the largest."""
        import warprank.onnx
        exported = wr.onnx.export(self.path, axes and {name: axes[name] for name in self.batch})
        scores = exported.score(self.batch)
        return max(of_output(scores[name].reshape(-1), wanted.reshape(-1))
                   for name, wanted in zip(exported.outputs, self.run()))


def of_output(scores, wanted):
    """Where onnxruntime has a number; NaN where it has one and the conversion has none."""
    is_none = np.isnan(wanted)
    largest = np.abs(wanted).max(where=~is_none, initial=1)
    return float(np.abs(scores - wanted).max(where=~is_none, initial=0) / largest)


def of_first_exporter(path, module, arguments, names, axes):
    """The difference that a conversion of the file of PyTorch's first exporter makes, or why there is none.

    In a process of its own, as a trace that fails leaves the exporter unable to trace others.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def convert():
        sys.stdout = io.StringIO()  # where the exporter writes what it could not trace
        try:
            sender.send((OfOnnx(path, module, arguments, names, dynamo=False).difference(axes), None))
        except wr.InvalidArgument as error:
            sender.send((None, f"its file of the first exporter: {error}"))
        except Exception as error:  # of PyTorch's exporter, or of onnxruntime
            line = (str(error).strip() or " ").splitlines()[0]
            sender.send((None, f"no file of the first exporter: {type(error).__name__}: {line}"))

    process = multiprocessing.get_context("fork").Process(target=convert)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None, "no file of the first exporter: its process ended"
    finally:
        process.join()


def measured(of_zoo, name, make, calls, folder, timed):
    """What there is to say of a model as a file: its milliseconds, in turns with ours, and the differences that
    conversions make, or why there are none. calls: by rows ours"""
    found, exported, problems = {}, {}, []
    for count, call in calls.items():
        given = Model(*of_zoo(count)[name])
        module = make()
        arguments, names = named(module, given.batch)
        made = OfOnnx(os.path.join(folder, "model.onnx"), module, arguments, names)
        ours, theirs = timed(call, made.run)
        found |= {f"onnxruntime_ms_{count}": 1e3 * theirs, f"onnxruntime_ratio_{count}": theirs / ours}
        if exported or problems:
            continue
        try:
            exported["onnx_difference"] = made.difference(given.axes)
        except wr.InvalidArgument as error:
            problems.append(f"its file of ONNX: {error}")
        difference, problem = of_first_exporter(os.path.join(folder, "first.onnx"), module, arguments, names,
                                                given.axes)
        exported |= {} if difference is None else {"onnx_first_difference": difference}
        problems += [] if problem is None else [problem]
    return found | exported, problems


def named(module, batch):
    """The arguments of a module, and a name for each of their tensors."""
    from warprank.torch.exported import arguments, as_arguments
    given = as_arguments(module, batch)
    args, kwargs = arguments(given)
    of_dict = given[0] if isinstance(given, tuple) and len(given) == 1 else given
    paths = torch.utils._pytree.tree_flatten_with_path(of_dict)[0]
    names = ["_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) or "x" for path, _ in paths]
    return (args, kwargs), names
