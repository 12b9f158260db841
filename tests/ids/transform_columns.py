# SPDX-License-Identifier: Apache-2.0
"""The columns that transforms are tried with: the same values in Python and in C++ (transform_columns.hpp), so that
what TensorFlow makes of them can be kept as checksums. Each value is a function of its column's number and its own."""

import numpy as np

ROWS = 100000
BLOCKS = 10
# By column: its type, and how many values a row has; "ragged" is 0 to 4, and weights have the lengths of their ids.
COLUMNS = {"city": ("text", 1), "word": ("text", 1), "brand": ("text", 1), "user": ("i64", 1), "age_id": ("i64", 1),
           "level": ("i64", 1), "tags": ("text", "ragged"), "genres": ("text", "ragged"), "films": ("i64", "ragged"),
           "price": ("f32", 1), "history": ("text", "ragged"), "liked": ("text", "ragged"),
           "liked_weights": ("f32", "ragged"), "grid": ("f32", 1), "triple": ("text", 3)}
LENGTHS_OF = {"liked_weights": "liked"}
WIDTHS = {"grid": 3}


def mix(x):
    """uint64 arrays, or integers."""
    x = np.atleast_1d(np.asarray(x, np.uint64))
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def draw(column, kind, indices):
    return mix(np.uint64(column << 48 | kind << 40) | np.asarray(indices, np.uint64))


def number_of(name):
    return list(COLUMNS).index(name)


def offsets(name, rows=ROWS):
    """None: one value a row."""
    count = COLUMNS[name][1]
    if count == 1:
        return None
    if count == "ragged":
        lengths = (draw(number_of(LENGTHS_OF.get(name, name)), 9, np.arange(rows)) % np.uint64(5)).astype(np.int64)
    else:
        lengths = np.full(rows, count)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def texts(column, count):
    first = draw(column, 0, np.arange(count)).tolist()
    more = [draw(column, k, np.arange(count)).tolist() for k in range(1, 8)]
    values = []
    for i, r in enumerate(first):
        kind, n = r & 7, r >> 8
        if kind < 2:
            values.append(f"w{n % 60}")
        elif kind == 2:
            values.append(["", "[UNK]", "Zürich", "北京"][n % 4])
        elif kind == 3:
            values.append(str(more[0][i] - (1 << 64) if more[0][i] >> 63 else more[0][i]))
        elif kind == 4:
            values.append(f"{n & 0xFFFFFFFF:08x}")
        else:
            values.append("".join(f"{words[i]:016x}" for words in more)[:n % 100])
    return values


def integers(column, count):
    r, more = draw(column, 0, np.arange(count)), draw(column, 1, np.arange(count))
    small = (r >> np.uint64(8)).astype(np.int64) % 60 - 5
    kind = r & np.uint64(3)
    return np.where(kind < 2, small, np.where(kind == 2, more.astype(np.uint32).view(np.int32).astype(np.int64),
                                              more.view(np.int64)))


def fractions(r):
    """Multiples of 2^-16, -128 to 128."""
    return (((r >> np.uint64(8)).astype(np.int64) % (1 << 24)) - (1 << 23)).astype(np.float32) / np.float32(1 << 16)


def numbers(column, count):
    """Also any bits, NaN among them, but those of denormal numbers, which TensorFlow takes for 0."""
    r, more = draw(column, 0, np.arange(count)), draw(column, 1, np.arange(count))
    eighths = ((r >> np.uint64(8)).astype(np.int64) % 160).astype(np.float32) / np.float32(8) - np.float32(10)
    bits = more.astype(np.uint32)
    bits = np.where(bits & np.uint32(0x7F800000) == 0, bits | np.uint32(0x00800000), bits).view(np.float32)
    kind = r & np.uint64(3)
    return np.where(kind == 0, eighths, np.where(kind < 3, fractions(r), bits))


def weights(column, count):
    r = draw(column, 0, np.arange(count))
    kind = r & np.uint64(7)
    some = ((r >> np.uint64(8)).astype(np.int64) % 1024).astype(np.float32) / np.float32(64)
    return np.where(kind == 0, np.float32(0), np.where(kind == 1, np.float32(-1), some))


def column(name, rows=ROWS):
    """(values, offsets); numbers of several columns are [rows, width]."""
    begins = offsets(name, rows)
    count = rows if begins is None else int(begins[-1])
    number = number_of(name)
    if COLUMNS[name][0] == "text":
        return texts(number, count), begins
    if COLUMNS[name][0] == "i64":
        return integers(number, count), begins
    if name in LENGTHS_OF:
        return weights(number, count), begins
    if name in WIDTHS:
        return fractions(draw(number, 0, np.arange(count * WIDTHS[name]))).reshape(count, -1), begins
    return numbers(number, count), begins


def checksums(values):
    """Of a feature's values, block by block, as 16 hexadecimal digits each."""
    values = np.asarray(values).reshape(-1)
    if values.dtype == np.float32:
        bits = np.where(np.isnan(values), np.float32(np.nan).view(np.uint32), values.view(np.uint32)).astype(np.uint64)
    else:
        bits = values.astype(np.int64).view(np.uint64)
    terms = mix(bits ^ mix(np.arange(len(bits))))
    bounds = [len(bits) * b // BLOCKS for b in range(BLOCKS + 1)]
    return [f"{int(np.sum(terms[a:b], dtype=np.uint64)):016x}" for a, b in zip(bounds, bounds[1:])]
