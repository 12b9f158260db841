# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python/examples"), str(ROOT / "tests/python")]


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def scored(monkeypatch):
    """The rows of each part that offline scoring begins, the second of which is interrupted."""
    from warprank import offline

    parts, real = [], offline._scored

    def counted(model, requests, table, *rest):
        parts.append(table.num_rows)
        if len(parts) == 2:
            raise KeyboardInterrupt
        return real(model, requests, table, *rest)
    monkeypatch.setattr(offline, "_scored", counted)
    return parts
