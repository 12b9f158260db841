# SPDX-License-Identifier: Apache-2.0
"""The ids of include/warprank/ids/ for trainers: the same numbers for the same features, bit for bit, as docs/IDS.md
defines them. Needs Python 3.8 and nothing else.

    city, city_hour = Slot("city", 12), Slot("city x hour", 13)
    encode(city, "Berlin")
    encode(city_hour, cross(["Berlin", 17]))
    HashBuckets(1000).bucket("comedy")
    Boundaries([18, 25, 35]).bucket(31)

A value of a feature is a str (its UTF-8), bytes, an int of 64 bits (its decimal text) or a Fingerprint. Hashing takes
microseconds here; for whole data sets docs/IDS.md names functions of TensorFlow and SQL that give the same numbers.
"""

import bisect
import ctypes
import operator
from dataclasses import dataclass

SCHEME = "warprank-ids-1"
SLOT_BITS = 20
HASH_BITS = 44
NUM_SLOTS = 1 << SLOT_BITS

_MASK = (1 << 64) - 1
_HASH_MASK = (1 << HASH_BITS) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


@dataclass(frozen=True)
class Fingerprint:
    """The 64-bit fingerprint of one value of a feature, 0 to 2^64 - 1."""

    value: int

    def __post_init__(self):
        if not 0 <= self.value <= _MASK:
            raise ValueError(f"fingerprint: expected 0 to 2^64 - 1, got {self.value}")


@dataclass(frozen=True)
class Slot:
    """A feature's place in the ids. The name is for messages and not part of them."""

    name: str
    number: int

    def __post_init__(self):
        if not 0 <= operator.index(self.number) < NUM_SLOTS:
            raise ValueError(f"slot '{self.name}': expected a number from 0 to {NUM_SLOTS - 1}, got {self.number}")


def fingerprint(value):
    """The Fingerprint of a value of a feature."""
    if isinstance(value, Fingerprint):
        return value
    if isinstance(value, str):
        return Fingerprint(fingerprint64(value.encode()))
    if isinstance(value, (bytes, bytearray)):
        return Fingerprint(fingerprint64(bytes(value)))
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"value of a feature: expected text, bytes, an integer or a Fingerprint, got {value!r}")
    number = operator.index(value)
    if not -(1 << 63) <= number <= _MASK:
        raise ValueError(f"value of a feature: expected an integer of 64 bits, got {number}")
    return Fingerprint(fingerprint64(str(number).encode()))


def cross(parts):
    """The Fingerprint of a crossed feature, of two or more values in their order."""
    parts = [fingerprint(part) for part in parts]
    if len(parts) < 2:
        raise ValueError(f"cross: expected two parts or more, got {len(parts)}")
    value = 0xDECAFCAFFE
    for part in parts:
        value = _concatenate(value, part.value)
    return Fingerprint(value)


def pack(slot, bits):
    """The slot's number above the lowest 44 bits of `bits`: exact for integers below 2^44. An int64."""
    unsigned = slot.number << HASH_BITS | operator.index(bits) & _HASH_MASK
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def encode(slot, value):
    """The id of a value: the slot's number above the lowest 44 bits of the value's fingerprint. An int64."""
    return pack(slot, fingerprint(value).value)


def decode(id):
    """(slot's number, lowest 44 bits) of an id, given as int64 or uint64."""
    unsigned = operator.index(id) & _MASK
    return unsigned >> HASH_BITS, unsigned & _HASH_MASK


def check_distinct(slots):
    """Raises ValueError with every slot whose number another one has before it."""
    first, problems = {}, []
    for slot in slots:
        other = first.setdefault(slot.number, slot)
        if other is not slot:
            problems.append(
                f"slot '{slot.name}': expected a number of its own, got {slot.number}, which is that of '{other.name}'"
            )
    if problems:
        raise ValueError("\n".join(problems))


class HashBuckets:
    """The buckets of tf.strings.to_hash_bucket_fast; of a cross, those of tf.sparse.cross_hashed."""

    def __init__(self, num_buckets):
        self.num_buckets = operator.index(num_buckets)
        if not 1 <= self.num_buckets < 1 << 63:
            raise ValueError(f"hash buckets: expected a number of at least 1, got {num_buckets}")

    def bucket(self, value):
        return fingerprint(value).value % self.num_buckets


class Boundaries:
    """The intervals that strictly ascending boundaries cut, compared as 32-bit floats: 0 is below the first, i is
    [boundaries[i - 1], boundaries[i]), the number of boundaries is from the last on and NaN."""

    def __init__(self, boundaries):
        self.boundaries = [_to_float(boundary) for boundary in boundaries]
        if not self.boundaries:
            raise ValueError("boundaries: expected at least one, got 0")
        for i, boundary in enumerate(self.boundaries):
            if boundary != boundary or i > 0 and not self.boundaries[i - 1] < boundary:
                raise ValueError(f"boundary {i}: expected a number greater than the one before it, got {boundary}")

    def bucket(self, x):
        x = _to_float(x)
        return len(self.boundaries) if x != x else bisect.bisect_right(self.boundaries, x)


def fingerprint64(s):
    """FarmHash's Fingerprint64 of bytes, as an int from 0 to 2^64 - 1. The names are those of docs/IDS.md."""
    if len(s) <= 16:
        return _up_to_16(s)
    if len(s) <= 32:
        return _up_to_32(s)
    return _up_to_64(s) if len(s) <= 64 else _above_64(s)


def _to_float(x):
    return ctypes.c_float(x).value


def _word(s, begin, size=8):
    return int.from_bytes(s[begin : begin + size], "little")


def _rotate(x, right):
    x &= _MASK
    return x >> right | x << (64 - right) & _MASK


def _fold(x):
    x &= _MASK
    return x ^ x >> 47


def _join(u, v, m):
    return _fold((_fold((u ^ v) * m) ^ v) * m) * m & _MASK


def _mix(a, b, c, d):
    return _rotate(a + b, 43) + _rotate(c, 30) + d


def _join_four(a, b, c, d, k, m):
    return _join(_mix(a, b, c, d), a + _rotate(b + k, 18) + c, m)


def _up_to_16(s):
    n = len(s)
    m = _K2 + 2 * n
    if n >= 8:
        a, b = _word(s, 0) + _K2, _word(s, n - 8)
        return _join(_rotate(b, 37) * m + a, (_rotate(a, 25) + b) * m, m)
    if n >= 4:
        return _join(n + (_word(s, 0, 4) << 3), _word(s, n - 4, 4), m)
    if n == 0:
        return _K2
    y = s[0] + (s[n // 2] << 8)
    z = n + (s[n - 1] << 2)
    return _fold(y * _K2 ^ z * _K0) * _K2 & _MASK


def _up_to_32(s):
    n = len(s)
    m = _K2 + 2 * n
    return _join_four(_word(s, 0) * _K1, _word(s, 8), _word(s, n - 8) * m, _word(s, n - 16) * _K2, _K2, m)


def _up_to_64(s):
    n = len(s)
    m = _K2 + 2 * n
    a, b, c, d = _word(s, 0) * _K2, _word(s, 8), _word(s, n - 8) * m, _word(s, n - 16) * _K2
    g = (_mix(a, b, c, d) + _word(s, n - 32)) * m
    h = (_join_four(a, b, c, d, _K2, m) + _word(s, n - 24)) * m
    return _join_four(_word(s, 16) * m, _word(s, 24), g, h, a, m)


def _absorb_32(s, begin, a, b):
    last = _word(s, begin + 24)
    a += _word(s, begin)
    total = a + _word(s, begin + 8) + _word(s, begin + 16)
    return total + last & _MASK, _rotate(b + a + last, 21) + _rotate(total, 44) + a & _MASK


def _absorb_64(s, begin, state, m, weight):
    x, y, z, v, w = state
    next_x = (_rotate(x + y + v[0] + _word(s, begin + 8), 37) * m ^ w[1] * weight) & _MASK
    y = _rotate(y + v[1] + _word(s, begin + 48), 42) * m + v[0] * weight + _word(s, begin + 40) & _MASK
    next_z = _rotate(z + w[0], 33) * m & _MASK
    v = _absorb_32(s, begin, v[1] * m, next_x + w[0])
    w = _absorb_32(s, begin + 32, next_z + w[1], y + _word(s, begin + 16))
    return next_z, y, next_x, v, w


def _above_64(s):
    n, seed = len(s), 81
    y = seed * _K1 + 113
    state = seed * _K2 + _word(s, 0), y, _fold(y * _K2 + 113) * _K2, (0, 0), (0, 0)
    for begin in range(0, n - 64, 64):
        state = _absorb_64(s, begin, state, _K1, 1)
    x, y, z, v, w = state
    m = _K1 + 2 * (z & 0xFF)
    w = w[0] + (n - 1) % 64, w[1]
    v = v[0] + w[0], v[1]
    w = w[0] + v[0], w[1]
    x, y, z, v, w = _absorb_64(s, n - 64, (x, y, z, v, w), m, 9)
    return _join(_join(v[0], w[0], m) + _fold(y) * _K0 + z, _join(v[1], w[1], m) + x, m)


def _concatenate(first, second):
    m = 0xC6A4A7935BD1E995
    return _fold(_fold(((first ^ m) ^ _fold(second * m) * m) * m) * m)
