#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That a program contains the kernels of the targets that it is compiled for, all of them and no others."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../../..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import kernel_report  # noqa: E402


def kernels_for(*architectures):
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]
    with tempfile.TemporaryDirectory() as folder:
        unit = f"{folder}/kernels.o"
        subprocess.run([kernel_report.find_nvcc(), "-std=c++17", f"-I{ROOT}/include", *codes, "-c", "-o", unit,
                        f"{HERE}/kernels.cu"], check=True)
        symbols = subprocess.run(["nm", "-C", unit], check=True, capture_output=True, text=True).stdout
    return sorted({int(target) for target in re.findall(r"chosen_kernel<(\d+)>", symbols)})


class Targets(unittest.TestCase):
    def test_one_architecture_has_the_kernels_that_it_runs(self):
        self.assertEqual(kernels_for(75), [75])
        self.assertEqual(kernels_for(86), [80])

    def test_several_have_those_of_all(self):
        self.assertEqual(kernels_for(75, 89), [75, 80])
        self.assertEqual(kernels_for(75, 80, 90), [75, 80, 90])


if __name__ == "__main__":
    unittest.main()
