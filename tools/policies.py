# SPDX-License-Identifier: Apache-2.0
"""What kernels cost, from the sweeps among records, which measured each way to do the same beside the others: programs
called sweeps_* (benchmarks/sweeps/), and benchmarks called policy/<field>/<size>, of whatever program, whose ways are
values of a field of LaunchPolicies (benchmarks/policies.cuh). tools/performance.py writes what follows into the headers
that choose by it.

Each benchmark of a sweep is one size, its counters called "us <way>" what each way took."""

import contextlib
import re

LINEAR_SWEEP = "sweeps_linear_bench_gpu"
TILING = "include/warprank/ops/detail/linear/tiling.hpp"
LINEAR_COSTS = "include/warprank/ops/detail/linear/tile_costs.hpp"
LIBRARY, BY_RULE = "cublaslt", "by rule"  # ways that are not ours, or one of the others
FAR_FROM_BEST = 1.8  # what takes longer is not fitted: nobody should choose it
FIELDS = "include/warprank/ops/launch_policies.hpp"
CARD_POLICIES = "include/warprank/ops/detail/common/card_policies.hpp"
# Fields that say up to how many items of a multiprocessor something is done: always and never were measured.
LIMITS = {"din_items_of_one_block", "dot_rows_of_one_each", "fm_rows_of_one_each"}
ALWAYS_BEYOND, NEVER_BEYOND = 0, 1 << 20
POSSIBLE_LIMITS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, NEVER_BEYOND)
LEAST_SIZES = 3
CLEARLY_LONGER = 1.03  # by a model of a card: what is closer may be otherwise on the card
# Fields of which no model of a card is believed, and why.
NOT_BY_MODEL = {"attention_warps": "with an H200's parameters the model finds another order than was measured"}


class TooFew(ValueError):
    """A sweep that was cut short."""


def least_squares(rows, values, weights):
    """x for which rows x = values, each row by its weight, as well as can be."""
    n = len(rows[0])
    matrix = [[sum(row[i] * row[j] * w * w for row, w in zip(rows, weights)) + (1e-9 if i == j else 0)
               for j in range(n)] + [sum(row[i] * v * w * w for row, v, w in zip(rows, values, weights))]
              for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(matrix[r][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for r in range(n):
            if r != i:
                factor = matrix[r][i] / matrix[i][i]
                matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[i])]
    return [matrix[i][n] / matrix[i][i] for i in range(n)]


def tiles_of(tiling):
    """[(name, rows, columns, whether its sums can be cut)] of what tiling.hpp has."""
    table = re.search(r"tile_shapes\{\{\n(.*?)\n\}\};", tiling, re.S)
    tiles = re.findall(r'\{"(\w+ (\d+) x (\d+))", .*?, (true|false), (?:true|false)\},', table[1] if table else "")
    if not tiles:
        raise ValueError(f"{TILING}: expected tile_shapes, a line for each, got none")
    return [(name, int(rows), int(columns), can_be_cut == "true") for name, rows, columns, can_be_cut in tiles]


def nominal_multiprocessors(tiling, target):
    """As the function of that name in tiling.hpp has it."""
    text = re.search(r"nominal_multiprocessors\(int target\) \{ return (.*?); \}", tiling)
    steps = re.findall(r"target >= (\d+) \? (\d+)", text[1])
    return next((int(count) for least, count in steps if target >= int(least)), int(text[1].split(":")[-1]))


def way_of(name):
    """"staged 64 x 64 in 4 parts" -> ("staged 64 x 64", 4)"""
    found = re.fullmatch(r"(.*?)(?: in (\d+) parts)?", name)
    return found[1], int(found[2] or 1)


def linear_sizes(record):
    """{(rows, in, out): {way: microseconds}} of a record's sweep of linear layers, caches warm."""
    sizes = {}
    for m in record["benchmarks"].get(LINEAR_SWEEP, []):
        found = re.search(r"/in:(\d+)/out:(\d+)/rows:(\d+)/warm", m["name"])
        of_size = ways_of(m)
        if found and of_size:
            sizes[int(found[3]), int(found[1]), int(found[2])] = of_size
    return sizes


class LinearFit:
    """The constants of cost_of (tiling.hpp) for the card of a record."""

    def __init__(self, record, tiling):
        self.tiles = tiles_of(tiling)
        self.target = int(record["machine"]["compute capability"].replace(".", ""))
        self.multiprocessors = nominal_multiprocessors(tiling, self.target)
        self.sizes = linear_sizes(record)
        self.best = {size: min(us for way, us in ways.items() if way != LIBRARY) for size, ways in self.sizes.items()}
        self.constants = {tile[0]: self.fit(tile) for tile in self.tiles}

    def terms(self, size, tile, parts):
        """What the constants are multiplied with."""
        rows, inputs, outputs = size
        steps = -(-(-(-inputs // 32)) // parts)
        blocks = -(-rows // tile[1]) * -(-outputs // tile[2]) * parts
        waves = -(-blocks // self.multiprocessors)
        share = blocks / self.multiprocessors
        return [1, waves, waves * steps, share * steps, int(parts > 1), share * int(parts > 1)]

    def measured(self, tile):
        """[(size, parts, microseconds)]"""
        return [(size, way_of(way)[1], us) for size, ways in self.sizes.items() for way, us in ways.items()
                if way_of(way)[0] == tile[0] and us <= FAR_FROM_BEST * self.best[size]]

    def fit(self, tile):
        rows = self.measured(tile)
        if len(rows) < 6:
            raise TooFew(f"{LINEAR_SWEEP}: expected 6 sizes or more of {tile[0]}, got {len(rows)}")
        fitted = self.solve(tile, rows, has_waves=True)
        if fitted[1] < 0:  # sizes without shallow layers do not tell what a wave takes beside its steps
            fitted = self.solve(tile, rows, has_waves=False)
        begin, per_wave, per_step, per_card, *join = fitted
        return [round(begin, 2), round(per_wave, 2), round(per_step, 4), round(per_card, 4),
                *(round(x, 2) if tile[3] else 0 for x in join)]

    def solve(self, tile, rows, has_waves):
        terms = [self.terms(size, tile, parts) for size, parts, _ in rows]
        return least_squares([[one, waves * has_waves, *others] for one, waves, *others in terms],
                             [us for *_, us in rows], [1 / us for *_, us in rows])

    def cost(self, size, tile, parts):
        return sum(a * b for a, b in zip(self.constants[tile[0]], self.terms(size, tile, parts)))

    def picked(self, size):
        """The way that costs least of those that were measured."""
        ways = [(tile, parts) for tile in self.tiles for parts in range(1, 9 if tile[3] else 2)
                if self.name(tile, parts) in self.sizes[size]]
        return self.name(*min(ways, key=lambda way: self.cost(size, *way)))

    @staticmethod
    def name(tile, parts):
        return tile[0] + (f" in {parts} parts" if parts > 1 else "")

    def losses(self):
        """By size: how many times as long as the best of all ways the picked one takes."""
        return {size: self.sizes[size][self.picked(size)] / self.best[size] for size in self.sizes}


def is_whole(record, program):
    """Whether the program's run was not cut off: what it had measured by then is in the record, too."""
    return all(result.startswith("ok") for _, step, result, *_ in record.get("steps", []) if step == program)


def is_simulated(record):
    """Whether its card was one in software (tools/t4/)."""
    return "simulated" in record["machine"]


def linear_fits(records, tiling):
    """[(name of the record, record, fit)], the newest of each target whose sweep was not cut short, by target; a
    simulated one where none was measured."""
    fits = {}
    for name, record in sorted(records, key=lambda item: is_simulated(item[1])):
        if LINEAR_SWEEP in record["benchmarks"] and is_whole(record, LINEAR_SWEEP):
            with contextlib.suppress(TooFew):
                fit = LinearFit(record, tiling)
                fits.setdefault(fit.target, (name, record, fit))
    return [fits[target] for target in sorted(fits)]


def number(value):
    return f"{value:.4f}".rstrip("0").rstrip(".") if value else "0"


def linear_costs_text(records, tiling):
    """The header of the constants."""
    tables = []
    for name, record, fit in linear_fits(records, tiling):
        losses = list(fit.losses().values())
        mean, worst = 100 * (sum(losses) / len(losses) - 1), 100 * (max(losses) - 1)
        how, is_measured = ("simulated, not measured", "false") if is_simulated(record) else ("measured", "true")
        tables += [f"    // {record['machine']['card']}, {how}, benchmarks/results/{name}.json: what is picked\n"
                   f"    // for {len(losses)} sizes takes {mean:.1f}% longer than the best way on average, {worst:.0f}% at worst.\n",
                   f"    {{{fit.target}, {is_measured}, {{{{\n"]
        for name_of_tile, *_ in fit.tiles:
            tables.append(f"        {{{', '.join(map(number, fit.constants[name_of_tile]))}}},  // {name_of_tile}\n")
        tables.append("    }}},\n")
    if not tables:
        raise ValueError(f"benchmarks/results: expected a record with {LINEAR_SWEEP}, got none")
    return f"""// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches of linear layers cost by their tiles, on cards that were measured, and on those that were only
/// simulated (docs/TESTING.md). Made by tools/performance.py from the sweeps among benchmarks/results/; do not edit.

#include <array>

namespace warprank {{ inline namespace v0 {{ namespace detail::linear {{

/// Microseconds; cost_of says of what. No join: sums are not cut into parts.
struct TileCost {{
  double begin, per_wave, per_step, per_card, join, join_per_card;
}};

/// By LinearTile.
struct TileCosts {{
  int target;        ///< of the card
  bool is_measured;  ///< on a card; else by a model of one
  std::array<TileCost, {len(tiles_of(tiling))}> tiles;
}};

// clang-format off
inline constexpr TileCosts tile_costs[] = {{
{"".join(tables)}}};
// clang-format on

/// Of the card itself; or else of the newest that was measured and is not newer than `target`, or of the oldest that
/// was. A simulated card speaks for itself alone.
constexpr const TileCosts& tile_costs_of(int target) {{
  const TileCosts* nearest = nullptr;
  for (const TileCosts& costs : tile_costs)
    if (costs.target == target || (costs.is_measured && (nearest == nullptr || costs.target <= target)))
      nearest = &costs;
  return *nearest;
}}

}}}}}}  // namespace warprank::v0::detail::linear
"""


def default_policies(fields):
    """{field: what was chosen by thought} of launch_policies.hpp."""
    found = {name: int(value) for name, value in re.findall(r"^  int (\w+) = (\d+);", fields, re.M)}
    if not found:
        raise ValueError(f"{FIELDS}: expected fields of LaunchPolicies, one on each line, got none")
    return found


def ways_of(measurement):
    return {key[3:]: us for key, us in measurement.items() if key.startswith("us ")}


class PolicyFit:
    """Of the values of a field that were measured, the one with which sizes take least longer than with their best. A
    model of a card has to find one clearly better than the usual one."""

    def __init__(self, field, usual, measurements, multiprocessors, simulated=False):
        self.field, self.usual, self.multiprocessors = field, usual, multiprocessors
        self.sizes = [(m["name"], {int(way): us for way, us in ways_of(m).items()}) for m in measurements if ways_of(m)]
        if len(self.sizes) < LEAST_SIZES:
            raise TooFew(f"policy/{field}: expected {LEAST_SIZES} sizes or more, got {len(self.sizes)}")
        values = set(POSSIBLE_LIMITS) if field in LIMITS else set.intersection(*(set(ways) for _, ways in self.sizes))
        # The usual one, where another is not better.
        self.value = min(sorted(values | {usual}, key=lambda value: (value != usual, value)),
                         key=lambda value: round(self.mean_loss(value), 9))
        if simulated and self.mean_loss(usual) < CLEARLY_LONGER * self.mean_loss(self.value):
            self.value = usual

    def measured_value(self, name, value):
        """The value among those that were measured which does the same at this size."""
        if self.field not in LIMITS:
            return value
        requests, items = (int(re.search(rf"/{what}:(\d+)", name)[1]) for what in ("requests", "items"))
        return NEVER_BEYOND if requests * items <= value * self.multiprocessors else ALWAYS_BEYOND

    def losses(self, value):
        """By size: how many times as long as with its best value it takes with this one."""
        return [ways[self.measured_value(name, value)] / min(ways.values()) for name, ways in self.sizes]

    def mean_loss(self, value):
        try:
            losses = self.losses(value)
        except KeyError:  # the usual value was not measured
            return float("inf")
        return sum(losses) / len(losses)


def policy_fits(records, fields, tiling):
    """{target: {field: (name of the record, record, fit)}}: of each field the newest sweep of a card that was not cut
    short; a simulated one where none was measured."""
    usual, fits = default_policies(fields), {}
    for name, record in sorted(records, key=lambda item: is_simulated(item[1])):
        sweeps = {}
        whole = [measured for program, measured in record["benchmarks"].items() if is_whole(record, program)]
        for measurement in (m for measured in whole for m in measured):
            if found := re.match(r"policy/(\w+)/", measurement["name"]):
                sweeps.setdefault(found[1], []).append(measurement)
        for field, measurements in sweeps.items():
            if field not in usual or (is_simulated(record) and field in NOT_BY_MODEL):
                continue  # of the first kind: that was, when it was measured
            target = int(record["machine"]["compute capability"].replace(".", ""))
            with contextlib.suppress(TooFew):
                fit = PolicyFit(field, usual[field], measurements, nominal_multiprocessors(tiling, target),
                                is_simulated(record))
                fits.setdefault(target, {}).setdefault(field, (name, record, fit))
    return fits


def card_policies_text(records, fields, tiling):
    """The header of what was best on cards."""
    usual, fits, cards = default_policies(fields), policy_fits(records, fields, tiling), []
    for target, of_card in sorted(fits.items()):
        simulated = any(is_simulated(record) for _, record, _ in of_card.values())
        cards.append(f"    {{{target}, {'false' if simulated else 'true'}, {{\n")
        for field, value in usual.items():
            why = f"kept, {NOT_BY_MODEL.get(field, 'not simulated')}" if simulated else "not measured"
            if field in of_card:
                name, record, fit = of_card[field]
                value = fit.value
                why = f"{name}, {len(fit.sizes)} sizes, {100 * (fit.mean_loss(value) - 1):.0f}% longer than their best"
                if is_simulated(record):
                    why = f"simulated, {why}"
            cards.append(f"        {value},  // {field}: {why}\n")
        cards.append("    }},\n")
    if not cards:
        raise ValueError("benchmarks/results: expected a record with a sweep of a policy, got none")
    return f"""// SPDX-License-Identifier: Apache-2.0
#pragma once

/// LaunchPolicies of cards that were measured, and of those that were only simulated (docs/TESTING.md), by records of
/// benchmarks/results/. Made by tools/performance.py from the sweeps among them; do not edit.

#include "warprank/ops/launch_policies.hpp"

namespace warprank {{ inline namespace v0 {{ namespace detail {{

struct CardPolicies {{
  int target;        ///< of the card
  bool is_measured;  ///< on a card; else some of them by a model of one
  LaunchPolicies policies;
}};

// clang-format off
inline constexpr CardPolicies card_policies[] = {{
{"".join(cards)}}};
// clang-format on

/// Of the card itself; or else of the newest that was measured and is not newer than `target`. What is older than all
/// takes what was chosen by thought. A simulated card speaks for itself alone.
constexpr LaunchPolicies launch_policies_of(int target) {{
  LaunchPolicies nearest;
  for (const CardPolicies& card : card_policies)
    if (card.target == target || (card.is_measured && card.target <= target)) nearest = card.policies;
  return nearest;
}}

}}}}}}  // namespace warprank::v0::detail
"""


def sweep_table(program, measurements):
    """Head and rows of a table of a sweep: of each size the best way, beside what the library's rule takes."""
    rows = [[f"`{program}`", "best of ours", "us", f"{BY_RULE} us", f"{LIBRARY} us"]]
    for m in measurements:
        ways = ways_of(m)
        ours = {way: us for way, us in ways.items() if way not in (LIBRARY, BY_RULE)}
        if ours:
            best = min(ours, key=ours.get)
            rows.append([m["name"].split("/warm")[0], best, f"{ours[best]:.2f}",
                         *(f"{ways[way]:.2f}" if way in ways else "" for way in (BY_RULE, LIBRARY))])
    return rows


def policy_table(program, measurements, fields):
    """The same of values of fields, beside what was chosen by thought."""
    usual = {field: str(value) for field, value in default_policies(fields).items()}
    rows = [[f"`{program}`", "best value", "us", "by thought", "us"]]
    for m in measurements:
        found, ways = re.match(r"policy/(\w+)/(.*?)/warm", m["name"]), ways_of(m)
        if found and ways:
            field, name = found.groups()
            best, chosen = min(ways, key=ways.get), usual.get(field, "")
            rows.append([f"{field}, {name}", best if int(best) < NEVER_BEYOND else "no limit", f"{ways[best]:.2f}",
                         chosen, f"{ways[chosen]:.2f}" if chosen in ways else ""])
    return rows


def linear_sweep_table(record, tiling):
    """The same of linear layers, and what is picked by the constants that are fitted to them."""
    try:
        picked = LinearFit(record, tiling).picked
    except TooFew:
        picked = None
    rows = [[f"`{LINEAR_SWEEP}`", "best of ours", "us", "picked by what is fitted", "us", f"{LIBRARY} us"]]
    for size, ways in linear_sizes(record).items():
        ours = {way: us for way, us in ways.items() if way != LIBRARY}
        best, name = min(ours, key=ours.get), picked(size) if picked else ""
        rows.append(["in:{1}/out:{2}/rows:{0}".format(*size), best, f"{ours[best]:.2f}", name,
                     *(f"{ways[way]:.2f}" if way in ways else "" for way in (name, LIBRARY))])
    return rows
