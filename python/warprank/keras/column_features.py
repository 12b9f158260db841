# SPDX-License-Identifier: Apache-2.0
"""Maps of columns as features of a file of transforms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from ..errors import Problems
from ..lowering.cells import Unsupported
from .column_maps import Constant, Crossed, Hashed, Interval, Itself, Map, Refused, Remainder, Within
from .preprocessing import Column, Preprocessing, column_in
from .transforms import File, Source, floats, vocabulary_of

MOST = 2**63 - 1
CROSS_KEY = 0xdecafcaffe  # TensorFlow's, which the file need not say


@dataclass(frozen=True, eq=False)
class Encoded:
    """Numbers [tokens] that say which of them an id is."""

    of: Map
    tokens: int
    mode: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.of.columns

    @property
    def key(self) -> tuple[Any, ...]:
        return self.of.key, self.tokens, self.mode


def check(x: Map | Encoded, columns: Mapping[str, Column]) -> None:
    """Raises Unsupported where a file cannot say it."""
    if isinstance(x, Map):
        _settings(x, columns)
        for part in x.rule.of if isinstance(x.rule, Crossed) else ():
            if not isinstance(part.rule, Itself):
                check(part, columns)
    elif not isinstance(x.of.rule, Itself):
        check(x.of, columns)


def _settings(x: Map, columns: Mapping[str, Column]) -> tuple[str, dict[str, Any]]:
    """A feature's op and its settings."""
    rule = x.rule
    if isinstance(rule, (Crossed, Interval)) and (rule.first or x.exact):
        raise Unsupported("crosses and intervals from 0 on", f"from {rule.first} on, or with exceptions")
    if isinstance(rule, Crossed):
        return "cross", {"buckets": rule.buckets} | ({} if rule.key == CROSS_KEY else {"key": rule.key})
    if isinstance(rule, Interval):
        return "bucketize", {"boundaries": floats(rule.boundaries)}
    if x.is_float or not isinstance(rule, (Constant, Refused, Hashed, Remainder, Within)):
        raise Unsupported("ids that are made of a column", "the column as it is")
    type = "text" if columns[x.columns[0]].tensor.dtype == "string" else "i64"
    if isinstance(rule, (Hashed, Refused)):
        exact = x.exact
    else:
        follows = Map(x.columns, rule)
        exact = {value: made for value, made in x.exact.items() if made != follows.at(value)}
    if isinstance(rule, Hashed) and len(exact) <= 1:
        return "hash", {"buckets": rule.buckets, "first": rule.first or None, "key": list(rule.key),
                        "mask": _mask(list(exact.items()), type)}
    if isinstance(rule, Within):
        if len(exact) > 1:
            raise Unsupported("integers as they are, but for one", f"{len(exact)} that become others")
        return "identity", {"buckets": MOST if rule.most is None else rule.most + 1, "default_id": rule.default,
                            "mask": _mask(list(exact.items()), type)}
    if isinstance(rule, Constant) and not exact:
        raise Unsupported("ids that are made of a column", f"{rule.value} for all of its values")
    values, first, masked = _in_order(exact)
    settings = vocabulary_of(values, type) | {"first": first or None, "mask": _mask(masked, type)}
    if isinstance(rule, Refused):
        return "vocabulary", settings
    if isinstance(rule, Constant):
        return "vocabulary", settings | {"default_id": rule.value}
    return "vocabulary", settings | {
        "oov_buckets": rule.buckets, "oov_first": rule.first or None,
        "oov_by": "modulo" if isinstance(rule, Remainder) else None, "key": list(getattr(rule, "key", ()))}


def _mask(masked: Sequence[tuple[Any, int]], type: str) -> dict[str, Any] | None:
    if not masked:
        return None
    (value, made), = masked
    (kind, values), = vocabulary_of([value], type).items()
    return {kind.removesuffix("s"): values[0], "id": made}


def _in_order(exact: Mapping[Any, int]) -> tuple[list[Any], int, list[tuple[Any, int]]]:
    """The values whose ids follow one another, the first of these ids, and a value with another id, if there is one."""
    items = sorted(exact.items(), key=lambda item: item[1])

    def follow(items: list[tuple[Any, int]]) -> bool:
        return all(made == items[0][1] + i for i, (_, made) in enumerate(items)) and (not items or items[0][1] >= 0)
    if follow(items):
        return [value for value, _ in items], items[0][1] if items else 0, []
    gap = next((i for i in range(1, len(items)) if items[i][1] != items[i - 1][1] + 1), 0)
    for i in (0, len(items) - 1, gap):
        if follow(rest := items[:i] + items[i + 1:]):
            return [value for value, _ in rest], rest[0][1] if rest else 0, [items[i]]
    raise Unsupported("a table whose ids follow one another, but for one", f"{items[gap - 1][1]} and {items[gap][1]} "
                      "in their order" if gap else f"from {items[0][1]} on")


class Features:
    """The features of some maps, with names."""

    def __init__(self, columns: Mapping[str, Column], kept: set[str], found: Sequence[Map | Encoded],
                 widths: Mapping[Map | Encoded, int]):
        """widths: of those of which a row has any number, how many in the batch that is traced"""
        self.file = File()
        self.names: dict[Map | Encoded, str] = {}
        self._columns = columns
        self._kept = kept
        self._found = found
        self._widths = widths
        uses = Counter(column for x in found for column in x.columns)
        for x in found:  # a feature has the name of its column where nothing else is made of that
            column = x.columns[0]
            if len(x.columns) == 1 and uses[column] == 1 and column not in kept:
                self.names[x] = column
        for x in found:
            self._feature(x)

    def _feature(self, x: Map | Encoded) -> Source:
        op, settings = ("encode", {"tokens": x.tokens, "mode": x.mode}) if isinstance(x, Encoded) else _settings(
            x, self._columns)
        if x not in self.names:
            self.names[x] = self._new_name(x.columns, op)
        if isinstance(x, Encoded):
            of = [self._source(x.of)]
        elif isinstance(x.rule, Crossed):
            of = [self._source(part) for part in x.rule.of]
        else:
            of = [self._column(x.columns[0])]
        return self.file.feature(self.names[x], op, of, **settings)

    def _source(self, x: Map) -> Source:
        return self._column(x.columns[0]) if isinstance(x.rule, Itself) else self._feature(x)

    def _column(self, name: str) -> Source:
        try:
            return column_in(self.file, name, self._columns[name])
        except Unsupported as problem:
            self.file.problems.add(f"input '{name}'", *problem.args)
            return "column", name

    def _new_name(self, columns: Sequence[str], op: str) -> str:
        name = "_x_".join(columns) if op == "cross" else f"{'_x_'.join(columns)}_{op}"
        taken = {*self.names.values(), *self._columns}
        return next(n for n in (name, *(f"{name}.{i}" for i in range(1, len(taken) + 2))) if n not in taken)

    def preprocessing(self, problems: Problems) -> Preprocessing:
        """Whose transforms are none where there are problems, to which those of columns are added."""
        file = self.file
        problems.extend(file.problems)
        file.columns = {name: file.columns[name] for name in self._columns if name in file.columns}
        made = {}
        for x in self._found:
            shape = self._columns[x.columns[0]].tensor.shape
            width = x.tokens if isinstance(x, Encoded) else self._widths.get(x)
            made[self.names[x]] = keras.KerasTensor(shape if width is None else (shape[0], width),
                                                    "float32" if isinstance(x, Encoded) else "int64")
        kept = {name: column.tensor for name, column in self._columns.items() if name in self._kept}
        return Preprocessing(None if problems else file.finish(), dict(self._columns), made, kept,
                             {name: list(x.columns) for x, name in self.names.items()})
