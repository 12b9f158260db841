# SPDX-License-Identifier: Apache-2.0
"""From TensorFlow and Keras: feature columns and preprocessing layers as a file of transforms.

    transforms = warprank.keras.transforms_of(feature_columns)
    transforms.save("transforms.json")            # for Transforms.load, in Python and in C++
"""

from .transforms import transforms_of

__all__ = ["transforms_of"]
