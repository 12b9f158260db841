# SPDX-License-Identifier: Apache-2.0
"""How good scores are. All are exact: no buckets, ties count half, sums in double."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import Problems, refuse


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
