#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the host engine with onnxruntime and OpenVINO on the reference models, on 1 and 2 threads.

    tools/bench_host_engines.py RUN_MODEL --out RECORD.json       RUN_MODEL: build/cpu/benchmarks/models_run_model

Each of the two gets every form of the model (tools/graph_model.py): as it is written, de-duplicated by hand, and with
merged tables; its best one counts. Shapes are static, memory of inputs and outputs is bound beforehand, ids are 32-bit
rows of the tables, all graph optimisations are on. What is compared runs in turns; minima count. Of one thread it is
processor time, so that other work on the machine does not matter; of two threads it is the time per batch by the
clock, one batch by two threads or two batches side by side, whichever is better; the latency of one batch by two
threads is compared apart. Scores are checked before.

FP32 is compared with FP32, and the fastest form of each engine with that of the others, whatever its precision: ours
also with host_precision `automatic`, OpenVINO also as it takes by itself, which is BF16 where the processor has it.
Kernels of onnxruntime for x86 have no BF16; INT8, for which weights and values are calibrated, is not compared.

Needs numpy, onnx and safetensors; an engine that is not installed is left out. From PyPI:
    python3 -m venv .venv && .venv/bin/pip install numpy onnx safetensors onnxruntime openvino
"""

import argparse
import importlib
import sys
import tempfile
import threading
import time

try:
    import numpy as np
except ImportError as import_error:
    print(f"skipped: {import_error}")
    sys.exit(0)

from bench_record import Record
from graph_model import FORMS, MODELS, Folder, Model, ModelRunner

# Requests and items of each.
CASES = [("wide_deep", 1, 100), ("wide_deep", 8, 100), ("dlrm", 1, 100), ("dcn_v2", 1, 100), ("din_mmoe", 1, 100),
         ("meituan_like", 1, 200), ("user_heavy", 1, 500), ("rank_mixer", 1, 100), ("hstu", 1, 200),
         ("xdeepfm", 1, 100), ("auto_int", 1, 100), ("wukong", 1, 100), ("dien", 1, 100),
         ("mtgr", 1, 200), ("dlrm_hstu", 1, 200)]
LARGEST_ERROR = {"f32": 1e-4, "bf16": 0.02}  # of a score


class OnnxOps:
    """Writes operations down as ONNX."""

    FUNCTIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "leaky_relu": "LeakyRelu", "elu": "Elu",
                 "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "div": "Div", "min": "Min",
                 "max": "Max"}

    def __init__(self):
        self.nodes, self.constants, self.inputs, self.names = [], {}, {}, {}

    def emit(self, op, *inputs, **attributes):
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def weight(self, key, make):
        if key not in self.names:
            self.names[key] = self.constant(make())
        return self.names[key]

    def integers(self, values):
        return self.weight(("integers", *values), lambda: np.array(values, np.int64))

    def input(self, name, array):
        self.inputs[name] = np.ascontiguousarray(array)
        return name

    def ids(self, name, array):
        return self.input("ids_" + name, array.astype(np.int32))

    def dense_of(self, batch):
        self.dense = lambda name: self.input("dense_" + name, batch["dense." + name])

    def gather(self, table, ids):
        return self.emit("Gather", table, ids)

    def bag(self, table, ids, pooling):
        return self.reduce(self.gather(table, ids), 1, pooling, keep=False)

    def reduce(self, x, axis, pooling, keep):
        if pooling == "sum":
            return self.emit("ReduceSum", x, self.integers([axis]), keepdims=int(keep))
        return self.emit({"mean": "ReduceMean", "max": "ReduceMax"}[pooling], x, axes=[axis], keepdims=int(keep))

    def linear(self, x, w, b):
        return self.emit("Gemm", *([x, w] if b is None else [x, w, b]), transB=1)

    def linear_onto(self, y, x, w):
        return self.emit("Gemm", x, w, y, transB=1)

    def grouped_linear(self, x, w, b, groups):
        """A product for each group: batched ones are slower, their weights are not packed beforehand."""
        _, out, width = self.constants[w].shape
        parts = []
        for g in range(groups):
            part = self.columns(x, g * width, (g + 1) * width)
            wg = self.weight((w, g), lambda g=g: self.constants[w][g])
            bg = None if b is None else self.weight((b, g), lambda g=g: self.constants[b][g])
            parts.append(self.linear(part, wg, bg))
        return self.concat(parts)

    def columns(self, x, begin, end):
        return self.emit("Slice", x, self.integers([begin]), self.integers([end]), self.integers([1]))

    def take_columns(self, x, columns):
        return self.emit("Gather", x, self.integers(columns.tolist()), axis=1)

    def add(self, a, b):
        return self.emit("Add", a, b)

    def sub(self, a, b):
        return self.emit("Sub", a, b)

    def mul(self, a, b):
        return self.emit("Mul", a, b)

    def matmul(self, a, b):
        return self.emit("MatMul", a, b)

    def transpose(self, x, axes):
        return self.emit("Transpose", x, perm=axes)

    def layer_norm(self, x, weight, bias, eps, width):
        scale = weight or self.weight(("ones", width), lambda: np.ones(width, np.float32))
        return self.emit("LayerNormalization", *([x, scale] if bias is None else [x, scale, bias]), epsilon=eps)

    def concat(self, parts):
        return self.emit("Concat", *parts, axis=-1)

    def reshape(self, x, shape):
        return self.emit("Reshape", x, self.integers(shape))

    def expand(self, x, shape):
        return self.emit("Expand", x, self.integers(shape))

    def softmax(self, x):
        return self.emit("Softmax", x, axis=-1)

    def function(self, kind, *operands_and_alpha):
        *operands, alpha = operands_and_alpha
        if kind == "silu":
            return self.mul(operands[0], self.function("sigmoid", *operands, alpha))
        if kind == "gelu":
            half, one, root = (self.weight(("number", n), lambda n=n: np.float32([n])) for n in (0.5, 1, 0.5**0.5))
            erf = self.emit("Erf", self.mul(operands[0], root))
            return self.mul(self.mul(operands[0], half), self.add(erf, one))
        attributes = {"alpha": alpha} if kind in ("leaky_relu", "elu") else {}
        return self.emit(self.FUNCTIONS[kind], *operands, **attributes)


def onnx_model(folder, form):
    """(bytes of the model, its inputs as arrays by name)."""
    from onnx import TensorProto, helper, numpy_helper

    model, ops = Model(folder, form), OnnxOps()
    ops.dense_of(folder.batch)
    outputs = model.run(ops)
    for name, value in outputs.items():
        ops.nodes.append(helper.make_node("Identity", [value], [name]))
    used = {name for node in ops.nodes for name in node.input}
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}
    graph = helper.make_graph(
        ops.nodes, "model",
        [helper.make_tensor_value_info(name, types[a.dtype], a.shape) for name, a in ops.inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, folder.scores[name].shape) for name in outputs],
        [numpy_helper.from_array(a, name) for name, a in ops.constants.items() if name in used])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return proto.SerializeToString(), ops.inputs


class Onnxruntime:
    name = "onnxruntime"

    def __init__(self, model, inputs, outputs, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.scores = {}
        for name, array in inputs.items():
            self.binding.bind_cpu_input(name, array)
        for name, shape in outputs.items():
            self.scores[name] = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, "cpu")
            self.binding.bind_ortvalue_output(name, self.scores[name])

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def results(self):
        return {name: value.numpy() for name, value in self.scores.items()}


class OpenVino:
    name = "openvino"

    def __init__(self, model, inputs, outputs, threads, own_precision=False):
        import openvino

        core = openvino.Core()
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        if not own_precision:
            options["INFERENCE_PRECISION_HINT"] = "f32"
        compiled = core.compile_model(core.read_model(model), "CPU", options)
        self.precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        self.request = compiled.create_infer_request()
        self.scores = {name: np.empty(shape, np.float32) for name, shape in outputs.items()}
        self.inputs = inputs  # shared, not copied
        for name, array in inputs.items():
            self.request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        for name, array in self.scores.items():
            self.request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run(self):
        self.request.start_async()
        self.request.wait()

    def results(self):
        return self.scores


def timed(engines, calls):
    """Seconds (by the clock, of the process) that `calls` batches take, on a thread for each engine."""
    def work(engine):
        for _ in range(calls):
            engine.run()

    threads = [threading.Thread(target=work, args=(engine,)) for engine in engines[1:]]
    process, wall = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    work(engines[0])
    for thread in threads:
        thread.join()
    return time.perf_counter() - wall, time.process_time() - process


def calls_for(run, seconds):
    """How many calls of run(calls), which returns what they took, take about so many seconds."""
    run(3)
    return max(1, int(seconds / (min(run(1) for _ in range(3)))))


def measure(contestants, rounds, seconds):
    """{key: run}, where run(calls) returns seconds: the least seconds of a call each, in turns, caches warmed up."""
    calls = {key: calls_for(run, seconds) for key, run in contestants.items()}
    least = {}
    for _ in range(rounds):
        for key, run in contestants.items():
            run(max(1, calls[key] // 4))  # what ran before has left its data in the caches
            least[key] = min(least.get(key, float("inf")), run(calls[key]) / calls[key])
    return least


def engines_of(engine_class, model, outputs, threads):
    """[(precision, that engine)]: FP32, and what the engine takes by itself where that is another."""
    engines = [("f32", engine_class(*model, outputs, threads))]
    if engine_class is OpenVino:
        own = OpenVino(*model, outputs, threads, own_precision=True)
        if own.precision != "f32":
            engines.append((own.precision, own))
    return engines


def bench(args, record, engine_classes, name, requests, items, path):
    runner = ModelRunner(args.run_model, name, path, requests, items, args.table_rows)
    folder = Folder(path)
    own_path = path + "/automatic"
    own_runner = ModelRunner(args.run_model, name, own_path, requests, items, args.table_rows, precision="automatic")
    own_error = folder.error_of(Folder(own_path).scores)
    outputs = {output: scores.shape for output, scores in folder.scores.items()}
    models = {form.name: onnx_model(folder, form) for form in FORMS}
    forms = {engine_class: list(models) for engine_class in engine_classes}
    for threads in args.threads:
        which = 1 if threads == 1 else 0  # of what is timed
        contestants, errors = {}, {("warprank", "automatic"): own_error}
        for precision, ours in (("f32", runner), ("automatic", own_runner)):
            if ours is own_runner and own_error == 0:  # it is FP32, too
                continue
            contestants["warprank", precision, ""] = lambda calls, r=ours: r.run(calls, 1, threads)[which]
            if threads > 1:
                contestants["warprank", precision, "side_by_side"] = (
                    lambda calls, r=ours: r.run(calls, threads)[which] / threads)
        for engine_class in engine_classes:
            for form in forms[engine_class]:
                for precision, engine in engines_of(engine_class, models[form], outputs, threads):
                    engine.run()
                    error = folder.error_of(engine.results())
                    if not error <= LARGEST_ERROR.get(precision, LARGEST_ERROR["bf16"]):
                        raise SystemExit(f"{name}: {engine.name}'s scores of the {form} model are off by {error}")
                    errors[engine.name, precision] = error
                    contestants[engine.name, precision, form] = lambda calls, e=[engine]: timed(e, calls)[which]
                    if threads > 1:  # or a batch on each
                        each = [engine_class(*models[form], outputs, 1, *([True] * (precision != "f32")))
                                for _ in range(threads)]
                        contestants[engine.name, precision, form + "_side_by_side"] = (
                            lambda calls, e=each: timed(e, calls)[which] / threads)
        times = measure(contestants, args.rounds, args.seconds)
        fp32 = {(engine, form): t for (engine, precision, form), t in times.items() if precision == "f32"}
        latency = fp32.pop(("warprank", ""))
        ours = min(latency, fp32.pop(("warprank", "side_by_side"), latency))
        counters = {"warprank_ms": ours * 1e3}
        counters.update({f"{engine}_{form}_ms": t * 1e3 for (engine, form), t in fp32.items()})
        if threads > 1:
            counters["warprank_latency_ms"] = latency * 1e3
            counters["latency_ratio"] = min(t for (_, form), t in fp32.items() if "side_by_side" not in form) / latency
        for engine_class in engine_classes:
            of_engine = {form: t for (engine, form), t in fp32.items() if engine == engine_class.name}
            counters[engine_class.name + "_ratio"] = min(of_engine.values()) / ours
            if threads == 1:  # on more threads, only its best and the naive one
                forms[engine_class] = sorted({"naive", min(of_engine, key=of_engine.get)})
        counters["ratio_to_naive"] = min(t for (_, form), t in fp32.items() if form.startswith("naive")) / ours
        counters["ratio_to_best"] = min(fp32.values()) / ours
        fastest = {}  # (engine, precision): seconds
        for (engine, precision, _), t in times.items():
            fastest[engine, precision] = min(fastest.get((engine, precision), t), t)
        for (engine, precision), t in fastest.items():
            if precision != "f32":
                counters[f"{engine}_{precision}_ms"] = t * 1e3
                counters[f"{engine}_{precision}_error"] = errors[engine, precision]
        our_fastest = min(t for (engine, _), t in fastest.items() if engine == "warprank")
        their_fastest = min(t for (engine, _), t in fastest.items() if engine != "warprank")
        counters["ratio_in_any_precision"] = their_fastest / our_fastest
        full_name = f"host_engines/{name}/requests:{requests}/items:{items}/threads:{threads}"
        record.add(full_name, ours, **counters)
        of_one = f", one batch {counters['latency_ratio']:5.2f}" if threads > 1 else ""
        print(f"{full_name:58} {ours * 1e3:8.3f} ms   over their best {counters['ratio_to_best']:5.2f}{of_one}, naive "
              f"{counters['ratio_to_naive']:5.2f}, in any precision {counters['ratio_in_any_precision']:5.2f}   " +
              "  ".join(f"{engine[:4]}.{precision}.{form} {t * 1e3:.3f}"
                        for (engine, precision, form), t in times.items()), flush=True)
    runner.close()
    own_runner.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_model", help="the program made of benchmarks/models/run_model.cpp")
    parser.add_argument("--out", help="where to write the record as JSON")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--table-rows", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each sample")
    args = parser.parse_args()

    classes, versions, missing = [], {}, []
    for engine_class in (Onnxruntime, OpenVino):
        try:
            versions[engine_class.name] = importlib.import_module(engine_class.name).__version__
            classes.append(engine_class)
        except ImportError as error:
            missing.append((engine_class.name, str(error)))
    try:
        importlib.import_module("onnx")
        importlib.import_module("safetensors")
    except ImportError as error:
        missing, classes = [("all", str(error))], []
    record = Record(engines=versions, clock="processor time of 1 thread; of more threads by the clock")
    for name, error in missing:
        print(f"skipped: {name}: {error}", flush=True)
        record.skip("host_engines/" + name, error)
    if classes:
        for name, requests, items in CASES:
            if name in args.models:
                with tempfile.TemporaryDirectory() as path:
                    bench(args, record, classes, name, requests, items, path)
                if args.out:  # what there is so far, should the time be over
                    record.save(args.out)
    if args.out:
        record.save(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
