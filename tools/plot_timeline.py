#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws where the blocks of launches were on a card in software, and when, as SVG: from left to right the launches of
the last of several runs that are alike, from top to bottom the multiprocessors. Needs nothing but Python.

    T4_TIME=1 T4_BLOCKS=1 T4_REPORT=report.json tools/t4/run PROGRAM ...
    tools/plot_timeline.py report.json --out timeline.svg
"""

import argparse
import json
import os
import re
import sys

import svg

CARDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "t4/cards")


def last_run(launches):
    """The shortest list that the report ends with twice, by name; all where there is none."""
    names = [launch["name"] for launch in launches]
    for count in range(1, len(names) // 2 + 1):
        if names[-count:] == names[-2 * count:-count]:
            return launches[-count:]
    return launches


def read_card(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {row[0]: float(row[1]) for row in rows}


def kernel_of(name):
    return re.sub(r"<.*", "", name).split("::")[-1]


def draw(launches, card):
    rows = int(card["multiprocessors"])
    of_launch, per_us = card["launch_microseconds"], card["gigahertz"] * 1e3
    begins, now = [], 0.0
    for launch in launches:
        begins.append(now + of_launch)
        now += of_launch + launch["cycles"] / per_us
    ticks = svg.steps(now / 8, now / 8)[-1]
    columns = [ticks * i for i in range(int(now / ticks) + 2)]
    picture = svg.Picture(130 + 8 * rows + 16 * len(launches), top=30 + 16 * len(launches))
    x = svg.linear(columns, picture.left, picture.right)
    y = svg.linear([0, rows], picture.top, picture.bottom)
    picture.y_axis([0, *range(rows // 4, rows + 1, rows // 4)], y, "multiprocessors")
    picture.x_axis(columns, x, "microseconds, simulated")
    for i, (launch, begin) in enumerate(zip(launches, begins)):
        colour = svg.COLOURS[i % len(svg.COLOURS)]
        lanes = {}  # until when each lane of a multiprocessor is taken
        places = []
        for where, first, last in sorted(launch["blocks"], key=lambda block: block[1]):
            free = lanes.setdefault(where, [])
            lane = next((k for k, until in enumerate(free) if until <= first), len(free))
            free[lane:lane + 1] = [last]
            places.append((where, lane, first, last))
        for where, lane, first, last in places:
            height = 0.9 / len(lanes[where])
            top, left = y(where + lane * height), x(begin + first / per_us)
            picture.bar(left, top, max(x(begin + last / per_us) - left - 0.2, 0.2), y(where + (lane + 1) * height) - top,
                        colour)
        picture.text(picture.left, 20 + 16 * i, f"{kernel_of(launch['name'])}: {len(launch['blocks'])} blocks, "
                     f"{launch['cycles'] / per_us:.1f} us", "start", f' fill="{colour}"')
    return picture.svg()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--card", default=f"{CARDS}/t4.card", help="the card that was simulated; by default a T4")
    parser.add_argument("--out", required=True, help="the SVG file to write")
    options = parser.parse_args()
    with open(options.report, encoding="utf-8") as file:
        launches = last_run([json.loads(line) for line in file])
    if not launches or any("blocks" not in launch for launch in launches):
        sys.exit(f"{options.report}: expected launches with their blocks, as T4_BLOCKS=1 has them written")
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(draw(launches, read_card(options.card)))


if __name__ == "__main__":
    main()
