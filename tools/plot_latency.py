#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws latency against load as SVG, from what examples/embed_in_service writes with --csv: for each file one colour,
p50 dashed and p99 solid, in milliseconds on a logarithmic scale against the requests per second that were asked for.
A circle is hollow where requests were refused. Needs nothing but Python."""

import argparse
import csv
import math
import os
import sys

import svg


def read(path):
    """The rows of a file, by name of the column."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def points_of(label, rows):
    """[(asked, p50, p99, refused)] by rate; rows in which nothing was scored are left out."""
    try:
        points = [(float(r["asked"]), float(r["p50_ms"]), float(r["p99_ms"]), int(r["refused"])) for r in rows]
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"{label}: expected the columns that embed_in_service --csv writes, got {error!r}")
    points = sorted(point for point in points if point[1] > 0 and point[2] > 0)
    if not points:
        sys.exit(f"{label}: expected at least one rate at which requests were scored, got none")
    return points


def draw(series):
    """series: [(label, points)]."""
    times = [t for _, points in series for point in points for t in point[1:3]]
    ticks = svg.steps(min(times), max(times))
    fastest = max(point[0] for _, points in series for point in points)
    step = svg.steps(fastest / 6, fastest / 6)[-1]
    columns = [step * i for i in range(math.ceil(fastest / step) + 1)]

    picture = svg.Picture(440)
    x = svg.linear(columns, picture.left, picture.right)
    y = svg.logarithmic(ticks, picture.bottom, picture.top)
    picture.y_axis(ticks, y, "milliseconds: p99 solid, p50 dashed")
    picture.x_axis(columns, x, "requests per second")
    for i, (_, points) in enumerate(series):
        colour = svg.COLOURS[i % len(svg.COLOURS)]
        for column, dashes in ((1, ' stroke-width="2" stroke-dasharray="5 4"'), (2, ' stroke-width="2"')):
            picture.line([(x(point[0]), y(point[column])) for point in points], colour, dashes)
            for point in points:
                picture.circle(x(point[0]), y(point[column]), colour, hollow=point[3] > 0)
    picture.legend([label for label, _ in series])
    return picture.svg()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", nargs="+", help="files of embed_in_service --csv; named in the picture as they are here")
    parser.add_argument("--out", required=True, help="the SVG file to write")
    arguments = parser.parse_args()
    series = [(os.path.splitext(os.path.basename(path))[0], points_of(path, read(path))) for path in arguments.csv]
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(draw(series))


if __name__ == "__main__":
    main()
