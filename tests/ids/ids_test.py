#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/ids.py gives the ids of tests/ids/vectors.json, and tells what is wrong. Needs Python alone."""

import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import ids  # noqa: E402

VECTORS = json.loads((ROOT / "tests/ids/vectors.json").read_text())


class Vectors(unittest.TestCase):
    def test_scheme(self):
        self.assertEqual(VECTORS["scheme"], ids.SCHEME)

    def test_texts(self):
        for vector in VECTORS["texts"]:
            text = bytes.fromhex(vector["bytes"])
            self.assertEqual(f"{ids.fingerprint(text).value:016x}", vector["fingerprint"], text)
        self.assertEqual(ids.fingerprint("Zürich"), ids.fingerprint("Zürich".encode()))

    def test_integers(self):
        for vector in VECTORS["integers"]:
            self.assertEqual(f"{ids.fingerprint(vector['integer']).value:016x}", vector["fingerprint"], vector)
        self.assertEqual(ids.fingerprint(2**64 - 1), ids.fingerprint("18446744073709551615"))

    def test_crosses(self):
        for vector in VECTORS["crosses"]:
            parts = [
                bytes.fromhex(part["bytes"]) if "bytes" in part else ids.Fingerprint(int(part["fingerprint"], 16))
                for part in vector["parts"]
            ]
            self.assertEqual(f"{ids.cross(parts).value:016x}", vector["fingerprint"], vector)

    def test_ids(self):
        for vector in VECTORS["ids"]:
            slot, text = ids.Slot("any", vector["slot"]), bytes.fromhex(vector["bytes"])
            id = ids.encode(slot, text)
            self.assertEqual(id, vector["id"])
            hash = ids.fingerprint(text).value % 2**44
            self.assertEqual(ids.decode(id), (slot.number, hash))
            self.assertEqual(ids.decode(id % 2**64), (slot.number, hash))
            self.assertEqual(ids.pack(slot, hash), id)

    def test_hash_buckets(self):
        for vector in VECTORS["hash_buckets"]:
            buckets = ids.HashBuckets(vector["num_buckets"])
            self.assertEqual(buckets.bucket(bytes.fromhex(vector["bytes"])), vector["bucket"], vector)

    def test_boundaries(self):
        for vector in VECTORS["boundaries"]:
            boundaries = ids.Boundaries([float(b) for b in vector["boundaries"]])
            self.assertEqual([boundaries.bucket(float(x)) for x in vector["x"]], vector["bucket"], vector)
        self.assertEqual(ids.Boundaries([1e38]).bucket(1e300), 1)


class WrongArguments(unittest.TestCase):
    def test_are_told(self):
        nan = float("nan")
        for message, call in [
            ("slot 'city': expected a number from 0 to 1048575, got 1048576", lambda: ids.Slot("city", 2**20)),
            ("got -1", lambda: ids.Slot("city", -1)),
            ("hash buckets: expected a number of at least 1, got 0", lambda: ids.HashBuckets(0)),
            ("boundaries: expected at least one", lambda: ids.Boundaries([])),
            ("boundary 2: expected a number greater", lambda: ids.Boundaries([18, 35, 25])),
            ("boundary 1", lambda: ids.Boundaries([18, 18])),
            ("boundary 1: .* one before it", lambda: ids.Boundaries([2**24, 2**24 + 1])),
            ("boundary 0", lambda: ids.Boundaries([nan])),
            ("cross: expected two parts or more, got 1", lambda: ids.cross(["a"])),
            ("integer of 64 bits", lambda: ids.fingerprint(2**64)),
            ("integer of 64 bits", lambda: ids.fingerprint(-(2**63) - 1)),
            ("fingerprint: expected 0 to", lambda: ids.Fingerprint(2**64)),
            (
                "slot 'film': expected a number of its own, got 12, which is that of 'city'",
                lambda: ids.check_distinct([ids.Slot("city", 12), ids.Slot("hour", 13), ids.Slot("film", 12)]),
            ),
        ]:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                call()
        ids.check_distinct([ids.Slot("city", 12), ids.Slot("hour", 13)])

    def test_have_a_plain_text(self):
        for value in (True, 1.5, None, ["a"]):
            with self.subTest(value), self.assertRaisesRegex(TypeError, "value of a feature"):
                ids.fingerprint(value)


if __name__ == "__main__":
    unittest.main()
