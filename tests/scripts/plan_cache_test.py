#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/plan_cache.py predicts what a cache does that is simulated, and reads each kind of file. The first argument is
the program cache_hits."""

import contextlib
import io
import os
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/tools")
import plan_cache  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1))


def skewed_ids(count, table_rows):
    """As tests/engine/cuda_table_cache_kernel_test.cpp draws them."""
    ids, state = [], 1
    for _ in range(count):
        id_ = table_rows
        for _ in range(3):
            state = (state * 6364136223846793005 + 1442695040888963407) & plan_cache.MASK
            id_ = id_ * (state >> 33) >> 31
        ids.append(id_)
    return ids


def blob(rows, ids, dense=(), version=1):
    """A request, docs/BATCH_FORMAT.md: rows of each axis; values of each input, None where it is not set, and of ids
    whether they are narrow."""
    flags = bytes(int(is_narrow) for _, is_narrow in ids) + bytes(len(dense)) if version == 2 else b""
    head = 40 + 8 * len(rows) + 4 * (len(ids) + len(dense)) + len(flags)
    places, body = [], bytes(-head % 8)
    for values, code in [(values, "i" if is_narrow else "q") for values, is_narrow in ids] + [(v, "f") for v in dense]:
        places.append(0 if values is None else head + len(body))
        section = struct.pack(f"<{len(values or [])}{code}", *(values or []))
        body += section + bytes(-len(section) % 8)
    numbers = [len(rows), len(ids), len(dense), 0, *rows, *[0 for _ in rows], *places]
    return b"warprank" + struct.pack(f"<IIQ{len(numbers)}I", version, head + len(body), 0, *numbers) + flags + body


class PlanCache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, data):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def run_it(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            plan_cache.main([*map(str, arguments), "--program", PROGRAM])
        return output.getvalue()

    def refusal(self, name, data, *more):
        with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()):
            self.run_it(self.write(name, data), "--row-bytes", 64, *more)
        return str(refused.exception.code)

    def test_predicts_what_the_cache_is_held_against(self):
        with open(f"{ROOT}/tests/engine/planned_cache.txt", encoding="utf-8") as file:
            lines = [list(map(int, line.split())) for line in file]
        self.assertGreater(len(lines), 2)
        bucket_bytes = 384  # of rows of 16 bytes
        for buckets, num_ids, batch, batches_per_pass, hits in lines:
            self.assertEqual(self.hits_of(skewed_ids(num_ids, 5000), 16, 5000, batch, batch * batches_per_pass, 0,
                                          buckets * bucket_bytes), [(buckets * bucket_bytes, hits, num_ids)])

    def hits_of(self, ids, row_bytes, rows, batch, ids_per_pass, skip, *budgets):
        arguments = ["--row-bytes", row_bytes, "--rows", rows, "--batch", batch, "--ids-per-pass", ids_per_pass,
                     "--skip", skip, *(["--bytes", *budgets] if budgets else [])]
        return plan_cache.hits_of(ids, *arguments, program=PROGRAM)

    def test_says_as_much_as_the_library_does(self):
        # tests/engine/placement_test.cpp has the buckets of such rows, of which there are at least 4.
        self.assertEqual([size for size, _, _ in self.hits_of([1], 64, 9, 1, 1, 0)], [4 * 1152])
        self.assertEqual([size for size, _, _ in self.hits_of([1], 24, 70, 1, 1, 0)], [4 * 640, 8 * 640])
        # An id that is asked for all the time is found whenever a pass has seen it.
        ids = [7, 8, 1, 7, 7, 9, 9, 8, 7]
        self.assertEqual(self.hits_of(ids, 64, 1000, 3, 3, 0, 1 << 20), [(112 * 1152, 5, 9)])
        self.assertEqual(self.hits_of(ids, 64, 1000, 3, 3, 3, 1 << 20), [(112 * 1152, 5, 6)])
        self.assertEqual(self.hits_of([2**64 - 1, 0, 2**64 - 1, 0], 2, 9, 2, 2, 0)[0][1:], (2, 4))

    def test_reads_each_kind_of_file(self):
        ids = [3, -1, 1 << 40, 3]
        wanted = [i & plan_cache.MASK for i in ids]
        header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }".ljust(118) + b"\n"
        npy = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack("<4q", *ids)
        text = "".join(f"{i}\n" for i in ids).encode()
        for name, data in (("a.txt", text), ("a.npy", npy)):
            self.assertEqual(plan_cache.read_ids(self.write(name, data), 1), wanted, name)

    def test_reads_each_section_of_blobs(self):
        def read(data, number):
            return plan_cache.read_ids(self.write("a.blobs", data), number)

        # Not set, set, not set, set; then dense values.
        wide = blob([1, 3], [(None, 0), ([7], 0), (None, 0), ([8, -1, 9], 0)], [None, [1.5, 2.5, 3.5]])
        for number, wanted in enumerate(([], [7], [], [8, plan_cache.MASK, 9])):
            self.assertEqual(read(wide, number), wanted)
        # Three axes, of which two have an odd number of rows; with dense inputs the types are further behind.
        narrow = blob([1, 3, 5], [([1], 1), ([2, 3, 4], 0), ([5, -2, 7, 8, 9], 1)], [[0.5]], 2)
        for number, wanted in enumerate(([1], [2, 3, 4], [5, plan_cache.MASK - 1, 7, 8, 9])):
            self.assertEqual(read(narrow, number), wanted)
        # What is behind the places of version 1 are no types.
        self.assertEqual(read(blob([1, 2], [([1], 0), ([5, 6], 0)]), 0), [1])
        # Requests one after the other, and rows of none.
        self.assertEqual(read(wide + blob([1, 0], [(None, 0), ([6], 0)]) + wide, 1), [7, 6, 7])
        self.assertEqual(read(blob([1, 0], [([], 1), ([4], 0)], (), 2), 0), [])

    def test_prints_a_table_and_draws_it(self):
        path = self.write("ids.txt", "".join(f"{i}\n" for i in skewed_ids(4000, 3000)).encode())
        picture = os.path.join(self.folder.name, "picture.svg")
        lines = self.run_it(path, "--row-bytes", 64, "--batch", 50, "--ids-per-pass", 100, "--svg", picture).splitlines()
        rows = [line.split() for line in lines[4:]]
        self.assertGreater(len(rows), 3)
        ratios = [float(row[2].rstrip("%")) for row in rows]
        self.assertEqual(ratios, sorted(ratios))
        self.assertLess(ratios[0], ratios[-1] - 20)
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}circle")), len(rows))

    def test_says_what_is_wrong(self):
        self.assertIn("a.txt:2: expected an id, got b'film'", self.refusal("a.txt", b"1\nfilm\n"))
        self.assertIn("expected ids, got none", self.refusal("a.txt", b"\n"))
        self.assertIn("expected ids of 64 bits, got 18446744073709551616", self.refusal("a.txt", b"18446744073709551616"))
        self.assertIn("expected NumPy's format", self.refusal("a.npy", b"1\n"))
        floats = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"
        self.assertIn("of integers, little-endian, got <f8", self.refusal(
            "a.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(floats)) + floats + bytes(8)))
        good = blob([1, 2], [([1], 0), ([2, 3], 0)])
        for what, at, bytes_ in (("version", 8, b"\3"), ("size", 12, b"\x5c"), ("axes", 25, b"\1"),
                                 ("place in the head", 56, b"\x08"), ("places in another order", 56, b"\x50"),
                                 ("place behind the end", 60, b"\xf8")):
            bad = good[:at] + bytes_ + good[at + 1:] + bytes(8)
            self.assertIn("a whole blob", self.refusal("a.blobs", bad, "--input", 0), what)
        types_missing = blob([1, 2], [(None, 0), (None, 0)])[:8] + b"\2" + blob([1, 2], [(None, 0), (None, 0)])[9:]
        for bad in (good[:-8], types_missing):
            self.assertIn("a whole blob", self.refusal("a.blobs", bad))
        self.assertIn("byte 88: expected a blob", self.refusal("a.blobs", good + bytes(48)))
        for number in (2, -1):
            self.assertIn(f"below 2, got {number}", self.refusal("a.blobs", good, "--input", number))
        self.assertIn("at least 4608, 4 buckets of its rows, got 4607", self.refusal("a.txt", b"1\n", "--bytes", 4607))
        self.assertIn("expected 2 or more", self.refusal("a.txt", b"1\n2\n", "--rows", 1))
        for path in ("nowhere", self.folder.name):
            with self.assertRaises(SystemExit):
                self.run_it(path, "--row-bytes", 64)
        with self.assertRaises(plan_cache.NoPrediction) as refused:
            plan_cache.hits_of([1], program="nowhere")
        self.assertIn("nowhere: No such file", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
