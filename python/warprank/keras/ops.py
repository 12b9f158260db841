# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of a TensorFlow graph: elementwise functions, activations, masks, reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from ..lowering.arithmetic import activation, apply, binary, is_constant, part_of_gelu, power, required_scalar
from ..lowering.cells import Unsupported, Value, numbers
from ..lowering.expressions import constant_of
from ..lowering.lengths import are_whole
from ..lowering.places import by_event
from ..lowering.reductions import reduce
from .handlers import HANDLERS, OF_CONSTANTS, OF_EVENTS, handles
from .negative_ids import FromTheEnd

if TYPE_CHECKING:
    from .program import Program


WHOLE_TYPES = ("int64", "int32")


def _binary(function: str) -> Callable[..., Any]:
    return lambda p, op, a, b: binary(p, function, a, b)


for _name, _function in {"Add": "add", "Sub": "sub", "Mul": "mul", "BiasAdd": "add", "Maximum": "max",
                         "Minimum": "min", "Atan2": "atan2", "Less": "less", "LessEqual": "less_equal",
                         "Greater": "greater", "GreaterEqual": "greater_equal", "Equal": "equal", "NotEqual": "not_equal",
                         "LogicalOr": "max"}.items():
    HANDLERS[_name] = _binary(_function)
    OF_CONSTANTS.add(_name)


def _unary(function: str) -> Callable[..., Any]:
    return lambda p, op, x: apply(p, function, numbers(x))


for _name, _function in {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log",
                         "Sqrt": "sqrt", "Abs": "abs", "Neg": "neg", "Square": "square", "Sin": "sin",
                         "Cos": "cos"}.items():
    HANDLERS[_name] = _unary(_function)


@handles("AddV2", constants=True)
def add(p: Program, op: Any, a: Any, b: Any) -> Any:
    values = [x for x in (a, b) if isinstance(x, Value)]
    if len(values) == 1 and values[0].is_ids:
        return FromTheEnd()
    return binary(p, "add", a, b)


HANDLERS["Less"] = lambda p, op, a, b: less(p, a, b)


def less(p: Program, a: Any, b: Any) -> Any:
    if isinstance(a, Value) and a.is_ids and is_constant(b) and np.all(b == 0) and _is_id(p, a):
        return FromTheEnd()
    return binary(p, "less", a, b)


def _is_id(p: Program, x: Value) -> bool:
    return p.sources.of(int(x.cells.flat[0]))[0].kind == "ids"


@handles("AddN")
def add_all(p: Program, op: Any, *given: Any) -> Any:
    made = given[0]
    for other in given[1:]:
        made = binary(p, "add", made, other)
    return made


@handles("SquaredDifference", constants=True)
def squared_difference(p: Program, op: Any, a: Any, b: Any) -> Value:
    return apply(p, "square", binary(p, "sub", a, b))


def _check_fractions(op: Any) -> None:
    """That it does not round to integers."""
    made = op.outputs[0].dtype
    if made.is_integer:
        raise Unsupported("floating-point numbers", f"'{op.type}' of {made.name}")


@handles("RealDiv", "Div", constants=True)
def divide(p: Program, op: Any, a: Any, b: Any) -> Value:
    _check_fractions(op)
    return binary(p, "div", a, b)


@handles("DivNoNan", constants=True)
def divide_or_zero(p: Program, op: Any, a: Any, b: Any) -> Value:
    if not isinstance(b, Value):
        return binary(p, "div", a, b)
    made = binary(p, "div", a, b)
    return apply(p, "select", 0.0, made, apply(p, "equal", numbers(b), 0.0))


@handles("LogicalNot")
def logical_not(p: Program, op: Any, x: Any) -> Value:
    return apply(p, "equal", numbers(x), 0.0)


@handles("LogicalAnd", events=True)
def logical_and(p: Program, op: Any, a: Any, b: Any) -> Value:
    """Of a mask of events as queries and one of them as keys that of keys: queries are events, none is padding."""
    if isinstance(a, Value) and isinstance(b, Value):
        places = [p.sources.split_events(x.cells)[0] for x in (a, b)]
        if None not in places and places[0] != places[1]:
            queries, keys = (a, b) if places[1] == -1 else (b, a)
            if all(constant_of(p, int(cell & ~np.int64((1 << 12) - 1))) == 1 for cell in queries.cells.flat):
                shape = np.broadcast_shapes(queries.cells.shape, keys.cells.shape)
                return keys.like(np.array(np.broadcast_to(keys.cells, shape)))
    return by_event(p, lambda p, x, y: binary(p, "mul", x, y), (a, b), {}, constants=True)


@handles("Select", "SelectV2", events=True)
def select(p: Program, op: Any, condition: Any, a: Any, b: Any) -> Any:
    def made(p: Program, condition: Any, a: Any, b: Any) -> Value:
        return apply(p, "select", *(x if isinstance(x, Value) else required_scalar(x) for x in (a, b, condition)))
    return by_event(p, made, (condition, a, b), {}, constants=True)


@handles("Cast")
def cast(p: Program, op: Any, x: Value) -> Value:
    given, to = op.inputs[0].dtype, op.get_attr("DstT")
    if to.is_bool and not given.is_bool:
        return HANDLERS["NotEqual"](p, op, x, 0)
    if x.is_ids and to.is_floating:
        raise Unsupported("numbers: ids can only be looked up, and compared with padding", "arithmetic on ids")
    is_whole = to.name in WHOLE_TYPES and (not given.is_floating or are_whole(p, x))
    if not x.is_ids and not is_whole and not to.is_floating and to != given:
        raise Unsupported("floating-point numbers", f"a conversion to {to.name}")
    return Value(x.cells, x.is_ids and not to.is_floating, x.batch, x.inner)


@handles("Pow")
def raised(p: Program, op: Any, x: Any, exponent: Any) -> Value:
    return power(p, x, exponent)


@handles("Atan")
def atan(p: Program, op: Any, x: Any) -> Value:
    return apply(p, "atan2", numbers(x), 1.0)


@handles("Log1p")
def log_of_more(p: Program, op: Any, x: Any) -> Value:
    return apply(p, "log", apply(p, "add", numbers(x), 1.0))


@handles("Reciprocal", "Inv")
def reciprocal(p: Program, op: Any, x: Any) -> Value:
    return apply(p, "div", 1.0, numbers(x))


@handles("Rsqrt")
def rsqrt(p: Program, op: Any, x: Any) -> Value:
    return apply(p, "div", 1.0, apply(p, "sqrt", numbers(x)))


@handles("Relu6")
def relu6(p: Program, op: Any, x: Any) -> Value:
    return apply(p, "min", apply(p, "relu", numbers(x)), 6.0)


@handles("LeakyRelu")
def leaky_relu(p: Program, op: Any, x: Any) -> Value:
    return activation(p, x, wr.Activation("leaky_relu", alpha=float(op.get_attr("alpha"))), {}, None)


@handles("Elu")
def elu(p: Program, op: Any, x: Any) -> Value:
    return activation(p, x, wr.Activation("elu", alpha=1.0), {}, None)


@handles("Erf", "Erfc")
def erf(p: Program, op: Any, x: Any) -> Value:
    return part_of_gelu(p, op.type.lower(), x)


def _reduction(pooling: str, function: str) -> Callable[..., Any]:
    def made(p: Program, op: Any, x: Any, axes: Any) -> Value:
        if pooling == "mean":
            _check_fractions(op)
        return reduce(p, x, np.ravel(axes).tolist(), bool(op.get_attr("keep_dims")), pooling, function)
    return made


for _name, _pooling, _function in (("Sum", "sum", "add"), ("Mean", "mean", "add"), ("Max", "max", "max")):
    HANDLERS[_name] = _reduction(_pooling, _function)
    OF_EVENTS.add(_name)
