# SPDX-License-Identifier: Apache-2.0
"""What tools/zoo.py and tools/zoo_deepctr.py measure of a model alike."""

ROWS = (100, 500)
LARGEST_DIFFERENCE, TURNS = 1e-5, 30


def relative(differences, scores):
    """The largest difference, as a share of the largest score. Both are by output."""
    return max(d.largest / max(1.0, float(abs(scores[output]).max())) for output, d in differences.items())


def launches(plan):
    return sum(int(line.split()[2]) for line in plan.describe().splitlines() if line.startswith("this plan"))
