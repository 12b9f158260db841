#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/policies.py finds the constants that times were made with, and chooses by them."""

import glob
import json
import os
import random
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [f"{ROOT}/tools", f"{ROOT}/scripts"]
import policies  # noqa: E402
import run_bundle  # noqa: E402

TILING = """
constexpr int nominal_multiprocessors(int target) { return target >= 90 ? 132 : target >= 80 ? 108 : 40; }
inline constexpr std::array<TileShape, 2> tile_shapes{{
    {"direct 16 x 16", 16, 16, 8, 3, 0, 0, 0, 3, true, false, true},
    {"staged 64 x 64", 64, 64, 4, 0, 32, 32, 4, 3, true, true, true},
}};
"""
CONSTANTS = {"direct 16 x 16": [2, 0.02, 0.005, 0.04], "staged 64 x 64": [2.5, 0.75, 0.13, 0.01]}
JOIN, JOIN_PER_CARD = 2.25, 0.5


def time_of(tile, rows, columns, size, parts):
    """By the formula of tiling.hpp, on a T4."""
    of_rows, inputs, outputs = size
    steps = -(-(-(-inputs // 32)) // parts)
    blocks = -(-of_rows // rows) * -(-outputs // columns) * parts
    begin, per_wave, per_step, per_card = CONSTANTS[tile]
    waves, join = -(-blocks // 40), JOIN + JOIN_PER_CARD * blocks / 40 if parts > 1 else 0
    return begin + waves * (per_wave + per_step * steps) + per_card * steps * blocks / 40 + join


def record(noise=0.0, name="T4", capability="7.5"):
    draw, measured = random.Random(7), []
    for inputs, outputs in ((256, 256), (600, 256), (1024, 1024), (2528, 2048)):
        for rows in (1, 16, 50, 100, 500, 1000):
            size = (rows, inputs, outputs)
            ways = {"direct 16 x 16": time_of("direct 16 x 16", 16, 16, size, 1),
                    "staged 64 x 64": time_of("staged 64 x 64", 64, 64, size, 1), "cublaslt": 0.5}
            for parts in (2, 4):
                ways[f"staged 64 x 64 in {parts} parts"] = time_of("staged 64 x 64", 64, 64, size, parts)
            measured.append({"name": f"linear/in:{inputs}/out:{outputs}/rows:{rows}/warm/iterations:20/manual_time",
                             "iterations": 20,
                             **{f"us {way}": us * (1 + noise * draw.uniform(-1, 1)) for way, us in ways.items()}})
    return {"machine": {"card": name, "compute capability": capability},
            "benchmarks": {policies.LINEAR_SWEEP: measured}}


class Policies(unittest.TestCase):
    def test_finds_the_constants(self):
        fit = policies.LinearFit(record(), TILING)
        self.assertEqual((fit.target, fit.multiprocessors), (75, 40))
        self.assertEqual(fit.constants,
                         {"direct 16 x 16": [2, 0.02, 0.005, 0.04, 0, 0],
                          "staged 64 x 64": [2.5, 0.75, 0.13, 0.01, JOIN, JOIN_PER_CARD]})
        self.assertEqual({round(loss, 9) for loss in fit.losses().values()}, {1})

    def test_noise_moves_them_little(self):
        fit = policies.LinearFit(record(noise=0.01), TILING)
        for tile, expected in CONSTANTS.items():
            for got, value in zip(fit.constants[tile], expected):
                self.assertAlmostEqual(got, value, delta=0.05 * value + 0.01)
        self.assertLess(max(fit.losses().values()), 1.08)

    def test_a_library_is_no_way_of_ours(self):
        fit = policies.LinearFit(record(), TILING)
        self.assertGreater(min(fit.best.values()), 2)
        head, *rows = policies.linear_sweep_table(record(), TILING)
        self.assertEqual(head[-1], "cublaslt us")
        self.assertEqual(rows[0], ["in:256/out:256/rows:1", "direct 16 x 16", "2.19", "direct 16 x 16", "2.19", "0.50"])

    def test_the_newest_record_of_a_card_counts(self):
        records = [("new", record()), ("old", record(noise=0.3)), ("h100", record(capability="9.0"))]
        text = policies.linear_costs_text(records, TILING)
        self.assertEqual(re.findall(r"results/(\w+)\.json", text), ["new", "h100"])
        self.assertLess(text.index("{75, true, {{"), text.index("{90, true, {{"))
        self.assertIn("{2.5, 0.75, 0.13, 0.01, 2.25, 0.5},  // staged 64 x 64", text)

    def test_a_simulated_card_counts_where_none_was_measured_and_is_called_so(self):
        simulated, measured = record(noise=0.3), record()
        simulated["machine"]["simulated"] = "by tools/t4"
        text = policies.linear_costs_text([("of_a_model", simulated), ("h100", record(capability="9.0"))], TILING)
        self.assertIn("T4, simulated, not measured, benchmarks/results/of_a_model.json", text)
        self.assertEqual(re.findall(r"\{(\d+), (true|false), ", text), [("75", "false"), ("90", "true")])
        self.assertEqual(policies.linear_costs_text([("of_a_model", simulated), ("t4", measured)], TILING),
                         policies.linear_costs_text([("t4", measured)], TILING))

    def test_a_sweep_that_was_cut_short_decides_nothing(self):
        cut = record()
        cut["benchmarks"][policies.LINEAR_SWEEP][5:] = []
        with self.assertRaisesRegex(ValueError, "expected 6 sizes or more of .*, got [0-5]"):
            policies.LinearFit(cut, TILING)
        with self.assertRaisesRegex(ValueError, "expected a record with sweeps_linear_bench_gpu, got none"):
            policies.linear_costs_text([("cut", cut)], TILING)
        self.assertEqual(len(policies.linear_sweep_table(cut, TILING)), 6)

    def test_a_sweep_that_a_run_cut_off_decides_nothing_however_much_it_has(self):
        cut = record(noise=0.5)
        cut["steps"] = [["card", policies.LINEAR_SWEEP, "left out: cut off", "", "5"]]
        self.assertEqual(policies.linear_costs_text([("cut", cut), ("whole", record())], TILING),
                         policies.linear_costs_text([("whole", record())], TILING))
        cut["steps"][0][2] = "ok"
        self.assertIn("/cut.json", policies.linear_costs_text([("cut", cut), ("whole", record())], TILING))

    def test_a_t4_takes_what_is_best_by_its_record_at_500_rows(self):
        with open(f"{ROOT}/benchmarks/results/t4-simulated/gpu.json", encoding="utf-8") as file:
            simulated = json.load(file)
        with open(f"{ROOT}/{policies.TILING}", encoding="utf-8") as file:
            fit = policies.LinearFit(simulated, file.read())
        losses = {size: loss for size, loss in fit.losses().items() if size[0] == 500}
        self.assertGreater(len(losses), 5)
        self.assertLess(max(losses.values()), 1.02, losses)
        self.assertEqual(fit.picked((500, 64, 256)), "staged 64 x 64")
        self.assertEqual(fit.picked((500, 512, 3456)), "staged 64 x 64")

    def test_other_sweeps_show_the_best_beside_the_rule(self):
        measured = [{"name": "mlp/256_1/rows:1/warm/iterations:20", "us by rule": 4.1, "us layers": 7.0, "us split": 4.0,
                     "us cublaslt": 3.0}, {"name": "mlp/256_1/rows:2/warm"}]
        self.assertEqual(policies.sweep_table("sweeps_mlp_bench_gpu", measured)[1:],
                         [["mlp/256_1/rows:1", "split", "4.00", "4.10", "3.00"]])

    def test_says_what_it_expects_of_the_table_of_tiles(self):
        with self.assertRaisesRegex(ValueError, "expected tile_shapes"):
            policies.LinearFit(record(), "")


FIELDS = """
struct LaunchPolicies {
  int fm_rows_of_one_each = 32;  ///< a limit
  int look_up_rounds = 1;        ///< a value
  int never_measured = 5;
};
"""


def of_card(measured, capability="7.5"):
    return {"machine": {"card": "T4", "compute capability": capability},
            "benchmarks": {"policies_a": [{"name": f"policy/{name}/warm/iterations:20", **ways} for name, ways in measured]}}


def simulated(record):
    return {**record, "machine": {**record["machine"], "simulated": "by tools/t4"}}


def rounds(*times):
    """A sweep of values 1, 2, 4: of each size the times."""
    return [(f"look_up_rounds/bags/{i}", dict(zip(("us 1", "us 2", "us 4"), size))) for i, size in enumerate(times)]


def limits(*sizes):
    """A sweep of always and never: of each size its requests and items, and both times."""
    return [(f"fm_rows_of_one_each/fm/requests:{requests}/items:{items}/dim:16",
             {"us 0": always, f"us {policies.NEVER_BEYOND}": never}) for requests, items, always, never in sizes]


class CardPolicies(unittest.TestCase):
    def fits(self, *records):
        found = policies.policy_fits([(f"{i}/gpu", record) for i, record in enumerate(records)], FIELDS, TILING)
        return {target: {field: fit.value for field, (*_, fit) in fits.items()} for target, fits in found.items()}

    def test_takes_what_is_least_longer_than_the_best(self):
        self.assertEqual(self.fits(of_card(rounds((10, 9, 9.5), (10, 8, 9), (10, 10.1, 9)))), {75: {"look_up_rounds": 2}})

    def test_keeps_what_is_there_where_nothing_is_better(self):
        self.assertEqual(self.fits(of_card(rounds((5, 5, 5), (7, 7, 7), (3, 3, 3)))), {75: {"look_up_rounds": 1}})

    def test_finds_up_to_where_something_is_better(self):
        # 40 multiprocessors: 10, 20 and 40 rows of one, of which the last wants several.
        measured = limits((4, 100, 3.0, 2.0), (8, 100, 3.2, 3.0), (16, 100, 4.0, 5.0))
        self.assertEqual(self.fits(of_card(measured)), {75: {"fm_rows_of_one_each": 32}})
        # Exactly 8 rows of one want no more than one each.
        measured = limits((4, 80, 3.0, 2.0), (8, 100, 2.8, 3.0), (16, 100, 4.0, 5.0))
        self.assertEqual(self.fits(of_card(measured)), {75: {"fm_rows_of_one_each": 8}})

    def test_the_newest_sweep_of_each_field_of_a_card_counts(self):
        new = of_card(rounds((9, 5, 9), (9, 5, 9), (9, 5, 9)))
        cut = of_card(rounds((9, 9, 5), (9, 9, 5)))
        old = of_card(rounds((9, 9, 5), (9, 9, 5), (9, 9, 5)) + limits(*[(64, 100, 1.0, 2.0)] * 3))
        self.assertEqual(self.fits(cut, new, old), {75: {"look_up_rounds": 2, "fm_rows_of_one_each": 32}})
        self.assertEqual(self.fits(new, of_card(rounds(*[(9, 9, 5)] * 3), "9.0")),
                         {75: {"look_up_rounds": 2}, 90: {"look_up_rounds": 4}})
        new["steps"] = [["card", *new["benchmarks"], "left out: cut off", "", "5"]]
        self.assertEqual(self.fits(cut, new, old), self.fits(cut, old))

    def test_the_header_has_all_fields_by_card(self):
        records = [("h100/gpu", of_card(rounds(*[(9, 9, 5)] * 3), "9.0")), ("t4/gpu", of_card(rounds(*[(9, 5, 9)] * 3)))]
        text = policies.card_policies_text(records, FIELDS, TILING)
        self.assertLess(text.index("{75, true, {"), text.index("{90, true, {"))
        self.assertEqual(re.findall(r"^ +(\d+),  // (\w+): (.*)$", text, re.M)[:3],
                         [("32", "fm_rows_of_one_each", "not measured"),
                          ("2", "look_up_rounds", "t4/gpu, 3 sizes, 0% longer than their best"),
                          ("5", "never_measured", "not measured")])
        with self.assertRaisesRegex(ValueError, "expected a record with a sweep of a policy, got none"):
            policies.card_policies_text([("none", of_card([]))], FIELDS, TILING)
        with self.assertRaisesRegex(ValueError, "expected fields of LaunchPolicies"):
            policies.card_policies_text(records, "", TILING)

    def test_a_simulated_card_counts_where_none_was_measured_and_is_called_so(self):
        records = [("model/gpu", simulated(of_card(rounds(*[(9, 5, 9)] * 3)))),
                   ("h100/gpu", of_card(rounds(*[(9, 9, 5)] * 3), "9.0"))]
        text = policies.card_policies_text(records, FIELDS, TILING)
        self.assertEqual(re.findall(r"\{(\d+), (true|false), ", text), [("75", "false"), ("90", "true")])
        self.assertEqual(re.findall(r"^ +(\d+),  // (\w+): (.*)$", text, re.M)[:3],
                         [("32", "fm_rows_of_one_each", "kept, not simulated"),
                          ("2", "look_up_rounds", "simulated, model/gpu, 3 sizes, 0% longer than their best"),
                          ("5", "never_measured", "kept, not simulated")])
        measured = of_card(rounds(*[(9, 9, 5)] * 3))
        self.assertEqual(self.fits(records[0][1], measured), {75: {"look_up_rounds": 4}})
        self.assertIn("{75, true, {", policies.card_policies_text([*records, ("t4/gpu", measured)], FIELDS, TILING))

    def test_a_model_of_a_card_has_to_find_one_clearly_better(self):
        close, clear = of_card(rounds(*[(5.1, 5, 9)] * 3)), of_card(rounds(*[(5.2, 5, 9)] * 3))
        self.assertEqual(self.fits(close), {75: {"look_up_rounds": 2}})
        self.assertEqual(self.fits(simulated(close)), {75: {"look_up_rounds": 1}})
        self.assertEqual(self.fits(simulated(clear)), {75: {"look_up_rounds": 2}})

    def test_a_field_of_which_no_model_is_believed_keeps_its_value(self):
        fields = FIELDS.replace("};", "  int attention_warps = 8;\n};")
        swept = of_card(rounds(*[(9, 5, 9)] * 3) + [("attention_warps/a", {"us 4": 1.0, "us 8": 2.0})] * 3)
        text = policies.card_policies_text([("model/gpu", simulated(swept))], fields, TILING)
        self.assertRegex(text, r" 8,  // attention_warps: kept, with an H200's parameters the model finds another order")
        self.assertIn(" 4,  // attention_warps: t4/gpu, 3 sizes, 0%",
                      policies.card_policies_text([("t4/gpu", swept)], fields, TILING))

    def test_a_field_that_is_no_more_is_left_out(self):
        self.assertEqual(self.fits(of_card([("gone/a", {"us 1": 1.0})] * 3)), {})

    def test_shows_the_best_beside_the_value_chosen_by_thought(self):
        measured = [{"name": "policy/look_up_rounds/bags/warm/iterations:20", "us 1": 4.1, "us 2": 4.0},
                    {"name": "policy/look_up_rounds/cut/warm"}]
        self.assertEqual(policies.policy_table("policies_a", measured, FIELDS)[1:],
                         [["look_up_rounds, bags", "2", "4.00", "1", "4.10"]])

    def test_every_field_has_a_sweep_that_is_run(self):
        fields = policies.default_policies(self.read(policies.FIELDS))
        swept, programs = set(), set()
        for path in glob.glob(f"{ROOT}/benchmarks/ops/*_bench.cu"):
            text = self.read(os.path.relpath(path, ROOT))
            if "add_policy(" in text:
                programs.add("ops_" + os.path.splitext(os.path.basename(path))[0] + "_gpu")
            names = re.findall(r'\{\s*"(\w+)", &(?:\w+::)*Policies::(\w+)|"(\w+)", &LaunchPolicies::(\w+)', text)
            for name, place in ((a or c, b or d) for a, b, c, d in names):
                self.assertEqual(name, place)
                swept.add(name)
        self.assertEqual(swept, set(fields))
        self.assertEqual(programs, set(run_bundle.WITH_POLICIES))
        self.assertLessEqual(policies.LIMITS, set(fields))

    @staticmethod
    def read(path):
        with open(f"{ROOT}/{path}", encoding="utf-8") as file:
            return file.read()


if __name__ == "__main__":
    unittest.main()
