#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws latency against load as SVG, from what examples/embed_in_service writes with --csv: for each file one colour,
p50 dashed and p99 solid, in milliseconds on a logarithmic scale against the requests per second that were asked for.
A circle is hollow where requests were refused. Needs nothing but Python."""

import argparse
import csv
import html
import math
import os
import sys

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 30, 55
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"]  # told apart by the colour-blind, too


def read(path):
    """[(asked, p50, p99, refused)] by rate; rows in which nothing was scored are left out."""
    with open(path, newline="", encoding="utf-8") as file:
        try:
            rows = [(float(r["asked"]), float(r["p50_ms"]), float(r["p99_ms"]), int(r["refused"]))
                    for r in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            sys.exit(f"{path}: expected the columns that embed_in_service --csv writes, got {error!r}")
    rows = sorted(row for row in rows if row[1] > 0 and row[2] > 0)
    if not rows:
        sys.exit(f"{path}: expected at least one rate at which requests were scored, got none")
    return rows


def steps(low, high):
    """1, 2 and 5 times powers of ten, from the last one below `low` to the first one above `high`."""
    values = [m * 10.0**e for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
              for m in (1, 2, 5)]
    first = max(i for i, v in enumerate(values) if v <= low)
    last = min(i for i, v in enumerate(values) if v >= high)
    return values[first : max(last, first + 1) + 1]


def draw(series):
    """series: [(label, rows)]."""
    times = [t for _, rows in series for row in rows for t in row[1:3]]
    ticks = steps(min(times), max(times))
    fastest = max(row[0] for _, rows in series for row in rows)
    step = steps(fastest / 6, fastest / 6)[-1]
    columns = [step * i for i in range(math.ceil(fastest / step) + 1)]

    def x(rate):
        return LEFT + (WIDTH - LEFT - RIGHT) * rate / columns[-1]

    def y(time):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(time / ticks[0]) / math.log(ticks[-1] / ticks[0])

    def text(at_x, at_y, content, anchor="middle", more=""):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}"{more}>{html.escape(content)}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for time in ticks:
        out.append(f'<path d="M{LEFT} {y(time):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(text(LEFT - 8, y(time) + 4, f"{time:g}", "end"))
    for rate in columns:
        out.append(f'<path d="M{x(rate):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        out.append(text(x(rate), HEIGHT - BOTTOM + 18, f"{rate:g}"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "requests per second"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(text(18, middle, "milliseconds: p99 solid, p50 dashed", more=f' transform="rotate(-90 18 {middle})"'))

    for i, (label, rows) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        for column, dashes in ((1, ' stroke-dasharray="5 4"'), (2, "")):
            points = " ".join(f"{x(row[0]):.1f},{y(row[column]):.1f}" for row in rows)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
            for row in rows:
                out.append(f'<circle cx="{x(row[0]):.1f}" cy="{y(row[column]):.1f}" r="3" stroke="{colour}" '
                           f'fill="{"white" if row[3] else colour}"/>')
        out.append(text(LEFT + 10, TOP + 16 * (i + 1), label, "start", f' fill="{colour}"'))
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", nargs="+", help="files of embed_in_service --csv; named in the picture as they are here")
    parser.add_argument("--out", required=True, help="the SVG file to write")
    arguments = parser.parse_args()
    series = [(os.path.splitext(os.path.basename(path))[0], read(path)) for path in arguments.csv]
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(draw(series))


if __name__ == "__main__":
    main()
