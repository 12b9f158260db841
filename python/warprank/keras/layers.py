# SPDX-License-Identifier: Apache-2.0
"""What each layer and each op of Keras is in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from .values import IdsValue, Ones, Unsupported, Value, constant, like_of, numbers, positive

if TYPE_CHECKING:
    from .program import Program

Handler = Callable[..., Any]
LAYERS: dict[str, Handler] = {}
OPS: dict[str, Handler] = {}


def layer(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        LAYERS.update(dict.fromkeys(names, handler))
        return handler
    return register


def op(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        OPS.update(dict.fromkeys(names, handler))
        return handler
    return register


def per_field(x: Value, make: Callable[[wr.Tensor], wr.Tensor], width: int | None = None) -> Value:
    """The same of each field."""
    shape = x.shape if width is None else (*x.shape[:-1], width)
    return like_of(x, x.axis, shape, [make(field) for field in x.fields])


# --- arithmetic


def elementwise(p: Program, function: str, *operands: Any) -> Value:
    """Batches, which are broadcast, and numbers."""
    values = [numbers(x) for x in operands if isinstance(x, Value)]
    aligned, axis, like = p.graph.aligned(values)
    shape = np.broadcast_shapes(*(v.shape for v in aligned))
    grids = iter([np.broadcast_to(v.array(), shape[:-1]).reshape(-1) for v in aligned])
    given = [next(grids) if isinstance(x, Value) else float(x) for x in operands]
    widths = [v.width for v in aligned]
    fields = []
    for i in range(prod(shape[:-1])):
        columns = [g if isinstance(g, float) else g[i] for g in given]
        fields.append(p.builder.apply(function, columns))  # type: ignore[arg-type]
    width = shape[-1] if shape else 1
    if width > 1 and max(widths) == 1:
        raise Unsupported("an operand of all columns", f"shape {shape} of single ones")
    return like_of(like, axis, shape, fields)


def scaled(p: Program, x: Value, scale: np.ndarray, shift: np.ndarray, given: Any) -> Value:
    """x * scale + shift by column: a batch norm whose statistics change nothing."""
    fields = []
    rows = (len(x.fields), x.width)
    for field, a, b in zip(x.fields, np.broadcast_to(scale, x.shape).reshape(rows),
                           np.broadcast_to(shift, x.shape).reshape(rows)):
        name = p.layer(given)
        for part, vector in {"weight": a, "bias": b, "running_mean": np.zeros_like(a),
                             "running_var": np.ones_like(a)}.items():
            p.weight(f"{name}.{part}", vector)
        fields.append(p.builder.batch_norm(name, field, eps=0.0))
    return like_of(x, x.axis, x.shape, fields)


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply,
                                                 "div": np.divide, "max": np.maximum, "min": np.minimum}


def binary(p: Program, function: str, a: Any, b: Any) -> Any:
    if isinstance(a, IdsValue) or isinstance(b, IdsValue):
        return of_ids(p, function, a, b)
    a, b = (1.0 if isinstance(x, Ones) else x for x in (a, b))
    if not isinstance(a, Value) and not isinstance(b, Value):
        return NUMBERS[function](constant(a), constant(b))
    if isinstance(a, Value) and isinstance(b, Value):
        return elementwise(p, function, a, b)
    x, given = (a, b) if isinstance(a, Value) else (numbers(b), a)
    other = constant(given)
    if other.size == 1:
        number = float(other.reshape(()))
        return elementwise(p, function, *((x, number) if x is a else (number, x)))
    one, zero = np.ones_like(other), np.zeros_like(other)
    if function == "mul":
        return scaled(p, x, other, zero, given)
    if function == "add":
        return scaled(p, x, one, other, given)
    if function == "sub":
        return scaled(p, x, one, -other, given) if x is a else scaled(p, x, -one, other, given)
    if function == "div" and x is a:
        return scaled(p, x, 1 / other, zero, given)
    raise Unsupported("a number, or + - * / of a constant for each column", f"'{function}' of one")


def of_ids(p: Program, function: str, a: Any, b: Any) -> Ones:
    """Which steps of a sequence are not padding: all, since padding is left out."""
    ids, other = (a, b) if isinstance(a, IdsValue) else (b, a)
    padding = p.inputs[ids.name].padding
    if function not in ("not_equal", "greater") or padding is None or isinstance(other, (Value, IdsValue)) or (
            float(constant(other)) != padding):
        raise Unsupported("ids that are looked up, or compared with the padding of a sequence", f"'{function}' of ids")
    return Ones(ids.name, ids.axis)


for _name, _function in {"Add": "add", "Subtract": "sub", "Multiply": "mul", "Divide": "div", "TrueDivide": "div",
                         "Maximum": "max", "Minimum": "min", "Less": "less", "LessEqual": "less_equal",
                         "Greater": "greater", "GreaterEqual": "greater_equal", "Equal": "equal",
                         "NotEqual": "not_equal"}.items():
    OPS[_name] = lambda p, _, a, b, function=_function: binary(p, function, a, b)

for _name, _function in {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Silu": "silu", "Exp": "exp",
                         "Log": "log", "Sqrt": "sqrt", "Abs": "abs", "Absolute": "abs", "Negative": "neg",
                         "Square": "square"}.items():
    OPS[_name] = lambda p, _, x, function=_function: elementwise(p, function, numbers(x))


@op("Power")
def power(p: Program, _: Any, x: Any, exponent: Any) -> Value:
    number = float(constant(exponent))
    if number == 2:
        return elementwise(p, "square", numbers(x))
    if number == 0.5:
        return elementwise(p, "sqrt", numbers(x))
    raise Unsupported("an exponent of 2 or 0.5", str(number))


@op("Gelu")
def gelu_op(p: Program, self: Any, x: Any) -> Value:
    return elementwise(p, "gelu_tanh" if self.approximate else "gelu", numbers(x))


@op("Where")
def where(p: Program, _: Any, condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Ones):
        return a
    return elementwise(p, "select", *(x if isinstance(x, Value) else float(constant(x)) for x in (a, b, condition)))


@op("Cast", "StopGradient")
def same(_: Program, __: Any, x: Any, *___: Any) -> Any:
    return x


@layer("Dropout", "SpatialDropout1D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization",
       "Identity")
def nothing(_: Program, __: Any, x: Any) -> Any:
    return x


def _merge(function: str) -> Handler:
    def merge(p: Program, _: Any, inputs: Sequence[Any]) -> Any:
        made = numbers(inputs[0])
        for other in inputs[1:]:
            made = elementwise(p, function, made, numbers(other))
        return made
    return merge


LAYERS |= {"Add": _merge("add"), "Subtract": _merge("sub"), "Multiply": _merge("mul"), "Maximum": _merge("max"),
           "Minimum": _merge("min")}


@layer("Average")
def average(p: Program, _: Any, inputs: Sequence[Any]) -> Value:
    return elementwise(p, "mul", _merge("add")(p, _, inputs), 1 / len(inputs))


# --- activations


def softmax(p: Program, x: Value, axis: int) -> Value:
    dim = positive(axis, x)
    if dim == -1:  # over the steps of a sequence
        parent = x.axis.rpartition("/")[0]
        top = [p.graph.expand(p.builder.pool(f, "max"), parent, x.axis) for f in x.fields]
        powers = [p.builder.apply("exp", [p.builder.apply("sub", [f, t])]) for f, t in zip(x.fields, top)]
        sums = [p.graph.expand(p.builder.pool(e, "sum"), parent, x.axis) for e in powers]
        return like_of(x, x.axis, x.shape, [p.builder.apply("div", [e, s]) for e, s in zip(powers, sums)])
    if dim == len(x.shape) - 1:
        return per_field(x, p.builder.softmax)
    last = transposed(p, x, dim)
    return transposed(p, per_field(last, p.builder.softmax), dim)


def activate(p: Program, x: Value, function: Any) -> Value:
    """A function of keras.activations."""
    name = getattr(function, "__name__", str(function))
    if name == "linear":
        return x
    if name == "softmax":
        return softmax(p, x, -1)
    if name in ("relu", "sigmoid", "tanh", "silu"):
        return per_field(x, lambda f: p.builder.activate(f, name))  # type: ignore[arg-type]
    if name == "gelu":
        return elementwise(p, "gelu", x)
    if name == "exponential":
        return elementwise(p, "exp", x)
    if name in ("elu", "leaky_relu"):
        alpha = 1.0 if name == "elu" else 0.2
        return per_field(x, lambda f: p.builder.activate(f, wr.Activation(name, alpha=alpha)))  # type: ignore[arg-type]
    raise Unsupported("an activation of relu, sigmoid, tanh, silu, gelu, elu, leaky_relu, softmax, exponential", name)


@layer("Activation")
def activation(p: Program, self: Any, x: Any) -> Value:
    return activate(p, numbers(x), self.activation)


@layer("ReLU")
def relu(p: Program, self: Any, x: Any) -> Value:
    if self.threshold:
        raise Unsupported("no threshold", str(self.threshold))
    x = numbers(x)
    if self.negative_slope:
        slope = wr.Activation("leaky_relu", alpha=float(self.negative_slope))
        x = per_field(x, lambda f: p.builder.activate(f, slope))
    else:
        x = per_field(x, p.builder.relu)
    return x if self.max_value is None else elementwise(p, "min", x, float(self.max_value))


@layer("LeakyReLU")
def leaky_relu(p: Program, self: Any, x: Any) -> Value:
    slope = wr.Activation("leaky_relu", alpha=float(self.negative_slope))
    return per_field(numbers(x), lambda f: p.builder.activate(f, slope))


@layer("ELU")
def elu(p: Program, self: Any, x: Any) -> Value:
    return per_field(numbers(x), lambda f: p.builder.activate(f, wr.Activation("elu", alpha=float(self.alpha))))


@layer("PReLU")
def prelu(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    alpha = np.asarray(self.alpha, np.float32)
    if x.is_sequence:
        if alpha.shape[0] != 1:
            raise Unsupported("a slope that the steps of a sequence share (shared_axes=[1])", "one for each")
        alpha = alpha[0]
    fields = []
    for field, slopes in zip(x.fields, np.broadcast_to(alpha, x.shape).reshape(len(x.fields), x.width)):
        name = p.layer()
        p.weight(f"{name}.prelu.alpha", slopes)
        fields.append(p.builder.activate(field, "prelu", name))
    return like_of(x, x.axis, x.shape, fields)


@layer("Softmax")
@op("Softmax")
def softmax_of(p: Program, self: Any, x: Any) -> Value:
    if not isinstance(self.axis, int):
        raise Unsupported("a softmax over one dimension", str(self.axis))
    return softmax(p, numbers(x), self.axis)


# --- dense layers and norms


@layer("Dense")
def dense(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    kernel = np.asarray(self.kernel, np.float32).T
    bias = None if self.bias is None else np.asarray(self.bias, np.float32)

    def linear(field: wr.Tensor) -> wr.Tensor:
        name = p.layer()
        p.weight(f"{name}.weight", kernel)
        if bias is not None:
            p.weight(f"{name}.bias", bias)
        return p.builder.linear(name, field, len(kernel), bias=bias is not None)

    return activate(p, per_field(x, linear, len(kernel)), self.activation)


@layer("BatchNormalization")
def batch_norm(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    if positive(self.axis, x) != len(x.shape) - 1:
        raise Unsupported("statistics for each column (axis=-1)", f"axis={self.axis}")
    mean, variance = self.moving_mean, self.moving_variance

    def norm(field: wr.Tensor) -> wr.Tensor:
        name = p.layer()
        given = {"running_mean": mean, "running_var": variance}
        if self.scale or self.center:
            given["weight"] = self.gamma if self.scale else np.ones_like(np.asarray(mean))
            given["bias"] = self.beta if self.center else np.zeros_like(np.asarray(mean))
        for part, variable in given.items():
            p.weight(f"{name}.{part}", variable)
        return p.builder.batch_norm(name, field, eps=float(self.epsilon), affine=self.scale or self.center)

    return per_field(x, norm)


@layer("LayerNormalization")
def layer_norm(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
    if [positive(a, x) for a in axes] != [len(x.shape) - 1]:
        raise Unsupported("a norm over the columns (axis=-1)", f"axis={self.axis}")
    if getattr(self, "rms_scaling", False):
        raise Unsupported("a norm without rms_scaling", "one with it")

    def norm(field: wr.Tensor) -> wr.Tensor:
        name = p.layer()
        if self.scale or self.center:
            p.weight(f"{name}.weight", self.gamma if self.scale else np.ones(x.width))
            p.weight(f"{name}.bias", self.beta if self.center else np.zeros(x.width))
        return p.builder.layer_norm(name, field, eps=float(self.epsilon), affine=self.scale or self.center)

    return per_field(x, norm)


@layer("Embedding")
def embedding(p: Program, self: Any, ids: Any) -> Value:
    if not isinstance(ids, IdsValue):
        raise Unsupported("ids that are an input", "numbers that are computed")
    if getattr(self, "lora_enabled", False) or getattr(self, "quantization_mode", None):
        raise Unsupported("embeddings that are neither quantized nor adapted", "others")
    table, dim = p.table(self), int(self.output_dim)
    given = p.inputs[ids.name]
    if ids.is_sequence:
        column = p.ids(ids.name, ids.axis)
        p.looked_up[ids.name] = column, table
        return Value(ids.axis, (dim,), [p.builder.embed(column, table)], ids.shape[0], True, (column, table),
                     bool(self.mask_zero))
    if self.mask_zero and ids.shape not in ((), (1,)):
        raise Unsupported("an axis of its own for ids with padding (axes)", f"'{ids.name}' on '{ids.axis}'")
    fields = [p.builder.embed(p.ids(name, ids.axis), table) for name in given.column_names()]
    return Value(ids.axis, (*ids.shape, dim), fields)


# --- what moves


def transposed(p: Program, x: Value, dim: int) -> Value:
    """The columns in the place of another dimension."""
    columns = np.array([[p.builder.slice(f, i, i + 1) for i in range(x.width)] for f in x.fields], object)
    moved = np.swapaxes(columns.reshape(x.shape), dim, -1)
    fields = [p.builder.concat(list(row)) if len(row) > 1 else row[0] for row in moved.reshape(-1, moved.shape[-1])]
    return like_of(x, x.axis, moved.shape, fields)


@layer("Flatten")
def flatten(p: Program, _: Any, x: Any) -> Any:
    if isinstance(x, IdsValue) and not x.is_sequence:
        return IdsValue(x.name, x.axis, (prod(x.shape),))
    return reshaped(p, numbers(x), (-1,))


def reshaped(p: Program, x: Value, shape: Sequence[int]) -> Value:
    if x.is_sequence:
        raise Unsupported("a sequence that is pooled before it is reshaped", "one that is not")
    size = prod(x.shape)
    known = prod(n for n in shape if n != -1)
    target = tuple(size // known if n == -1 else int(n) for n in shape)
    if target[-1:] == x.shape[-1:]:
        return Value(x.axis, target, x.fields)
    return p.graph.split(p.graph.joined(x), x.axis, target)


@layer("Reshape")
def reshape_layer(p: Program, self: Any, x: Any) -> Any:
    if isinstance(x, IdsValue) and not x.is_sequence:
        return IdsValue(x.name, x.axis, tuple(self.target_shape))
    return reshaped(p, numbers(x), self.target_shape)


@op("Reshape")
def reshape_op(p: Program, self: Any, x: Any) -> Any:
    if isinstance(x, Ones):
        return x
    return reshaped(p, numbers(x), [n if isinstance(n, int) else -1 for n in self.newshape[1:]])


@op("Squeeze")
def squeeze(p: Program, self: Any, x: Any) -> Any:
    if isinstance(x, IdsValue):
        return IdsValue(x.name, x.axis, (), x.is_sequence)
    if isinstance(x, Ones):
        return x
    x = numbers(x)
    dims = [self.axis] if isinstance(self.axis, int) else list(self.axis or [])
    dropped = {positive(d, x) for d in dims} or {i for i, n in enumerate(x.shape) if n == 1}
    if -1 in dropped:
        raise Unsupported("a sequence that keeps its steps", "one without")
    kept = tuple(n for i, n in enumerate(x.shape) if i not in dropped)
    if len(x.shape) - 1 in dropped and len(kept) > 0:
        joined = p.graph.joined(x)
        return p.graph.split(joined, x.axis, kept, x)
    return like_of(x, x.axis, kept, x.fields)


@op("ExpandDims")
def expand_dims(p: Program, self: Any, x: Any) -> Any:
    if not isinstance(x, (Value, IdsValue)):
        return x  # one number
    x = numbers(x)
    dims = len(x.shape) + 2 + x.is_sequence
    dim = (self.axis + dims if self.axis < 0 else self.axis) - 1 - x.is_sequence
    if dim < 0:
        raise Unsupported("each row by itself", "a dimension before its own")
    shape = (*x.shape[:dim], 1, *x.shape[dim:])
    return p.graph.split(p.graph.joined(x), x.axis, shape, x) if dim == len(x.shape) and x.shape else like_of(
        x, x.axis, shape, x.fields)


def concatenated(p: Program, inputs: Sequence[Any], axis: int) -> Any:
    if any(isinstance(x, IdsValue) for x in inputs):
        raise Unsupported("numbers: ids can only be looked up", "ids")
    given = [numbers(x) for x in inputs]
    aligned, on, like = p.graph.aligned(given)
    dim = positive(axis, like)
    if dim == -1:
        raise Unsupported("steps of one sequence", "those of several")
    rank = len(like.shape)
    if dim == rank - 1:
        grids = [np.broadcast_to(v.array(), like.shape[:-1]).reshape(-1) for v in aligned]
        fields = [p.builder.concat([g[i] for g in grids]) for i in range(len(grids[0]))]
        return like_of(like, on, (*like.shape[:-1], sum(v.width for v in aligned)), fields)
    joined = np.concatenate([v.array() for v in aligned], dim)
    return like_of(like, on, (*joined.shape, like.width), list(joined.reshape(-1)))


@layer("Concatenate")
@op("Concatenate")
def concatenate(p: Program, self: Any, inputs: Sequence[Any]) -> Any:
    return concatenated(p, inputs, self.axis)


@op("Stack")
def stack(p: Program, self: Any, inputs: Sequence[Any]) -> Any:
    x = numbers(inputs[0])
    if x.shape and positive(self.axis, Value("", (*x.shape, 1), [], is_sequence=x.is_sequence)) == len(x.shape):
        raise Unsupported("fields that are stacked before their columns", f"axis={self.axis}")
    made = [expand_dims(p, self, value) for value in inputs]
    return concatenated(p, made, self.axis)


@layer("RepeatVector")
def repeat_vector(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    return like_of(x, x.axis, (self.n, *x.shape), x.fields * self.n)


@op("Repeat")
def repeat(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    dim = positive(self.axis, x)
    if not isinstance(self.repeats, int) or dim == len(x.shape) - 1 or dim < 0:
        raise Unsupported("fields that are repeated a number of times", f"axis={self.axis}")
    grid = np.repeat(x.array(), self.repeats, dim)
    return like_of(x, x.axis, (*grid.shape, x.width), list(grid.reshape(-1)))


@op("Tile")
def tile(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    repeats = list(self.repeats)
    if x.is_sequence or len(repeats) != len(x.shape) + 1 or repeats[0] != 1 or repeats[-1] != 1:
        raise Unsupported("fields that are repeated a number of times", f"repeats={self.repeats}")
    grid = np.tile(x.array(), repeats[1:-1])
    return like_of(x, x.axis, (*grid.shape, x.width), list(grid.reshape(-1)))


@op("GetItem")
def get_item(p: Program, _: Any, x: Any, key: Any) -> Any:
    keys = list(key) if isinstance(key, tuple) else [key]
    if isinstance(x, Ones) and all(k is None or k == slice(None) for k in keys):
        return x
    if isinstance(x, IdsValue):
        raise Unsupported("ids of an input of their own", f"some of '{x.name}'")
    x = numbers(x)
    if keys[0] != slice(None) or (x.is_sequence and len(keys) > 1 and keys[1] != slice(None)):
        raise Unsupported("each row by itself, and each step", "an index into them")
    keys = keys[1 + x.is_sequence:]
    if not all(isinstance(k, (int, slice)) or k is None for k in keys):
        raise Unsupported("indices that are numbers and slices", str(key))
    taken = np.asarray(np.arange(prod(x.shape)).reshape(x.shape)[tuple(keys)])
    shape = taken.shape
    rows = taken.reshape(-1, shape[-1] if shape else 1)
    fields = [_gather(p, x, row) for row in rows]
    return like_of(x, x.axis, shape, fields)


def _gather(p: Program, x: Value, columns: np.ndarray) -> wr.Tensor:
    parts = []
    for run in np.split(columns, np.flatnonzero((np.diff(columns) != 1) | (columns[1:] % x.width == 0)) + 1):
        field, begin = divmod(int(run[0]), x.width)
        whole = begin == 0 and len(run) == x.width
        parts.append(x.fields[field] if whole else p.builder.slice(x.fields[field], begin, begin + len(run)))
    return parts[0] if len(parts) == 1 else p.builder.concat(parts)


# --- reductions and products


def reduced(p: Program, x: Value, axes: Any, keepdims: bool, pooling: str) -> Value:
    function = "max" if pooling == "max" else "add"
    axes = [axes] if isinstance(axes, int) else list(axes) if axes is not None else None
    if not axes:
        raise Unsupported("each row by itself", "an op over the batch")
    dims = sorted({positive(a, x) for a in axes})
    if -1 in dims:
        if len(dims) > 1:
            raise Unsupported("steps of a sequence pooled by themselves", f"axis={axes}")
        shape = (1, *x.shape) if keepdims else x.shape
        return pooled(p, x, pooling, shape)
    count = prod(x.shape[d] for d in dims)
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape) if keepdims or d not in dims)
    last = len(x.shape) - 1
    if last in dims:
        x = per_field(x, lambda f: p.builder.reduce(f, "max" if pooling == "max" else "sum"), 1)
    over = tuple(d for d in dims if d != last)
    grid = x.array()
    kept = [d for d in range(grid.ndim) if d not in over]
    rows = np.transpose(grid, [*kept, *over]).reshape(prod(grid.shape[d] for d in kept), -1)
    fields = []
    for row in rows:
        total = row[0]
        for field in row[1:]:
            total = p.builder.apply(function, [total, field])  # type: ignore[arg-type]
        fields.append(p.builder.apply("mul", [total, 1 / count]) if pooling == "mean" else total)
    made = Value(x.axis, (*(x.shape[d] for d in kept), x.width), fields)
    if last in dims and shape:  # the columns of what is left
        return p.graph.split(p.graph.joined(made), x.axis, shape, x)
    return like_of(x, x.axis, shape, fields)


def pooled(p: Program, x: Value, pooling: str, shape: tuple[int, ...]) -> Value:
    """A sequence's steps, to the axis above."""
    parent = x.axis.rpartition("/")[0]
    if x.bag is not None:
        fields = [p.builder.embed_bag(*x.bag, pooling)]  # type: ignore[arg-type]
    else:
        fields = [p.builder.pool(f, pooling) for f in x.fields]  # type: ignore[arg-type]
    return Value(parent, shape, fields)


def counted(p: Program, ones: Ones, axes: Any, keepdims: bool) -> Value:
    """How many steps a sequence has."""
    if axes not in (1, (1,), [1]):
        raise Unsupported("the steps of a sequence, counted", f"axis={axes}")
    if ones.ids not in p.looked_up:
        raise Unsupported("a count of steps behind a look-up of the same ids", "one before")
    column = p.builder.slice(p.builder.embed(*p.looked_up[ones.ids]), 0, 1)
    one = p.builder.apply("add", [p.builder.apply("mul", [column, 0.0]), 1.0])
    parent = ones.axis.rpartition("/")[0]
    return Value(parent, (1,) if keepdims else (), [p.builder.pool(one, "sum")])


def _reduction(pooling: str) -> Handler:
    def reduce(p: Program, self: Any, x: Any) -> Value:
        if isinstance(x, Ones) and pooling == "sum":
            return counted(p, x, self.axis, self.keepdims)
        return reduced(p, numbers(x), self.axis, self.keepdims, pooling)
    return reduce


OPS |= {"Sum": _reduction("sum"), "Mean": _reduction("mean"), "Max": _reduction("max")}


def _global_pooling(pooling: str) -> Handler:
    def pool(p: Program, self: Any, x: Any) -> Value:
        x = numbers(x)
        if self.data_format != "channels_last":
            raise Unsupported("data_format channels_last", self.data_format)
        if x.is_sequence and pooling == "mean" and not x.is_masked and p.has_padding(x.axis):
            raise Unsupported("a mean over steps that are masked (mask_zero)", "one that counts padding")
        return reduced(p, x, 1, self.keepdims, pooling)
    return pool


LAYERS |= {"GlobalAveragePooling1D": _global_pooling("mean"), "GlobalMaxPooling1D": _global_pooling("max")}


@layer("Dot")
def dot(p: Program, self: Any, inputs: Sequence[Any]) -> Value:
    a, b = (numbers(x) for x in inputs)
    axes = (self.axes, self.axes) if isinstance(self.axes, int) else tuple(self.axes)
    if self.normalize:
        raise Unsupported("products without normalize", "one with it")
    if a.is_sequence and b.is_sequence and [positive(x, v) for x, v in zip(axes, (a, b))] == [-1, -1]:
        narrow, wide = (a, b) if a.width == 1 else (b, a)
        if narrow.width != 1 or len(a.shape) != 1 or len(b.shape) != 1:
            raise Unsupported("one weight for each step of a sequence", f"{narrow.width} of them")
        shape = (1, wide.width) if narrow is a else (wide.width, 1)
        return pooled(p, elementwise(p, "mul", wide, narrow), "sum", shape)
    if a.is_sequence or b.is_sequence:
        raise Unsupported("two sequences, multiplied over their steps", f"axes={self.axes}")
    return product(p, a, b, *(positive(x, v) for x, v in zip(axes, (a, b))))


def product(p: Program, a: Value, b: Value, over_a: int, over_b: int) -> Value:
    """[.., fields of a, fields of b]: their products over one dimension of each."""
    a = a if over_a == len(a.shape) - 1 else transposed(p, a, over_a)
    b = b if over_b == len(b.shape) - 1 else transposed(p, b, over_b)
    (a, b), axis, _ = p.graph.aligned([a, b])
    if len(a.shape) > 2 or len(b.shape) > 2:
        raise Unsupported("batches of vectors or matrices", f"shapes {a.shape} and {b.shape}")
    products = [[p.builder.reduce(p.builder.apply("mul", [x, y]), "sum") for y in b.fields] for x in a.fields]
    shape = a.shape[:-1] + b.shape[:-1]
    fields = [p.builder.concat(row) if len(row) > 1 else row[0] for row in products]
    if len(b.shape) == 1 and len(a.shape) == 2:  # one product for each field: its columns
        return p.graph.split(p.graph.joined(Value(axis, (len(fields), 1), fields)), axis, shape)
    return Value(axis, shape or (1,), fields)


@op("Matmul")
def matmul(p: Program, _: Any, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and not isinstance(b, Value):
        kernel = constant(b)
        if kernel.ndim != 2:
            raise Unsupported("a matrix", f"a constant of shape {list(kernel.shape)}")

        def linear(field: wr.Tensor) -> wr.Tensor:
            name = p.layer(b)
            p.weight(f"{name}.weight", kernel.T)
            return p.builder.linear(name, field, kernel.shape[1], bias=False)

        return per_field(a, linear, kernel.shape[1])
    a, b = numbers(a), numbers(b)
    if a.is_sequence or b.is_sequence or len(a.shape) != 2 or len(b.shape) != 2:
        raise Unsupported("products of matrices, one for each row", f"shapes {a.shape} and {b.shape}")
    return product(p, a, b, 1, 0)


@op("Transpose")
def transpose(p: Program, self: Any, x: Any) -> Value:
    x = numbers(x)
    if x.is_sequence or len(x.shape) != 2 or list(self.axes or []) != [0, 2, 1]:
        raise Unsupported("fields and columns that change places", f"axes={self.axes}")
    return transposed(p, x, 0)
