#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/package_benchmarks.sh does, which says what that is."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import uuid

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, f"{os.path.dirname(SCRIPTS)}/tools"]
import gpu_programs  # noqa: E402
import records  # noqa: E402
from gpu_programs import ROOT  # noqa: E402

MOST_BYTES = 60 << 20
# Of the C library and the driver: they are the machine's own.
NOT_TAKEN = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|mvec|dl|rt|pthread|util|cuda|nvidia-ml))\.so.*")
AT_RUN_TIME = re.compile(r"libcublasLt\.so.*")
DRIVER_DATA = ["tests/counts.json", "include/warprank/ops/detail/linear/tiling.hpp",
               "include/warprank/ops/launch_policies.hpp", "include/warprank/device/requirements.hpp"]
DATA = ["tests/golden", "tests/ids/vectors.json", "examples/movielens/weights", "examples/movielens/golden",
        *DRIVER_DATA, "LICENSE"]
DRIVER = [f"scripts/{name}.py" for name in ("run_bundle", "gpu_programs", "gpu_progress", "gpu_runner", "time_plan")]
RUN = """#!/usr/bin/env bash
# Runs everything on the card of this machine: ./run OUTDIR [--minutes N] [--quick]
exec python3 "$(dirname "$(realpath "$0")")/scripts/run_bundle.py" "$@"
"""


def stop(text):
    sys.exit(f"scripts/package_benchmarks.sh: {text}")


def flags_for_debian11(folder, build_folder):
    """For CMake: to link against the C library of FOLDER/root, with static libraries besides. Code is compiled against
    this system's headers; what it asks of a newer C library is in cmake/glibc_2_31.c."""
    root = os.path.realpath(f"{folder}/root")
    libraries = f"{root}/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    if not os.path.isfile(f"{libraries}/libc.so"):
        stop(f"expected a system to link against, as scripts/fetch_debian11.sh makes it, got {folder!r} without "
             f"{os.path.relpath(libraries, root)}/libc.so")
    os.makedirs(build_folder, exist_ok=True)
    added = os.path.realpath(f"{build_folder}/glibc_2_31.o")
    subprocess.run(["cc", "-O2", "-c", f"{ROOT}/cmake/glibc_2_31.c", "-o", added], check=True)
    flags = f"--sysroot={root} -B{libraries} -L{libraries} -static-libstdc++ -static-libgcc {added}"
    return [f"-DCMAKE_EXE_LINKER_FLAGS={flags}", f"-DCMAKE_SHARED_LINKER_FLAGS={flags}",
            f"-DCMAKE_PREFIX_PATH={os.path.realpath(folder)}/static"]


def cuda_version():
    """Of the toolkit that builds, as "12.4"; empty where there is none."""
    found = re.search(r"release (\d+\.\d+)", records.output_of(["nvcc", "--version"]))
    return found[1] if found else ""


def compression():
    """What nvcc calls it: CUDA 12.8 was the first to have modes."""
    return ["-Xfatbin=-compress-all", "--compress-mode=size"][records.version_numbers(cuda_version()) >= [12, 8]]


def configure_command(folder, architectures, cublaslt, with_benchmarks, debian11="", toolkit=""):
    flag = "ON" if with_benchmarks else "OFF"
    command = ["cmake", "-S", ROOT, "-B", folder, "-D", "CMAKE_BUILD_TYPE=Release", "-D", "WARPRANK_CUDA=ON",
               "-D", f"CMAKE_CUDA_ARCHITECTURES={architectures}", "-D", "CMAKE_CUDA_RUNTIME_LIBRARY=Static",
               "-D", f"WARPRANK_CUBLASLT={'ON' if cublaslt else 'OFF'}", "-D", f"WARPRANK_BUILD_BENCHMARKS={flag}",
               "-D", f"WARPRANK_BUILD_EXAMPLES={flag}", "-D", "WARPRANK_DATA_ROOT=.",
               "-D", "CMAKE_BUILD_RPATH=$ORIGIN/../../lib", "-D", f"CMAKE_CUDA_FLAGS={compression()}",
               "-D", f"WARPRANK_BENCH_WITHOUT_CUBLASLT={'OFF' if cublaslt else 'ON'}"]
    if toolkit and cublaslt:
        command += cublaslt_of(toolkit)
    if debian11:
        command += flags_for_debian11(debian11, folder)
    elif os.path.isdir(f"{ROOT}/.deps/usr"):
        command += ["-D", f"CMAKE_PREFIX_PATH={ROOT}/.deps/usr"]
    return command + (["-G", "Ninja"] if shutil.which("ninja") else [])


def build_command(folder, targets):
    return ["cmake", "--build", folder, "--parallel", str(os.cpu_count()), "--target", *targets]


def libraries_of(path):
    """{name: path or "not found"} of what the loader takes for a program, but for what is behind the libraries that are
    looked for at run time."""
    text = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    places = dict(re.findall(r"^\s*(\S+) => (\S+|not found)", text, re.M))
    found, readers = {}, [path]
    while readers:
        needed = subprocess.run(["objdump", "-p", readers.pop()], capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"^\s*NEEDED\s+(\S+)$", needed, re.M):
            if name not in found and name in places:
                found[name] = places[name]
                if not AT_RUN_TIME.fullmatch(name) and os.path.isfile(places[name]):
                    readers.append(places[name])
    return found


def cublaslt_of(toolkit):
    """For CMake, which would take that of another toolkit that lies where libraries of the system do."""
    stub = f"{toolkit}/lib64/stubs/libcublasLt.so"
    return ["-D", f"CUDA_cublasLt_LIBRARY={stub}"] if os.path.isfile(stub) else []


def newest_glibc(paths):
    versions = set()
    for path in paths:
        with open(path, "rb") as file:
            versions |= {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_(\d+\.\d+)", file.read())}
    return ".".join(map(str, max(versions, default=(0, 0))))


def find_program(folder, name):
    return next((path for kind in ("tests/gpu", "benchmarks", "examples")
                 if os.access(path := f"{folder}/{kind}/{name}", os.X_OK)), None)


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.[ch]pp"))
    else:
        shutil.copy2(source, target)


def assemble(bundle, built, facts):
    """Fills the folder; returns what its bundle.json says."""
    programs, taken, needs = {}, {}, set()
    for build_name, (folder, names) in built.items():
        programs[build_name] = names
        for name in names:
            path = find_program(folder, name)
            for library, place in libraries_of(path).items():
                if AT_RUN_TIME.fullmatch(library):
                    needs.add(library)
                elif place == "not found":
                    stop(f"{name} needs {library}, which is not here")
                elif not NOT_TAKEN.fullmatch(library):
                    taken[library] = place
            target = f"{bundle}/bin/{build_name}/{name}"
            copy(path, target)
            subprocess.run(["strip", target], check=True)
    for library, place in taken.items():
        copy(place, f"{bundle}/lib/{library}")
        subprocess.run(["strip", "--strip-unneeded", f"{bundle}/lib/{library}"], check=False)
    for path in DATA:
        copy(f"{ROOT}/{path}", f"{bundle}/{path}")
    for name in gpu_programs.EXAMPLES:  # which find their weights beside themselves
        os.makedirs(f"{bundle}/examples/{name}")
    for path in [*DRIVER, *(f"tools/{name}" for name in os.listdir(f"{ROOT}/tools") if name.endswith(".py"))]:
        copy(f"{ROOT}/{path}", f"{bundle}/{path}")
    with open(f"{bundle}/run", "w", encoding="utf-8") as file:
        file.write(RUN)
    os.chmod(f"{bundle}/run", 0o755)
    everything = [f"{at}/{name}" for part in ("bin", "lib") for at, _, names in os.walk(f"{bundle}/{part}")
                  for name in names]
    says = {**facts, "cuda": cuda_version(), "glibc": newest_glibc(everything), "needs": sorted(needs), "libraries": sorted(taken),
            "programs": programs}
    with open(f"{bundle}/bundle.json", "w", encoding="utf-8") as file:
        json.dump(says, file, indent=1)
    return says


def main():
    parser = argparse.ArgumentParser(prog="scripts/package_benchmarks.sh", description="Packs what a card is to run.")
    parser.add_argument("archive", help="the file to make, as lab.tar.xz")
    parser.add_argument("--only", default="", help="a regular expression for names of programs")
    parser.add_argument("--architectures", default="75-real;80-real;90",
                        help="of the programs for cards, as CMake takes them (default: %(default)s)")
    parser.add_argument("--without-cublaslt", action="store_true",
                        help="for machines that have none: no program needs it, or measures beside it")
    parser.add_argument("--cuda", default="", help="a folder as scripts/fetch_cuda.sh makes it")
    parser.add_argument("--debian11", default="", help="a folder as scripts/fetch_debian11.sh makes it")
    options = parser.parse_args()
    tests = [name for name in gpu_programs.test_programs() if re.search(options.only, name)]
    measuring = [name for name in gpu_programs.measuring_programs() if re.search(options.only, name)]
    if not tests + measuring:
        stop(f"expected --only to match a program, got {options.only!r}")
    toolkit = os.path.realpath(options.cuda) if options.cuda else ""
    if toolkit:
        compiler = f"{toolkit}/bin/nvcc"
        if not os.access(compiler, os.X_OK):
            stop(f"expected a toolkit, as scripts/fetch_cuda.sh makes it, got {options.cuda!r} without bin/nvcc")
        os.environ.update(CUDACXX=compiler, PATH=f"{os.path.dirname(compiler)}:{os.environ['PATH']}")
    cublaslt = not options.without_cublaslt
    if cublaslt and not gpu_programs.has_cublaslt():
        stop("the toolkit has no cublasLt.h; --without-cublaslt does without")
    root = os.environ.get("WARPRANK_BUILD", f"{ROOT}/build")
    kind = f"lab-cuda{cuda_version().split('.')[0]}" if options.cuda else "lab"
    built = {"card": (f"{root}/{kind}-card", tests + measuring), "t4": (f"{root}/{kind}-t4", tests)}
    for name, architectures in (("card", options.architectures), ("t4", "75-virtual")):
        folder, targets = built[name]
        if not targets:
            continue
        for step in (configure_command(folder, architectures, cublaslt, name == "card", options.debian11, toolkit),
                     build_command(folder, targets)):
            if subprocess.run(step, cwd=ROOT, stdout=sys.stderr, check=False).returncode != 0:
                stop(f"{' '.join(step[:4])} ... failed")
    commit = records.commit()
    with tempfile.TemporaryDirectory() as folder:
        bundle = f"{folder}/warprank-lab-{commit}"
        os.makedirs(bundle)
        facts = {"commit": commit, "id": uuid.uuid4().hex, "architectures": options.architectures}
        says = assemble(bundle, built, facts)
        # Programs have the engine and the runtime in common: a dictionary that reaches across them, by their names, and
        # one thread, as several compress apart. Two programs on the engine take 7.7 MB so, and 13.4 by themselves.
        subprocess.run(["tar", "-C", folder, "--owner=0", "--group=0", "--sort=name", "-cJf",
                        os.path.abspath(options.archive), os.path.basename(bundle)], check=True,
                       env={**os.environ, "XZ_OPT": "--lzma2=preset=6,dict=128MiB"})
    num_bytes = os.path.getsize(options.archive)
    print(f"{options.archive}: {num_bytes / 2**20:.1f} MiB, {sum(map(len, says['programs'].values()))} programs, glibc "
          f"{says['glibc']} or newer; at run time: {', '.join(says['needs']) or 'nothing'}")
    if num_bytes > MOST_BYTES:
        stop(f"expected an archive of at most {MOST_BYTES >> 20} MiB")


if __name__ == "__main__":
    main()
