#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts, from ids that were asked for, which share of look-ups a cache of a table's rows on the device has, against
the bytes that it takes (docs/TIERS.md): a table, and with --svg a picture. Needs nothing but Python.

    tools/plan_cache.py film_ids.txt --row-bytes 128 --svg film.svg

Files of ids: text, an id in each line; .npy, one-dimensional, of integers; or recorded requests, blobs of
docs/BATCH_FORMAT.md end to end, of which --input tells the number of the ids input.

What is simulated is the cache of include/warprank/engine/cuda/table_cache.cuh: its buckets, its sketch of frequencies,
and what its passes admit and evict, with two simplifications. Of keys of a bucket that a batch finds one alone is marked, as
if all look-ups of a batch were made at the same time; and what a row that was evicted leaves is free at once. Every id
has a row.
"""

import argparse
import ast
import re
import struct
import sys
from array import array

import svg

MASK = (1 << 64) - 1
SEED = 0x7D1CE5F0E1A2B394
POSITIONS, MIN_BUCKETS, FULL_BUCKET = 13, 4, 9  # row_cache::num_positions; CacheLayout::keys_of_a_bucket
MARKS = 4096  # CacheLayout::mark_capacity
LEAST_COUNTED, COUNTED_FOR_EACH = 1 << 14, 10  # of TableCache
HALVES = bytes(value // 2 for value in range(256))


def fmix64(h):
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return h ^ h >> 33


def bucket_bytes(row_bytes):
    """Of hash_table::shape_of for rows that change: a line, and 15 rows."""
    return (128 + 15 * ((row_bytes + 15) // 16 * 16) + 127) // 128 * 128


class Sketch:
    """FrequencySketch."""

    def __init__(self, keys):
        self.lines = max(1, keys // 16)
        self.counters = bytearray(64 * self.lines)
        self.places = {}

    def places_of(self, key):
        places = self.places.get(key)
        if places is None:
            h = fmix64(key ^ 0x5BD1E9955BD1E995)
            line = 64 * (h * self.lines >> 64)
            places = self.places[key] = tuple(line + 16 * i + (h >> 4 * i & 15) for i in range(4))
        return places

    def add(self, key):
        for place in self.places_of(key):
            if self.counters[place] < 255:
                self.counters[place] += 1

    def estimate(self, key):
        return min(self.counters[place] for place in self.places_of(key))

    def halve(self):
        self.counters = self.counters.translate(HALVES)


class Cache:
    """TableCache, of a table of so many rows."""

    def __init__(self, device_bytes, row_bytes, table_rows):
        wanted = table_rows // FULL_BUCKET + 1
        self.num_buckets = max(MIN_BUCKETS, min(device_bytes // bucket_bytes(row_bytes), wanted))
        self.bytes = self.num_buckets * bucket_bytes(row_bytes)
        self.buckets = {}  # by number: a key or None at each position
        self.keys = {}  # with the number of its bucket
        self.found = set()  # since a pass saw their bucket
        self.sketch = Sketch(max(self.num_buckets * POSITIONS, LEAST_COUNTED))
        self.num_counted = 0

    def bucket(self, number):
        return self.buckets.setdefault(number, [None] * POSITIONS)

    def first(self, key):
        return fmix64(key ^ SEED) * self.num_buckets >> 64

    def second(self, key):
        h = fmix64(key ^ SEED)
        other = (h * 0x9E3779B97F4A7C15 & MASK) * (self.num_buckets - 1) >> 64
        return other + (other >= (h * self.num_buckets >> 64))

    def look_up(self, ids, batch):
        """Of what comes between two passes, by so many at a time: how many were found. Then makes the pass."""
        missed = [key for key in ids if key not in self.keys]
        for begin in range(0, len(ids), batch):
            marked = {self.keys[key]: key for key in ids[begin : begin + batch]
                      if key not in self.found and key in self.keys}
            self.found.update(marked.values())
        self.make_pass(missed[:MARKS])
        return len(ids) - len(missed)

    def count(self, key):
        self.sketch.add(key)
        self.num_counted += 1

    def make_pass(self, missed):
        missed = sorted(set(missed))
        held = {}  # by bucket: [key, whether it was found]
        for number in {self.first(key) for key in missed}:
            held[number] = [[key, key in self.found] for key in self.bucket(number) if key is not None]
        for key in missed:
            self.count(key)
        for entries in held.values():
            for key, was_found in entries:
                if was_found:
                    self.count(key)
                    self.found.discard(key)
        missed.sort(key=lambda key: -self.sketch.estimate(key))
        room = {number: POSITIONS - len(entries) for number, entries in held.items()}
        num_keys, has_room_until = len(self.keys), self.num_buckets * FULL_BUCKET
        victims, admitted = [], []
        for key in missed:
            number = self.first(key)
            if room[number] > 0:
                room[number] -= 1
            elif num_keys >= has_room_until:
                entries = held[number]
                victim = min(entries, key=lambda e: (e[1], self.sketch.estimate(e[0])), default=None)
                if victim is None or self.sketch.estimate(victim[0]) >= self.sketch.estimate(key):
                    continue
                victims.append((victim[0], number))
                entries.remove(victim)
                num_keys -= 1
            num_keys += 1
            admitted.append(key)
        if self.num_counted >= COUNTED_FOR_EACH * self.num_buckets * POSITIONS:
            self.sketch.halve()
            self.num_counted = 0
        for key, number in victims:
            keys = self.bucket(number)
            keys[keys.index(key)] = None
            del self.keys[key]
            self.found.discard(key)
        for key in admitted:
            for number in (self.first(key), self.second(key)):
                keys = self.bucket(number)
                if None in keys:
                    keys[keys.index(None)] = key
                    self.keys[key] = number
                    break


def hit_ratio(ids, cache, batch, ids_per_pass, warm_up):
    """Of the ids behind the first `warm_up`."""
    hits = counted = 0
    for begin in range(0, len(ids), ids_per_pass):
        some = ids[begin : begin + ids_per_pass]
        found = cache.look_up(some, batch)
        if begin >= warm_up:
            hits += found
            counted += len(some)
    return hits / counted


# ---- Files


class BadFile(Exception):
    pass


def ids_of_npy(data, path):
    if data[:6] != b"\x93NUMPY" or len(data) < 12 or data[6] not in (1, 2, 3):
        raise BadFile(f"{path}: expected NumPy's format 1 to 3")
    begin, length = (10, struct.unpack_from("<H", data, 8)) if data[6] == 1 else (12, struct.unpack_from("<I", data, 8))
    try:
        header = ast.literal_eval(data[begin : begin + length[0]].decode("latin-1"))
        kind, shape = header["descr"], header["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise BadFile(f"{path}: expected a header of NumPy's, got {error!r}") from None
    code = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}.get(str(kind)[1:])
    if code is None or str(kind)[0] not in "<|" or len(shape) != 1:
        raise BadFile(f"{path}: expected one dimension of integers, little-endian, got {kind} {shape}")
    ids = array(code)
    values = data[begin + length[0] :]
    if len(values) != shape[0] * ids.itemsize:
        raise BadFile(f"{path}: expected {shape[0] * ids.itemsize} bytes of ids, got {len(values)}")
    ids.frombytes(values)
    return list(ids)


def ids_of_blobs(data, path, number):
    ids, at = [], 0
    while at < len(data):
        what = f"{path}: the request at byte {at}"
        if data[at : at + 8] != b"warprank" or len(data) < at + 40:
            raise BadFile(f"{what}: expected a blob, docs/BATCH_FORMAT.md")
        version, size = struct.unpack_from("<II", data, at + 8)
        axes, inputs, dense = struct.unpack_from("<III", data, at + 24)
        begin = at + 40 + 8 * axes
        head = begin - at + (5 if version == 2 else 4) * (inputs + dense)
        is_whole = version in (1, 2) and size % 8 == 0 and head <= size <= len(data) - at
        places = struct.unpack_from(f"<{inputs + dense}I", data, begin) if is_whole else ()
        sections = [head, *(place for place in places if place != 0), size]
        if not is_whole or sections != sorted(sections):
            raise BadFile(f"{what}: expected a whole blob of version 1 or 2")
        if not 0 <= number < inputs:
            raise BadFile(f"{what}: expected an input of ids below {inputs}, got {number}")
        if places[number] != 0:
            is_narrow = version == 2 and data[begin + 4 * (inputs + dense) + number] == 1
            end = next((place for place in places[number + 1 :] if place != 0), size)
            count = (end - places[number]) // (4 if is_narrow else 8)
            if is_narrow and count not in struct.unpack_from(f"<{axes}I", data, at + 40):
                count -= 1  # the rows of no axis: zeros are behind the last id
            ids += struct.unpack_from(f"<{count}{'i' if is_narrow else 'q'}", data, at + places[number])
        at += size
    return ids


def ids_of_text(data, path):
    ids = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                ids.append(int(line))
            except ValueError:
                raise BadFile(f"{path}:{number}: expected an id, got {line[:40]!r}") from None
    return ids


def read_ids(path, number):
    with open(path, "rb") as file:
        data = file.read()
    ids = ids_of_npy(data, path) if path.endswith(".npy") else \
        ids_of_blobs(data, path, number) if data[:8] == b"warprank" else ids_of_text(data, path)
    wrong = next((i for i in ids if not -(1 << 63) <= i < 1 << 64), None)
    if wrong is not None:
        raise BadFile(f"{path}: expected ids of 64 bits, got {wrong}")
    return [i & MASK for i in ids]


# ---- What is told


def bytes_of(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected bytes, as 4096, 64M or 1.5G, got {text!r}")
    return int(float(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]])


def budgets_for(table_rows, row_bytes):
    """From all rows down by halves, ten at most."""
    budgets = [(table_rows // FULL_BUCKET + 1) * bucket_bytes(row_bytes)]
    while len(budgets) < 10 and budgets[-1] // 2 >= MIN_BUCKETS * bucket_bytes(row_bytes):
        budgets.append(budgets[-1] // 2)
    return budgets[::-1]


def draw(points, label):
    """points: [(bytes, ratio)]."""
    megabytes = [(size / 1e6, ratio) for size, ratio in points]
    ticks = svg.decades(megabytes[0][0], megabytes[-1][0])
    picture = svg.Picture(400)
    x = svg.logarithmic(ticks, picture.left, picture.right)
    y = svg.linear([0, 1], picture.bottom, picture.top)
    picture.y_axis([i / 5 for i in range(6)], y, "share of look-ups found on the device, predicted")
    picture.x_axis(ticks, x, "MB on the device")
    picture.line([(x(size), y(ratio)) for size, ratio in megabytes], svg.COLOURS[0], ' stroke-width="2"')
    for size, ratio in megabytes:
        picture.circle(x(size), y(ratio), svg.COLOURS[0], f"{size:.3g} MB: {ratio:.1%}")
    picture.legend([label])
    return picture.svg()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", help="a file of ids, in the order in which they were asked for")
    parser.add_argument("--row-bytes", type=int, required=True,
                        help="bytes of a row: 4 or 2 for each column; of I8 1 for each, up to a multiple of 4, and 8")
    parser.add_argument("--rows", type=int, help="rows of the table (default: as many as there are different ids)")
    parser.add_argument("--bytes", type=bytes_of, nargs="+", help="budgets, as 64M (default: all rows, and by halves)")
    parser.add_argument("--batch", type=int, default=1024, help="look-ups of a batch in this table")
    parser.add_argument("--ids-per-pass", type=int, default=4096, help="look-ups in LoadOptions::cache_pass_seconds")
    parser.add_argument("--warm-up", type=float, default=0.5, help="share of the ids that come before any is counted")
    parser.add_argument("--input", type=int, default=0, help="of recorded requests: the number of the ids input")
    parser.add_argument("--svg", help="the picture to write")
    options = parser.parse_args(arguments)
    if not 2 <= options.row_bytes <= 1024:
        parser.error(f"--row-bytes: expected 2 to 1024, got {options.row_bytes}")
    if not 1 <= options.batch <= options.ids_per_pass:
        parser.error(f"--batch: expected 1 to --ids-per-pass, {options.ids_per_pass}, got {options.batch}")
    if not 0 <= options.warm_up < 1:
        parser.error(f"--warm-up: expected 0 or more, and less than 1, got {options.warm_up}")
    try:
        ids = read_ids(options.ids, options.input)
    except (BadFile, OSError) as error:
        sys.exit(str(error))
    num_warm_up = int(len(ids) * options.warm_up)
    num_warm_up -= num_warm_up % options.ids_per_pass
    if not ids:
        sys.exit(f"{options.ids}: expected ids, got none")
    different = len(set(ids))
    table_rows = options.rows or different
    if table_rows < different:
        sys.exit(f"--rows: expected {different} or more, as there are so many different ids, got {table_rows}")
    least = MIN_BUCKETS * bucket_bytes(options.row_bytes)
    budgets = sorted(options.bytes or budgets_for(table_rows, options.row_bytes)) or [least]
    if budgets[0] < least:
        sys.exit(f"--bytes: expected at least {least}, {MIN_BUCKETS} buckets of its rows, got {budgets[0]}")

    before = set(ids[:num_warm_up])
    print(f"{len(ids)} ids, {different} different; a table of {table_rows} rows of {options.row_bytes} bytes")
    print(f"counted behind the first {num_warm_up}, of which "
          f"{sum(i in before for i in ids[num_warm_up:]) / (len(ids) - num_warm_up):.1%} were asked for before\n")
    print(f"{'device bytes':>14}  {'of all rows':>11}  {'hit ratio':>9}  {'bus bytes/look-up':>17}")
    points = []
    for budget in budgets:
        cache = Cache(budget, options.row_bytes, table_rows)
        ratio = hit_ratio(ids, cache, options.batch, options.ids_per_pass, num_warm_up)
        points.append((cache.bytes, ratio))
        print(f"{cache.bytes:>14}  {cache.bytes / (table_rows * options.row_bytes):>11.1%}  {ratio:>9.1%}  "
              f"{(1 - ratio) * options.row_bytes:>17.1f}", flush=True)
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw(points, f"{options.ids}: {table_rows} rows of {options.row_bytes} bytes"))


if __name__ == "__main__":
    main()
