# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(3)
    keras.backend.clear_session()


@pytest.fixture
def trained(rng):
    """A model with statistics, slopes and biases that are not those of a new one."""
    def train(model):
        for variable in model.weights:
            name = variable.path.rpartition("/")[2]
            if name not in ("embeddings", "kernel") and variable.dtype == "float32":
                low, high = (0.5, 2) if name in ("gamma", "moving_variance") else (-0.5, 0.5)
                variable.assign(rng.uniform(low, high, variable.shape).astype(np.float32))
        return model
    return train
