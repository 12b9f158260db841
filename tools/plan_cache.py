#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts, from ids that were asked for, which share of look-ups a cache of a table's rows on the device has, against
the bytes that it takes (docs/TIERS.md): a table, and with --svg a picture.

    tools/plan_cache.py film_ids.txt --row-bytes 128 --svg film.svg

Files of ids: text, an id in each line; .npy, one-dimensional, of integers; or recorded requests, blobs of
docs/BATCH_FORMAT.md end to end, of which --input tells the number of the ids input.

The program cache_hits of the build has the cache: its buckets, and the engine's own choice of keys.
"""

import argparse
import ast
import os
import re
import struct
import subprocess
import sys
from array import array

import svg

MASK = (1 << 64) - 1
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class NoPrediction(Exception):
    pass


def hits_of(ids, *arguments, program=f"{ROOT}/build/cpu/tools/cache_hits"):
    """[(bytes, hits, look-ups that were counted)]"""
    try:
        done = subprocess.run([program, *map(str, arguments)], input=array("Q", ids).tobytes(), capture_output=True)
    except OSError as error:
        raise NoPrediction(f"{program}: {error.strerror}; cmake --build --preset cpu --target cache_hits makes it, and "
                           "--program tells another place") from None
    if done.returncode != 0:
        raise NoPrediction((done.stderr or done.stdout).decode().strip())
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


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
    parser.add_argument("--program", help="cache_hits (default: the one of the preset cpu)")
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
    arguments = ["--row-bytes", options.row_bytes, "--rows", table_rows, "--batch", options.batch,
                 "--ids-per-pass", options.ids_per_pass, "--skip", num_warm_up]
    if options.bytes:
        arguments += ["--bytes", *options.bytes]
    try:
        predicted = hits_of(ids, *arguments, **({"program": options.program} if options.program else {}))
    except NoPrediction as error:
        sys.exit(str(error))

    before = set(ids[:num_warm_up])
    print(f"{len(ids)} ids, {different} different; a table of {table_rows} rows of {options.row_bytes} bytes")
    print(f"counted behind the first {num_warm_up}, of which "
          f"{sum(i in before for i in ids[num_warm_up:]) / (len(ids) - num_warm_up):.1%} were asked for before\n")
    print(f"{'device bytes':>14}  {'of all rows':>11}  {'hit ratio':>9}  {'bus bytes/look-up':>17}")
    points = []
    for size, hits, counted in predicted:
        ratio = hits / counted
        points.append((size, ratio))
        print(f"{size:>14}  {size / (table_rows * options.row_bytes):>11.1%}  {ratio:>9.1%}  "
              f"{(1 - ratio) * options.row_bytes:>17.1f}")
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw(points, f"{options.ids}: {table_rows} rows of {options.row_bytes} bytes"))


if __name__ == "__main__":
    main()
