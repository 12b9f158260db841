# SPDX-License-Identifier: Apache-2.0
"""How minutes on a card are shared out."""

import time


class TimePlan:
    """Parts run one after another, the most valuable first. Each gets its share, by weight, of what is left when it
    begins: so what a part leaves goes to all behind it, and none can take from them."""

    def __init__(self, seconds, weights, clock=time.monotonic):
        self.weights, self.clock = dict(weights), clock
        self.end = clock() + seconds
        self.part_end = self.end

    def begin(self, part):
        names = list(self.weights)
        rest = sum(self.weights[name] for name in names[names.index(part):])
        now = self.clock()
        self.part_end = now + max(self.end - now, 0) * self.weights[part] / rest

    def left(self):
        """Seconds that the part has yet."""
        return self.part_end - self.clock()

    def for_step(self, steps):
        """What the next of so many steps may take: more than an equal share, as most take less."""
        return self.left() * min(1, 1.5 / max(steps, 1))
