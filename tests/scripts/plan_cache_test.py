#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/plan_cache.py predicts what a cache does that is simulated, and reads each kind of file."""

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


def blob(values, is_narrow):
    """A request of 1 user with rows of one axis, and two inputs of ids: the first is not set, the second `values`."""
    size = 64 + (8 if is_narrow else 0)
    body = struct.pack(f"<{len(values)}{'i' if is_narrow else 'q'}", *values)
    body += bytes(-len(body) % 8)
    head = b"warprank" + struct.pack("<IIQIIII", 2 if is_narrow else 1, size + len(body), 0, 2, 2, 0, 0)
    head += struct.pack("<II II II", 1, len(values), 0, 0, 0, size) + bytes([0, 1] if is_narrow else [])
    return head + bytes(size - len(head)) + body


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
            plan_cache.main([str(argument) for argument in arguments])
        return output.getvalue()

    def refusal(self, name, data, *more):
        with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()):
            self.run_it(self.write(name, data), "--row-bytes", 64, *more)
        return str(refused.exception.code)

    def test_predicts_what_the_cache_is_held_against(self):
        with open(f"{ROOT}/tests/engine/planned_cache.txt", encoding="utf-8") as file:
            lines = [list(map(int, line.split())) for line in file]
        self.assertGreater(len(lines), 2)
        for buckets, num_ids, batch, batches_per_pass, hits in lines:
            cache = plan_cache.Cache(buckets * plan_cache.bucket_bytes(16), 16, 5000)
            self.assertEqual(cache.num_buckets, buckets)
            ratio = plan_cache.hit_ratio(skewed_ids(num_ids, 5000), cache, batch, batch * batches_per_pass, 0)
            self.assertEqual(round(ratio * num_ids), hits, f"{buckets} buckets")

    def test_says_as_much_as_the_library_does(self):
        self.assertEqual(plan_cache.bucket_bytes(64), 1152)  # tests/engine/placement_test.cpp
        self.assertEqual(plan_cache.bucket_bytes(24), 640)
        # An id that is asked for all the time is found whenever a pass has seen it.
        cache = plan_cache.Cache(1 << 20, 64, 1000)
        self.assertEqual([cache.look_up(ids, 3) for ids in ([7, 8], [7, 7, 9], [9, 8, 7])], [0, 2, 3])

    def test_reads_each_kind_of_file(self):
        ids = [3, -1, 1 << 40, 3]
        wanted = [i & plan_cache.MASK for i in ids]
        header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }".ljust(118) + b"\n"
        npy = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack("<4q", *ids)
        text = "".join(f"{i}\n" for i in ids).encode()
        for name, data in (("a.txt", text), ("a.npy", npy), ("a.blobs", blob(ids[:1], False) + blob(ids[1:], False))):
            self.assertEqual(plan_cache.read_ids(self.write(name, data), 1), wanted, name)
        narrow = blob([5, 6, 7], True) + blob([], True) + blob([-2, 8], True)
        self.assertEqual(plan_cache.read_ids(self.write("b.blobs", narrow), 1),
                         [5, 6, 7, plan_cache.MASK - 1, 8])
        self.assertEqual(plan_cache.read_ids(self.write("b.blobs", narrow), 0), [])

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
        self.assertIn("a whole blob", self.refusal("a.blobs", blob([1, 2], False)[:-8]))
        self.assertIn("below 2, got 2", self.refusal("a.blobs", blob([1, 2], False), "--input", 2))
        self.assertIn("at least 4608, 4 buckets of its rows, got 4607", self.refusal("a.txt", b"1\n", "--bytes", 4607))
        self.assertIn("expected 2 or more", self.refusal("a.txt", b"1\n2\n", "--rows", 1))
        for path in ("nowhere", self.folder.name):
            with self.assertRaises(SystemExit):
                self.run_it(path, "--row-bytes", 64)


if __name__ == "__main__":
    unittest.main()
