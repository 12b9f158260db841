# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/examples"))


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def rng():
    return np.random.default_rng(7)
