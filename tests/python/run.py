#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and runs its tests in a virtual environment that has nothing of the repository.

    run.py FOLDER [--torch | --tensorflow | --cuda] [--host ARCHIVE]

FOLDER keeps the build and the environment. ARCHIVE is the libwarprank_host.a of a build of the repository: the wheel is
linked with it, and does not compile the host engine again. With --torch the tests of exporting PyTorch modules and
models of ONNX run instead, which install PyTorch, torchrec, onnx and onnxruntime, with --tensorflow those of Keras models
and TensorFlow's features, which install TensorFlow, and with --cuda those of a wheel with CUDA, which has a build of its
own and needs nvcc, but no card.
Exits with 77, and says why, where packages cannot be installed.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
BUILD = ["scikit-build-core>=0.11", "nanobind>=3,<4", "ninja"]
PACKAGES = ["numpy", "pytest", "pyarrow", "pandas", "ml_dtypes", "mypy"]
TYPES = ["--strict", "--ignore-missing-imports", "--no-warn-return-any", "--no-warn-unused-ignores",
         "--disable-error-code", "type-arg"]
# torchrec's fbgemm is compiled for one version of PyTorch; torchrec itself asks for the fbgemm with CUDA, as well.
TORCH = ["numpy", "pytest", "ml_dtypes", "torch==2.14.*", "fbgemm-gpu-cpu==1.9.*", "tensordict", "torchmetrics==1.0.3",
         "tqdm", "pyre-extensions", "pyarrow", "onnx==1.23.*", "onnxruntime==1.32.*", "onnxscript==0.7.*"]
TORCHREC = ["torchrec==1.9.*"]
TENSORFLOW = ["numpy", "pytest", "pyarrow", "tensorflow-cpu>=2.16,<2.22"]
# Keras 2, whose SavedModels are tested, too. It asks for a TensorFlow that is not for processors alone.
KERAS_2 = ["tf_keras>=2.16,<2.22"]


def install(python, packages, *options):
    command = [python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "10", *options, *packages]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: {', '.join(map(str, packages))} cannot be installed:\n{done.stderr[-1000:]}")
        sys.exit(SKIPPED)


def environment(folder, packages, alone=()):
    """The Python of a virtual environment that has the packages, `alone` without what those ask for."""
    python, ready, wanted = folder / "bin/python", folder / "ready", "\n".join([*packages, *alone])
    if not ready.exists() or ready.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        install(python, packages)
        if alone:
            install(python, alone, "--no-deps")
        ready.write_text(wanted)
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--torch", action="store_true")
    which.add_argument("--tensorflow", action="store_true")
    which.add_argument("--cuda", action="store_true")
    parser.add_argument("--host", type=Path, metavar="ARCHIVE")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()

    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        print("skipped: this Python has no headers (Debian: python3-dev)")
        sys.exit(SKIPPED)
    # One command from a clean clone would be `pip wheel .`; with the packages kept it needs no network the second time.
    builder = environment(folder / "builder", BUILD)
    wheels = folder / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    # Always said, as the build's folder remembers what it was told before.
    host = arguments.host.resolve() if arguments.host else ""
    options = ["-C", f"cmake.define.WARPRANK_HOST_ARCHIVE={host}"]
    if arguments.cuda:
        options += ["-C", "cmake.define.WARPRANK_CUDA=ON"]
    subprocess.run([builder, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", wheels, "-C",
                    f"build-dir={folder / ('build_cuda' if arguments.cuda else 'build')}", *options, ROOT], check=True,
                   env=os.environ | {"PATH": f"{builder.parent}:{os.environ['PATH']}"})
    name, packages, tests = (("torchrec", TORCH, ["torch", "onnx"]) if arguments.torch else
                             ("tensorflow", TENSORFLOW, ["keras"]) if arguments.tensorflow else
                             ("tests", PACKAGES, ["cuda"]) if arguments.cuda else
                             ("tests", PACKAGES, ["core"]))
    alone = TORCHREC if arguments.torch else KERAS_2 if arguments.tensorflow else ()
    python = environment(folder / name, packages, alone)
    install(python, wheels.glob("*.whl"), "--no-deps", "--force-reinstall")

    checks = [["-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests/python" / each] for each in tests]
    if tests == ["core"]:
        checks.append(["-m", "mypy", "--cache-dir", folder / "mypy", *TYPES, "-p", "warprank"])
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Not in the folder itself, whose environments mypy would take for the packages of their names.
    failed = [c for c in checks if subprocess.run([python, *c], cwd=folder / name, env=clean).returncode != 0]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
