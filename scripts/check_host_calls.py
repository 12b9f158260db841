#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds what nvcc does not refuse: calls of __device__ functions on the host, in templates, and launches of kernels that
its passes for devices have not seen.

    scripts/check_host_calls.py OBJECT...

For such a call nvcc compiles a stub that ends the process with status 1 and says nothing. Our programs never call exit by
themselves, so whatever in their objects refers to it is such a call, and is named. For such a kernel, which device::launch
takes the address of, it compiles one that calls cudaLaunchKernel, without a kernel, and nothing else.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import elf  # noqa: E402


def demangled(names):
    try:
        done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return names
    return done.stdout.splitlines()


def main():
    failed = False
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            references = elf.references(file.read())
        found = {"calls a __device__ function on the host, where it ends the process": lambda to: "exit" in to,
                 "launches a kernel for which there is no code": lambda to: to == {"cudaLaunchKernel"}}
        for what, is_it in found.items():
            names = demangled(sorted(name for name, to in references.items() if is_it(to)))
            for name in sorted({name.split(" [clone")[0] for name in names}):
                print(f"{path}: error: {what}: {name}")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
