# SPDX-License-Identifier: Apache-2.0
"""What ops of a TensorFlow graph make of one value of a column: some values become what they become, all others follow
one rule. So layers, tables and users' own code are known by what they compute, and not by how it is written."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from ..lowering.cells import Unsupported

EXACT = 1 << 24  # integers up to this are themselves as FP32


@dataclass(frozen=True)
class Itself:
    """The column's value; of integers also as text."""

    as_text: bool = False


@dataclass(frozen=True)
class Number:
    """The column's value, which is no integer."""


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class Refused:
    """No id: the graph asserts that there are no such values."""


@dataclass(frozen=True)
class Hashed:
    buckets: int
    first: int = 0
    key: tuple[int, ...] = ()


@dataclass(frozen=True)
class Remainder:
    buckets: int
    first: int = 0


@dataclass(frozen=True)
class Interval:
    boundaries: tuple[float, ...]
    first: int = 0


@dataclass(frozen=True)
class Crossed:
    of: tuple[Map, ...]
    buckets: int
    key: int
    first: int = 0


@dataclass(frozen=True)
class Between:
    """Whether an integer is from `least` to `most`, each None where there is no bound; or whether it is not."""

    least: int | None
    most: int | None
    is_inside: bool = True


@dataclass(frozen=True)
class Within:
    """An integer from 0 to `most`, which may be without bound; others become `default`."""

    most: int | None
    default: int


Rule = Itself | Number | Constant | Refused | Hashed | Remainder | Interval | Crossed | Between | Within


@dataclass(frozen=True, eq=False)
class Map:
    """A function of a value of columns: of one, but for crosses; of none, where it is a constant."""

    columns: tuple[str, ...]
    rule: Rule
    exact: Mapping[Any, Any] = field(default_factory=dict)  # by value of the column what does not follow the rule
    is_float: bool = False  # an integer as FP32

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal where maps are, if those that they are crossed of are the same."""
        return self.columns, self.rule, frozenset(self.exact.items()), self.is_float

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the largest that the rule makes; None: not known."""
        rule = self.rule
        if isinstance(rule, (Hashed, Remainder, Crossed)):
            return rule.first, rule.first + rule.buckets - 1
        if isinstance(rule, Interval):
            return rule.first, rule.first + len(rule.boundaries)
        if isinstance(rule, Refused):
            return min(self.exact.values()), max(self.exact.values())
        return (rule.value, rule.value) if isinstance(rule, Constant) and isinstance(rule.value, int) else None

    def at(self, value: Any) -> Any:
        """What one value of the column becomes."""
        if value in self.exact:
            return self.exact[value]
        rule = self.rule
        if isinstance(rule, Constant):
            return rule.value
        if isinstance(rule, Itself):
            return as_text(value) if rule.as_text else value
        if isinstance(rule, Hashed):
            return rule.first + bucket(as_text(value), rule.buckets, rule.key)
        if isinstance(rule, Remainder):
            return rule.first + value % rule.buckets
        if isinstance(rule, Between):
            return _is_between(value, rule.least, rule.most) == rule.is_inside
        if isinstance(rule, Within):
            return value if _is_between(value, 0, rule.most) else rule.default
        raise Unsupported("ids of text or of integers", "of numbers or several columns")


def _is_between(value: int, least: int | None, most: int | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def constant(value: Any) -> Map:
    return Map((), Constant(value))


def as_text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


def bucket(text: bytes, buckets: int, key: tuple[int, ...]) -> int:
    if key:
        return int(tf.strings.to_hash_bucket_strong(text, buckets, key))
    return int(tf.strings.to_hash_bucket_fast(text, buckets))


def of_text(text: bytes) -> int | None:
    """The integer that is written so."""
    try:
        return int(text) if b"%d" % int(text) == text else None
    except ValueError:
        return None


# --- elementwise ops

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Equal": operator.eq, "NotEqual": operator.ne, "Less": operator.lt, "LessEqual": operator.le,
    "Greater": operator.gt, "GreaterEqual": operator.ge}
FUNCTIONS: dict[str, Callable[..., Any]] = COMPARISONS | {
    "LogicalNot": operator.not_, "LogicalAnd": lambda a, b: a and b, "LogicalOr": lambda a, b: a or b,
    "AddV2": operator.add, "Add": operator.add, "Sub": operator.sub, "Maximum": max, "Minimum": min,
    "FloorMod": operator.mod, **dict.fromkeys(("Select", "SelectV2"), lambda c, a, b: a if c else b)}


def elementwise(op: str, given: list[Map]) -> Map:
    """A function of some maps; raises Unsupported where that is no map."""
    columns = {x.columns for x in given if x.columns}
    if len(columns) != 1 or any(x.is_float for x in given):
        raise Unsupported("ids of one column, and constants", f"{op} of others")
    refused = next((x for x in given if isinstance(x.rule, Refused)), None)
    if refused is not None:
        return replace(refused, exact={v: FUNCTIONS[op](*(x.at(v) for x in given)) for v in refused.exact})
    if op in ("Select", "SelectV2"):
        return _select(*given)
    rules = [x.rule for x in given]
    values = set().union(*(x.exact for x in given)) | set(_compared(op, rules))
    rule = _rule(op, given)
    return Map(columns.pop(), rule, {v: FUNCTIONS[op](*(x.at(v) for x in given)) for v in values})


def _compared(op: str, rules: list[Rule]) -> Iterable[Any]:
    """The values of a column for which a comparison is another than for all others."""
    if op in ("Equal", "NotEqual"):
        for a, b in (rules, rules[::-1]):
            if isinstance(a, Itself) and isinstance(b, Constant):
                value = of_text(b.value) if a.as_text else b.value
                yield from () if value is None else (value,)


def _select(condition: Map, a: Map, b: Map) -> Map:
    where = condition.rule
    columns = next(x.columns for x in (condition, a, b) if x.columns)
    if isinstance(where, Constant):
        taken = a if where.value else b
        rule, values = taken.rule, {*condition.exact, *taken.exact}
    elif isinstance(where, Between):
        rule, values = _within(where, a.rule, b.rule), {*condition.exact, *a.exact, *b.exact}
    else:
        raise Unsupported("a condition on a column's integers", "another")
    return Map(columns, rule, {v: (a if condition.at(v) else b).at(v) for v in values})


def _within(where: Between, a: Rule, b: Rule) -> Rule:
    inside, outside = (a, b) if where.is_inside else (b, a)
    is_itself = inside == Itself() or (isinstance(inside, Within) and inside.most == where.most)
    if where.least != 0 or not is_itself or not isinstance(outside, Constant):
        raise Unsupported("integers from 0 on, and a constant in the place of others", "others")
    return Within(where.most, outside.value)


def _rule(op: str, given: list[Map]) -> Rule:
    rules = [x.rule for x in given]
    constants = [r.value for r in rules if isinstance(r, Constant)]
    made: Rule | None = None
    if len(constants) == len(rules):
        return Constant(FUNCTIONS[op](*constants))
    if op.startswith("Logical"):
        made = _logical(op, rules)
    elif len(rules) == 2 and len(constants) == 1:
        made = _with_constant(op, given, isinstance(rules[0], Constant), constants[0])
    if made is None:
        raise Unsupported("ids, compared with constants and shifted by them", op)
    return made


def _logical(op: str, rules: list[Rule]) -> Rule | None:
    """Of ranges of integers."""
    if op == "LogicalNot":
        return replace(rules[0], is_inside=not rules[0].is_inside) if isinstance(rules[0], Between) else None
    for a, b in (rules, rules[::-1]):
        if isinstance(a, Constant):
            return b if bool(a.value) == (op == "LogicalAnd") else a
        if not isinstance(a, Between) or not isinstance(b, Between) or not a.is_inside or not b.is_inside:
            continue
        if a.least is None and b.most is None and a.most is not None and b.least is not None:
            return Between(b.least, a.most) if op == "LogicalAnd" else Between(a.most + 1, b.least - 1, False)
    return None


def _compared_integer(op: str, is_first: bool, value: int) -> Between:
    """Of a column's integer with a constant, which may be the first."""
    if is_first:
        op = {"Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual"}[op]
    return Between(value + (op == "Greater"), None) if op.startswith("Greater") else Between(
        None, value - (op == "Less"))


def _with_constant(op: str, given: list[Map], is_first: bool, value: Any) -> Rule | None:
    x = given[is_first]
    if isinstance(x.rule, Itself):
        if op in ("Equal", "NotEqual"):
            return Constant(op == "NotEqual")
        if op in COMPARISONS and not x.rule.as_text and isinstance(value, int):
            return _compared_integer(op, is_first, value)
        if op == "FloorMod" and not is_first and not x.rule.as_text and value > 0:
            return Remainder(value)
        return None
    if isinstance(x.rule, Within):
        if (op, is_first, value) != ("GreaterEqual", False, 0):
            return None
        return Constant(True) if x.rule.default >= 0 else Between(0, x.rule.most)
    if x.bounds is None:
        return None
    low, high = x.bounds

    def of(bound: int) -> Any:
        return FUNCTIONS[op](value, bound) if is_first else FUNCTIONS[op](bound, value)
    if op in ("Equal", "NotEqual"):
        return None if low <= value <= high else Constant(op == "NotEqual")
    if op in COMPARISONS:
        return Constant(of(low)) if of(low) == of(high) else None
    if op in ("Maximum", "Minimum"):
        return x.rule if (of(low), of(high)) == (low, high) else Constant(value) if of(low) == of(high) else None
    if op in ("Add", "AddV2") or (op == "Sub" and not is_first):
        return replace(x.rule, first=of(low))  # type: ignore[type-var,call-arg]
    return None


def converted(x: Map, before: tf.DType, to: tf.DType) -> Map:
    """A Cast."""
    made = [*x.exact.values(), *(x.bounds or ())]
    most = max(map(abs, made), default=0)
    if before.is_bool and to.is_integer and isinstance(x.rule, Constant):
        return Map(x.columns, Constant(int(x.rule.value)), {v: int(is_so) for v, is_so in x.exact.items()})
    if before.is_integer and to.is_integer:
        if to.size >= before.size or (x.bounds is not None and to.min <= min(made) and max(made) <= to.max):
            return x
    if before.is_integer and to == tf.float32:
        return replace(x, is_float=True)
    if before == tf.float32 and x.is_float and to.is_integer and x.bounds is not None and most <= EXACT:
        return replace(x, is_float=False)
    if before == tf.float32 and x.is_float and to.is_integer and to.size >= 4 and isinstance(x.rule, Itself):
        return x  # rounded, where it is large
    raise Unsupported("ids of an integer type that has them", f"a conversion of {before.name} to {to.name}")


# --- ops that make ids of values


def hashed(x: Map, buckets: int, key: tuple[int, ...]) -> Map:
    if not isinstance(x.rule, Itself):
        raise Unsupported("a column's values", "ids")
    return Map(x.columns, Hashed(buckets, 0, key), {v: bucket(as_text(made), buckets, key)
                                                    for v, made in x.exact.items()})


def texts_of(x: Map) -> Map:
    """AsString of integers."""
    if not isinstance(x.rule, Itself) or x.is_float:
        raise Unsupported("a column of integers", "others")
    return Map(x.columns, Itself(True), {v: as_text(made) for v, made in x.exact.items()})


def looked_up(x: Map, table: Mapping[Any, int], default: int) -> Map:
    """The values of a table, whose keys are those of the column."""
    if not isinstance(x.rule, Itself) or x.is_float:
        raise Unsupported("a column's values", "what is computed of them")
    exact = dict(table)
    if x.rule.as_text:
        exact = {number: made for text, made in table.items() if (number := of_text(text)) is not None}
    return Map(x.columns, Constant(default), exact | {v: table.get(made, default) for v, made in x.exact.items()})


def refusing(x: Map) -> Map:
    """Of ids of a table, where it is asserted that none is -1, which others are."""
    return replace(x, rule=Refused()) if x.rule == Constant(-1) and x.exact else x


def interval(x: Map, boundaries: Sequence[float]) -> Map:
    if not isinstance(x.rule, (Itself, Number)) or x.exact:
        raise Unsupported("a column's numbers", "what is computed of them")
    return Map(x.columns, Interval(tuple(np.asarray(boundaries, np.float32).tolist())))


def crossed(parts: tuple[Map, ...], buckets: int, key: int) -> Map:
    for x in parts:
        is_other = isinstance(x.rule, Itself) and (x.exact or x.rule.as_text)
        if is_other or isinstance(x.rule, Number) or x.is_float or not x.columns:
            raise Unsupported("columns, and ids of them", "what is computed of a column's values")
    columns = tuple(dict.fromkeys(column for x in parts for column in x.columns))
    return Map(columns, Crossed(parts, buckets, key))
