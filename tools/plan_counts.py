# SPDX-License-Identifier: Apache-2.0
"""What tests/counts.json says of the plans of the reference models: their launches, operations and bytes, and what they
are predicted to take on each card of include/warprank/plan/cards.hpp, in microseconds."""

import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def plan_counts():
    """The rows of PlanCounts.OfReferenceModels as dictionaries."""
    with open(f"{ROOT}/tests/counts.json", encoding="utf-8") as file:
        head, *rows = json.load(file)["tests"]["plan_test"]["PlanCounts.OfReferenceModels"]
    return [dict(zip(head, row)) for row in rows]


def cards_of(counts):
    return [column for column in counts[0] if re.fullmatch(r"[A-Z]+\d+", column)]


def known_card(name):
    """Which card of include/warprank/plan/cards.hpp "NVIDIA H200" is, or None."""
    return next((card for card in cards_of(plan_counts()) if re.search(rf"\b{card}\b", name)), None)


def case_of(benchmark):
    """(model, requests, items of all requests) of a benchmark's name, or None."""
    found = re.match(r"(?:\w+/)*?(\w+)/requests:(\d+)/items:(\d+)", benchmark)
    return (found[1], int(found[2]), int(found[2]) * int(found[3])) if found else None
