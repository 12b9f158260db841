# SPDX-License-Identifier: Apache-2.0
"""How good scores are. All are exact: no buckets, ties count half, sums in double."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from .errors import Problems, refuse
from .whole import write_text


def auc(labels: Any, scores: Any) -> float:
    """Area under the ROC curve: how often a positive is above a negative, a tie being half.

    labels: 0 or 1 (or bool) for each score; both must be there.
    """
    positive, values = _checked(labels, scores)
    if positive.all() or not positive.any():
        refuse("auc: labels", "positives and negatives", "only " + ("positives" if positive.any() else "negatives"))
    group = np.zeros(len(values), np.int64)
    return float(_auc_by_group(positive, values, group, 1)[0])


def gauc(labels: Any, scores: Any, groups: Any) -> float:
    """The mean of the AUC of each group (a user, a request), weighted by its rows. Those of one class are left out.

    groups: of each row its group, any values that can be sorted.
    """
    positive, values = _checked(labels, scores)
    names, group, rows = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if group.shape != positive.shape:
        refuse("gauc: groups", f"{len(positive)}, as there are labels", f"shape {list(np.shape(groups))}")
    areas = _auc_by_group(positive, values, group, len(names))
    known = ~np.isnan(areas)
    if not known.any():
        refuse("gauc: groups", "one with positives and negatives", "none")
    return float(np.average(areas[known], weights=rows[known]))


def log_loss(labels: Any, scores: Any) -> float:
    """The mean of -log of the probability that was given to what happened. Infinite where that was 0."""
    positive, values = _checked(labels, scores)
    if values.min() < 0 or values.max() > 1:
        refuse("log_loss: scores", "probabilities, 0 to 1", f"{values.min()} to {values.max()}")
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.where(positive, np.log(values), np.log1p(-values))))


@dataclass
class CalibrationBin:
    """Rows of which the scores are next to one another."""

    rows: int
    score: float  # their mean
    positives: float  # which share of them is positive


def calibration(labels: Any, scores: Any, bins: int = 20) -> list[CalibrationBin]:
    """Rows in the order of their scores, in as many bins of as many rows; equal scores are in one.

    Of calibrated scores a bin's share of positives is its mean score.
    """
    positive, values = _checked(labels, scores)
    if bins < 1:
        refuse("calibration: bins", "1 or more", str(bins))
    order = np.argsort(values, kind="stable")
    positive, values = positive[order], values[order]
    ends = np.searchsorted(values, values[np.arange(1, bins + 1) * len(values) // bins - 1], side="right")
    ends = np.unique(ends[ends > 0])
    begins = np.concatenate([[0], ends[:-1]])
    return [CalibrationBin(int(e - b), float(values[b:e].mean()), float(positive[b:e].mean()))
            for b, e in zip(begins, ends)]


def calibration_svg(labels: Any, scores: Any, path: str | os.PathLike[str] | None = None, *, bins: int = 20,
                    title: str = "Calibration") -> str:
    """A picture of ``calibration``, as text, and in a file where a path is given: by mean score the share of positives,
    with what chance makes of it in 95 of 100 cases, and a line where both are the same."""
    found = calibration(labels, scores, bins)
    spread = [1.96 * (b.positives * (1 - b.positives) / b.rows) ** 0.5 for b in found]
    most = max(max(b.score, b.positives + s) for b, s in zip(found, spread)) or 1.0
    left, size = 60, 400

    def x(value: float) -> float:
        return round(left + size * value / most, 2)

    def y(value: float) -> float:
        return round(left + size * (1 - value / most), 2)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 2 * left} {size + 2 * left}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{left}" y="{left - 20}" font-size="16">{escape(title)}</text>']
    for tick in np.linspace(0, most, 5):
        label = f"{tick:.3g}"
        lines += [f'<line x1="{x(tick)}" y1="{y(0)}" x2="{x(tick)}" y2="{y(most)}" stroke="#ddd"/>',
                  f'<line x1="{x(0)}" y1="{y(tick)}" x2="{x(most)}" y2="{y(tick)}" stroke="#ddd"/>',
                  f'<text x="{x(tick)}" y="{y(0) + 18}" text-anchor="middle">{label}</text>',
                  f'<text x="{x(0) - 8}" y="{y(tick) + 4}" text-anchor="end">{label}</text>']
    lines += [f'<line x1="{x(0)}" y1="{y(0)}" x2="{x(most)}" y2="{y(most)}" stroke="#888" stroke-dasharray="4"/>',
              f'<text x="{x(most / 2)}" y="{y(0) + 40}" text-anchor="middle">mean score</text>',
              f'<text transform="translate({x(0) - 45},{y(most / 2)}) rotate(-90)" text-anchor="middle">'
              'share of positives</text>']
    for b, s in zip(found, spread):
        lines += [f'<line x1="{x(b.score)}" y1="{y(max(b.positives - s, 0))}" x2="{x(b.score)}" '
                  f'y2="{y(b.positives + s)}" stroke="#1f77b4"/>',
                  f'<circle cx="{x(b.score)}" cy="{y(b.positives)}" r="4" fill="#1f77b4"><title>{b.rows} rows, score '
                  f'{b.score:.4g}, positives {b.positives:.4g}</title></circle>']
    text = "\n".join([*lines, "</svg>", ""])
    if path is not None:
        write_text(path, text)
    return text


def _checked(labels: Any, scores: Any) -> tuple[np.ndarray, np.ndarray]:
    positive, values = np.asarray(labels), np.asarray(scores, np.float64)
    problems = Problems()
    if positive.ndim != 1 or positive.shape != values.shape or not positive.size:
        problems.add("labels and scores", "as many of both, one or more",
                     f"shapes {list(positive.shape)} and {list(values.shape)}")
    if not np.isin(positive, (0, 1)).all():
        problems.add("labels", "0 or 1", str(positive[~np.isin(positive, (0, 1))].ravel()[0]))
    if np.isnan(values).any():
        problems.add("scores", "numbers", f"{np.isnan(values).sum()} NaN")
    problems.raise_if_any()
    return positive.astype(bool), values


def _auc_by_group(positive: np.ndarray, values: np.ndarray, group: np.ndarray, num_groups: int) -> np.ndarray:
    """By group; NaN where it has one class. From ranks within the group, of which ties have the mean."""
    order = np.lexsort((values, group))
    positive, values, group = positive[order], values[order], group[order]
    is_first = np.ones(len(values), bool)
    is_first[1:] = (values[1:] != values[:-1]) | (group[1:] != group[:-1])
    begins = np.flatnonzero(is_first)
    ends = np.append(begins[1:], len(values))
    tie = np.cumsum(is_first) - 1
    rank = ((begins + ends + 1) / 2)[tie]  # among all rows, from 1
    rows_before = np.searchsorted(group, np.arange(num_groups))
    rank -= rows_before[group]
    positives = np.bincount(group, positive, num_groups)
    negatives = np.bincount(group, ~positive, num_groups)
    above = np.bincount(group, rank * positive, num_groups) - positives * (positives + 1) / 2
    with np.errstate(invalid="ignore"):
        return above / (positives * negatives)
