# SPDX-License-Identifier: Apache-2.0
"""What the plots of this folder share: a picture with two axes, as SVG. Needs nothing but Python."""

import argparse
import html
import json
import math

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"]  # told apart by the colour-blind, too
WIDTH = 720


def steps(low, high):
    """1, 2 and 5 times powers of ten, from the last one below `low` to the first one above `high`."""
    values = [m * 10.0**e for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
              for m in (1, 2, 5)]
    first = max(i for i, v in enumerate(values) if v <= low)
    last = min(i for i, v in enumerate(values) if v >= high)
    return values[first : max(last, first + 1) + 1]


def decades(low, high):
    """As steps(), and powers of ten alone where those are too many to be read."""
    values = steps(low, high)
    if len(values) <= 16:
        return values
    return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def logarithmic(ticks, begin, end):
    """The function from a value to its place, with the first tick at `begin` and the last at `end`."""
    return lambda value: begin + (end - begin) * math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])


def linear(ticks, begin, end):
    return lambda value: begin + (end - begin) * (value - ticks[0]) / (ticks[-1] - ticks[0])


class Picture:
    """`x` and `y` are functions from values to places within the frame."""

    def __init__(self, height, left=70, right=20, top=30, bottom=55):
        self.left, self.right, self.top, self.bottom = left, WIDTH - right, top, height - bottom
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                      'font-family="sans-serif" font-size="12">',
                      f'<rect width="{WIDTH}" height="{height}" fill="white"/>']

    def text(self, x, y, content, anchor="middle", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(content)}</text>')

    def line(self, points, colour, more=""):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}"{more}/>')

    def circle(self, x, y, colour, title="", hollow=False):
        fill = "white" if hollow else colour
        inner = f"><title>{html.escape(title)}</title></circle>" if title else "/>"
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" stroke="{colour}" fill="{fill}"{inner}')

    def bar(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')

    def x_axis(self, ticks, x, label):
        for value in ticks:
            self.line([(x(value), self.top), (x(value), self.bottom)], "#eee")
            self.text(x(value), self.bottom + 18, f"{value:g}")
        self.text((self.left + self.right) / 2, self.bottom + 43, label)

    def y_axis(self, ticks, y, label):
        for value in ticks:
            self.line([(self.left, y(value)), (self.right, y(value))], "#ddd")
            self.text(self.left - 8, y(value) + 4, f"{value:g}", "end")
        middle = (self.top + self.bottom) / 2
        self.text(18, middle, label, more=f' transform="rotate(-90 18 {middle})"')

    def legend(self, labels):
        for i, label in enumerate(labels):
            self.text(self.left + 10, self.top + 16 * (i + 1), label, "start", f' fill="{COLOURS[i % len(COLOURS)]}"')

    def svg(self):
        return "\n".join(self.parts + ["</svg>", ""])


def draw_record(description, draw, nothing):
    """The program of a picture of one record: what draw(record) gives, or None, is written to --out."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("record")
    parser.add_argument("--out", required=True, help="the SVG file to write")
    options = parser.parse_args()
    with open(options.record, encoding="utf-8") as file:
        picture = draw(json.load(file))
    if picture is None:
        parser.exit(1, f"{options.record} {nothing}\n")
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(picture)
