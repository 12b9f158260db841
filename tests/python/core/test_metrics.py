# SPDX-License-Identifier: Apache-2.0
"""Metrics against the definitions, pair by pair."""

import numpy as np
import pytest

import warprank as wr
from warprank import metrics


def pairs(labels, scores):
    positives, negatives = scores[labels == 1][:, None], scores[labels == 0][None, :]
    return np.mean((positives > negatives) + 0.5 * (positives == negatives))


@pytest.mark.parametrize("steps", [3, 10, 10**9])  # many ties, some, none
def test_auc(rng, steps):
    labels, scores = rng.integers(0, 2, 400), np.floor(rng.random(400) * steps)
    assert metrics.auc(labels, scores) == pytest.approx(pairs(labels, scores), abs=1e-14)
    assert metrics.auc(labels.astype(bool), -scores) == pytest.approx(1 - pairs(labels, scores), abs=1e-14)


def test_auc_of_the_best_and_the_worst():
    assert metrics.auc([0, 0, 1], [1, 2, 3]) == 1 and metrics.auc([1, 0, 0], [1, 2, 3]) == 0
    assert metrics.auc([0, 1], [2, 2]) == 0.5


def test_gauc(rng):
    users = np.array([f"u{i}" for i in rng.integers(0, 60, 500)])
    labels, scores = rng.integers(0, 2, 500), np.floor(rng.random(500) * 8)
    labels[users == "u7"] = 1  # left out
    areas, rows = [], []
    for user in set(users):
        own = users == user
        if 0 < labels[own].sum() < own.sum():
            areas.append(pairs(labels[own], scores[own]))
            rows.append(own.sum())
    assert metrics.gauc(labels, scores, users) == pytest.approx(np.average(areas, weights=rows), abs=1e-14)
    assert metrics.gauc([0, 1, 1], [5, 5, 5], [0, 0, 1]) == 0.5  # ties of other users are none


def test_log_loss(rng):
    labels, scores = rng.integers(0, 2, 100), rng.random(100)
    expected = -np.mean([np.log(s if y else 1 - s) for y, s in zip(labels, scores)])
    assert metrics.log_loss(labels, scores) == pytest.approx(expected, abs=1e-14)
    assert metrics.log_loss([1, 0], [1, 0]) == 0 and metrics.log_loss([1, 0], [1, 1]) == np.inf


@pytest.mark.parametrize("call, message", [
    (lambda: metrics.auc([1, 1], [0, 1]), "auc: labels: expected positives and negatives, got only positives"),
    (lambda: metrics.auc([1, 2], [0, np.nan]), "labels: expected 0 or 1, got 2\n  scores: expected numbers, got 1 NaN"),
    (lambda: metrics.auc([1, 0], [0]), "expected as many of both, one or more, got shapes [2] and [1]"),
    (lambda: metrics.gauc([1, 0], [0, 1], [1, 2]), "gauc: groups: expected one with positives and negatives, got none"),
    (lambda: metrics.gauc([1, 0], [0, 1], [1]), "gauc: groups: expected 2, as there are labels"),
    (lambda: metrics.log_loss([1, 0], [0, 2]), "log_loss: scores: expected probabilities, 0 to 1, got 0.0 to 2.0"),
])
def test_what_is_wrong_is_told(call, message):
    with pytest.raises(wr.InvalidArgument) as raised:
        call()
    assert message in str(raised.value)


def test_calibration(rng):
    scores = rng.random(1000)
    labels = (rng.random(1000) < scores).astype(int)
    bins = metrics.calibration(labels, scores, 10)
    assert [b.rows for b in bins] == [100] * 10
    order = np.argsort(scores)
    for b, rows in zip(bins, order.reshape(10, 100)):
        assert b.score == pytest.approx(scores[rows].mean()) and b.positives == pytest.approx(labels[rows].mean())
    assert sum(b.rows for b in metrics.calibration(labels, np.round(scores, 1), 30)) == 1000
    assert len(metrics.calibration(labels, np.full(1000, 0.5), 30)) == 1
    with pytest.raises(wr.InvalidArgument, match="calibration: bins: expected 1 or more, got 0"):
        metrics.calibration(labels, scores, 0)


def test_calibration_as_a_picture(rng, tmp_path):
    import xml.etree.ElementTree as xml
    scores = rng.random(100)
    text = metrics.calibration_svg(rng.integers(0, 2, 100), scores, tmp_path / "c.svg", bins=7, title="A & B")
    root = xml.fromstring(text)
    assert (tmp_path / "c.svg").read_text() == text and len(root.findall("{*}circle")) == 7
    assert any(t.text == "A & B" for t in root.findall("{*}text"))
    metrics.calibration_svg([0, 0], [0.0, 0.0])  # nothing to scale by
