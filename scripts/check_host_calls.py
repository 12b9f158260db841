#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds calls of __device__ functions on the host, which nvcc does not refuse in templates.

    scripts/check_host_calls.py OBJECT...

For each such call nvcc compiles a stub that ends the process with status 1 and says nothing. Our programs never call
exit by themselves, so whatever in their objects refers to it is such a call, and is named.
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
            names = elf.callers(file.read(), "exit")
        for name in sorted({name.split(" [clone")[0] for name in demangled(names)}):
            print(f"{path}: error: calls a __device__ function on the host, where it ends the process: {name}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
