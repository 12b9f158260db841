#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the roofline of a card as SVG, from a record (tools/records.py): each benchmark that counted its bytes and
floating-point operations is a point, under the roofs that were measured beside it: the bandwidth of a copy, and the
rate of the tensor cores. Needs nothing but Python."""

import statistics

import svg
from plot_speedups import family


def points_of(record):
    """[(family, name, FLOPs per byte, FLOP/s)]; what is warm gets its bytes from a cache, which has another roof."""
    return [(family(m["name"]), m["name"], m["flops"] / m["bytes"], m["flops"] / m["min_us"] * 1e6)
            for measurements in record["benchmarks"].values() for m in measurements
            if "/warm" not in m["name"] and all(m.get(count, 0) > 0 for count in ("flops", "bytes", "min_us"))]


def roofs(record):
    """(bytes a second, FLOP/s), each None where nothing was measured beside it."""
    all_of = [m for measurements in record["benchmarks"].values() for m in measurements]
    copies = [m["copy_GB/s"] * 1e9 for m in all_of if "copy_GB/s" in m]
    products = [m["tensor_TFLOP/s"] * 1e12 for m in all_of if "tensor_TFLOP/s" in m]
    return statistics.median(copies) if copies else None, statistics.median(products) if products else None


def draw(record):
    """The picture, or None when no benchmark counted bytes and operations."""
    points = points_of(record)
    if not points:
        return None
    bandwidth, rate = roofs(record)
    rates = [point[3] for point in points] + ([rate] if rate else [])
    ridge = rate / bandwidth if rate and bandwidth else points[0][2]
    columns = svg.decades(min(ridge / 10, *(point[2] for point in points)), max(ridge * 2, *(p[2] for p in points)))
    rows = svg.decades(min(rates) / 1e12, max(rates) / 1e12)
    picture = svg.Picture(480)
    x = svg.logarithmic(columns, picture.left, picture.right)
    y = svg.logarithmic(rows, picture.bottom, picture.top)
    picture.y_axis(rows, y, "TFLOP/s")
    picture.x_axis(columns, x, "FLOPs for each byte")
    if bandwidth:
        # From where the slope enters the frame to where it leaves it, or meets the other roof.
        first = max(columns[0], rows[0] * 1e12 / bandwidth)
        last = min(columns[-1], (rate or rows[-1] * 1e12) / bandwidth, rows[-1] * 1e12 / bandwidth)
        if first < last:
            picture.line([(x(at), y(at * bandwidth / 1e12)) for at in (first, last)], "black")
            picture.text(x(first) + 6, y(first * bandwidth / 1e12) + 14, f"copy {bandwidth / 1e9:.0f} GB/s", "start")
    if rate:
        first = min(max(columns[0], rate / bandwidth), columns[-1]) if bandwidth else columns[0]
        picture.line([(x(first), y(rate / 1e12)), (picture.right, y(rate / 1e12))], "black")
        picture.text(picture.right - 6, y(rate / 1e12) - 6, f"tensor cores {rate / 1e12:.0f} TFLOP/s", "end")
    families = list(dict.fromkeys(point[0] for point in points))
    for name, title, intensity, flops in points:
        colour = svg.COLOURS[families.index(name) % len(svg.COLOURS)]
        picture.circle(x(intensity), y(flops / 1e12), colour, f"{title}: {flops / 1e12:.3g} TFLOP/s")
    picture.legend(families)
    return picture.svg()


if __name__ == "__main__":
    svg.draw_record(__doc__, draw, "has no benchmark that counted bytes and operations")
