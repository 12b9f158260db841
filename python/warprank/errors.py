# SPDX-License-Identifier: Apache-2.0
"""Errors of this package's Python, of the same form as those of its C++."""

from typing import NoReturn

from . import _core


class InvalidArgument(ValueError):
    """Something that a caller got wrong: what, expected and got, for all problems that could be found together."""

    def __init__(self, text: str, problems: list[_core.Problem]):
        super().__init__(text)
        self.problems = problems  #: each of them

    __module__ = "warprank"


class CudaError(RuntimeError):
    """What CUDA could not do: there is no driver, or no such card, or something failed on it."""

    __module__ = "warprank"


def refuse(what: str, expected: str, got: str) -> NoReturn:
    """Raises InvalidArgument."""
    _core.raise_problems([_core.Problem(what, expected, got)])
    raise AssertionError("not reached")


class Problems:
    """Collects problems so that they can be raised together."""

    def __init__(self) -> None:
        self._list: list[_core.Problem] = []

    def add(self, what: str, expected: str, got: str) -> None:
        self._list.append(_core.Problem(what, expected, got))

    def __len__(self) -> int:
        return len(self._list)

    def extend(self, others: "Problems") -> None:
        self._list += others._list

    def raise_if_any(self) -> None:
        _core.raise_problems(self._list)
