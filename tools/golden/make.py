#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/*.safetensors: requests, weights, and what PyTorch makes of them in float64. Needs PyTorch and
tools/requirements.txt.

    tools/golden/make.py              all files
    tools/golden/make.py linear dlrm  these
"""

import sys

import models
import ops

wanted = sys.argv[1:]
cases = {case.__name__: case for case in ops.CASES + models.CASES}
unknown = set(wanted) - set(cases)
if unknown:
    sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
for name, case in cases.items():
    if not wanted or name in wanted:
        case()
