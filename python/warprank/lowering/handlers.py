# SPDX-License-Identifier: Apache-2.0
"""Which function takes which op of a framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[..., Any]


class Registry:
    """A decorator, and what it has decorated, by op."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.of_events: set[str] = set()  # ops that compute over events, or know of them
        self.of_constants: set[str] = set()  # ops whose constants may be others for each event

    def __call__(self, *names: str, events: bool = False, constants: bool = False) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.handlers.update(dict.fromkeys(names, handler))
            if events:
                self.of_events.update(names)
            if constants:
                self.of_constants.update(names)
            return handler
        return register
