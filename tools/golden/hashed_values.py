# SPDX-License-Identifier: Apache-2.0
"""Weights too large to store, made alike here and by tests/support/hashed_values.hpp, bit for bit:

    bits(name, i) = the i-th output, from 0, of splitmix64 (Steele, Lea, Flood 2014) seeded with the 64-bit FNV-1a hash
                    of the name's bytes
    x(name, i)    = (bits >> 48) / 2^15 - 1, in [-1, 1)

| Tensor                           | Element i                                                            |
|----------------------------------|----------------------------------------------------------------------|
| a matrix, [.., in]               | x / 2^e, with the least e >= 0 such that 3 * 4^e >= in               |
| "*.running_var"                  | 1 + x / 2                                                            |
| any other vector                 | x / 8                                                                |
| a table's rows                   | x                                                                    |
| a table's keys                   | bits, as a signed integer                                            |

All are exact in float32."""

import numpy as np
import torch


def bits(name, count):
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, *shape):
    x = (bits(name, int(np.prod(shape))) >> np.uint64(48)).astype(np.float64) / 2**15 - 1
    return torch.from_numpy(x.reshape(shape))


def weight(name, *shape):
    x = uniform(name, *shape)
    if name.endswith(".running_var"):
        return 1 + x / 2
    if not name.endswith(".weight") or len(shape) == 1:
        return x / 8
    exponent = 0
    while 3 * 4**exponent < shape[-1]:
        exponent += 1
    return x / 2**exponent


def keys(name, count):
    return bits(name, count).astype(np.int64)
