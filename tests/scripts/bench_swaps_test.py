#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tools/bench_swaps.py makes of the requests and swaps of a run."""

import math
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import bench_swaps


def request(at, ms):
    return {"event": "request", "at_s": str(at), "ms": str(ms)}


def swap(at, ms):
    return {"event": "swap", "at_s": str(at), "ms": str(ms)}


def drawn(seed, factor=1.0, slots=40, size=500):
    random_of_seed = random.Random(seed)
    return [sorted(factor * random_of_seed.lognormvariate(0, 1) for _ in range(size)) for _ in range(slots)]


class Slots(unittest.TestCase):
    def test_requests_belong_to_the_slot_in_which_they_arrive(self):
        events = [request(0.1, 5), request(3.9, 9000), request(2.0, 7), request(1.9, 3), swap(2.0, 1500),
                  request(8.5, 1), request(-0.5, 4)]
        self.assertEqual(bench_swaps.slots_of(events, 2, 5), ([[3, 5]], [[7, 9000]]))

    def test_a_swap_that_lasts_into_the_next_slot_is_refused(self):
        with self.assertRaisesRegex(ValueError, r"within a slot of 2 s .* got one of 2100 ms in slot 1"):
            bench_swaps.slots_of([swap(2.0, 2100)], 2, 4)

    def test_a_swap_in_the_wrong_slot_is_refused(self):
        with self.assertRaisesRegex(ValueError, "odd number, got one of 10 ms in slot 2"):
            bench_swaps.slots_of([swap(2.0, 10), swap(4.0, 10)], 2, 8)

    def test_a_missing_swap_is_refused(self):
        with self.assertRaisesRegex(ValueError, "expected 2 swaps, one in each second slot, got 1"):
            bench_swaps.slots_of([swap(2.0, 10)], 2, 8)


class Ratio(unittest.TestCase):
    def test_a_percentile_is_that_of_all_requests_together(self):
        slots = drawn(1) + [[], [1e6]]
        together = sorted(ms for slot in slots for ms in slot)
        for share in (0.5, 0.99, 0.999, 1):
            self.assertEqual(bench_swaps.percentile(slots, share), together[math.ceil(share * len(together)) - 1])

    def test_the_interval_has_one_where_nothing_differs(self):
        ratio, lower, upper = bench_swaps.ratio_and_interval(drawn(1), drawn(2), draws=400)
        self.assertLess(lower, ratio)
        self.assertGreater(upper, ratio)
        self.assertLess(lower, 1)
        self.assertGreater(upper, 1)

    def test_the_interval_does_not_have_one_where_all_is_twice_as_slow(self):
        ratio, lower, upper = bench_swaps.ratio_and_interval(drawn(1), drawn(2, 2.0), draws=400)
        self.assertTrue(1.2 < lower <= ratio <= upper < 3.5, (lower, ratio, upper))

    def test_one_slow_slot_of_many_widens_the_interval(self):
        slow = drawn(2)
        slow[0] = [100 * ms for ms in slow[0]]
        _, lower, upper = bench_swaps.ratio_and_interval(drawn(1), slow, draws=400)
        self.assertLess(lower, 1.2)
        self.assertGreater(upper, 3)


if __name__ == "__main__":
    unittest.main()
