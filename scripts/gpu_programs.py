# SPDX-License-Identifier: Apache-2.0
"""Which programs for a GPU there are: by their sources, or in a bundle by what it says; and what they need."""

import glob
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = ["embed_in_service", "tune_linears"]  # those that run_bundle.py runs


def read_bundle():
    """What scripts/package_benchmarks.sh says about the bundle that this is in; None in a source tree."""
    try:
        with open(f"{ROOT}/bundle.json", encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return None


BUNDLE = read_bundle()


def names_of(folder, ending):
    """Sources in the folder that end so, by the names of their programs."""
    sources = glob.glob(f"{ROOT}/{folder}/**/*{ending}", recursive=True)
    return sorted(os.path.splitext(os.path.relpath(source, f"{ROOT}/{folder}"))[0].replace("/", "_") + "_gpu"
                  for source in sources)


def bundled(ending):
    return sorted({name for names in BUNDLE["programs"].values() for name in names if name.endswith(ending)})


def test_programs():
    """Names of all tests for a GPU, as tests/gpu/CMakeLists.txt makes them."""
    if BUNDLE:
        return bundled("_kernel_test_gpu") + bundled("gpu_two_libraries")
    return names_of("tests", "_kernel_test.cpp") + ["gpu_two_libraries"]


def benchmark_programs():
    return bundled("_bench_gpu") if BUNDLE else names_of("benchmarks", "_bench.cu")


def measuring_programs():
    return [*benchmark_programs(), "models_run_model", *EXAMPLES]


def has_cublaslt():
    """Whether the toolkit can compile what uses it."""
    nvcc = shutil.which("nvcc")
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else "/usr/local/cuda"
    return any(glob.glob(f"{toolkit}/{folder}/cublasLt.h") for folder in ("include", "targets/*/include"))


def find_library(name):
    """The folder of a library that the loader does not find by itself, "" when it does, None when it is nowhere."""
    if os.path.exists("/sbin/ldconfig"):
        if name in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout:
            return ""
    packages = [path for path in sys.path if path]
    packages += [f"{root}/lib/python3*/{kind}-packages" for root in ("/usr", "/usr/local") for kind in ("site", "dist")]
    toolkits = ["/usr/local/cuda*", os.environ.get("CUDA_HOME", "/nowhere")]
    places = [f"{toolkit}/{folder}" for toolkit in toolkits for folder in ("lib64", "targets/*/lib")]
    places += [f"{package}/nvidia/{folder}/lib" for package in packages for folder in ("cu*", "cublas")]
    return next((os.path.dirname(path) for place in places for path in sorted(glob.glob(f"{place}/{name}"))), None)
