# SPDX-License-Identifier: Apache-2.0
"""What each op of a PyTorch program is in a graph. Functions take an op's arguments in the order of its schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .cells import FlatIds, Source, Unsupported, Value

if TYPE_CHECKING:
    from .program import Program

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}

MOVES = frozenset("""view _unsafe_view reshape flatten unflatten squeeze unsqueeze transpose permute t select slice
narrow split split_with_sizes chunk unbind index index_select expand repeat cat stack clone contiguous alias detach flip
roll movedim lift_fresh_copy view_as repeat_interleave""".split())
SAME = frozenset("dropout feature_dropout alpha_dropout _assert_tensor_metadata".split())


def handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler
    return register


def numbers(x: Any) -> Value:
    """A batch of numbers, for ops that compute."""
    if not isinstance(x, Value):
        raise Unsupported("a batch of numbers", type(x).__name__)
    if x.is_ids:
        raise Unsupported("numbers: ids can only be looked up", "ids")
    return x


def computed(p: Program, tensor: Any, axis: str, shape: tuple[int, ...]) -> Value:
    return p.sources.add(Source(axis, math.prod(shape), tensor), shape)


def positive(dim: int, dims: int) -> int:
    """A dimension of a row, by its number in the batch."""
    dim = dim + dims + 1 if dim < 0 else dim
    if dim == 0:
        raise Unsupported("each row by itself", "an op over the batch")
    return dim - 1


# --- arithmetic


def constant_vector(x: torch.Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """A constant for each column of a row of this shape."""
    array = x.detach().to(torch.float32).numpy()
    if array.ndim > len(shape):
        if array.shape[0] != 1:
            raise Unsupported("a constant that is the same for every row", f"one of shape {list(array.shape)}")
        array = array[0]
    return np.ascontiguousarray(np.broadcast_to(array, shape).ravel(), np.float32)


def scale_and_shift(p: Program, x: Value, scale: np.ndarray, shift: np.ndarray, name: str | None = None) -> Value:
    """x * scale + shift by column: a batch norm whose statistics change nothing."""
    axis = p.sources.axis_of(x)
    layer = p.layer(name)
    p.weights.update({f"{layer}.weight": scale, f"{layer}.bias": shift,
                      f"{layer}.running_mean": np.zeros_like(scale), f"{layer}.running_var": np.ones_like(scale)})
    tensor = p.builder.batch_norm(layer, p.sources.gather(x.cells, axis), eps=0.0)
    return computed(p, tensor, axis, x.cells.shape)


def elementwise(p: Program, function: str, *operands: Any) -> Value:
    """Batches, which are broadcast, and numbers."""
    values = [numbers(x) for x in operands if isinstance(x, Value)]
    if len({v.cells.ndim for v in values}) > 1:
        raise Unsupported("as many dimensions in all batches", " and ".join(str(v.cells.ndim + 1) for v in values))
    shape = np.broadcast_shapes(*(v.cells.shape for v in values))
    axis = p.sources.axis_of(*values)

    def operand(x: Any) -> Any:
        if not isinstance(x, Value):
            return float(x)
        one = x.cells.size == 1  # serves all columns
        return p.sources.gather(x.cells if one else np.broadcast_to(x.cells, shape), axis)

    given = [operand(x) for x in operands]
    if math.prod(shape) > 1 and all(v.cells.size == 1 for v in values):
        given = [p.sources.gather(np.broadcast_to(x.cells, shape), axis) if isinstance(x, Value) else g
                 for x, g in zip(operands, given)]
    return computed(p, p.builder.apply(function, given), axis, shape)  # type: ignore[arg-type]


def scalar_of(x: Any) -> float | None:
    """The number that a constant is; None: it is another for each column, or a batch."""
    if isinstance(x, (int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() > 0 and bool((x == x.flatten()[0]).all()):
        return float(x.flatten()[0])
    return None


def broadcast_to(x: Value, other: torch.Tensor) -> Value:
    """To the shape that it has with a constant, one row being enough."""
    shape = np.broadcast_shapes((1, *x.cells.shape), tuple(other.shape))
    return Value(np.array(np.broadcast_to(x.cells, shape[1:])))


def binary(p: Program, function: str, a: Any, b: Any) -> Value:
    for x in (a, b):
        if isinstance(x, torch.Tensor) and scalar_of(x) is None:
            break
    else:
        return elementwise(p, function, *(x if isinstance(x, Value) else scalar_of(x) for x in (a, b)))
    value, constant = (numbers(a), b) if isinstance(a, Value) else (numbers(b), a)
    value = broadcast_to(value, constant)
    vector = constant_vector(constant, value.cells.shape)
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    value_first = isinstance(a, Value)
    if function == "mul":
        return scale_and_shift(p, value, vector, zero)
    if function == "add":
        return scale_and_shift(p, value, one, vector)
    if function == "sub":
        return scale_and_shift(p, value, one, -vector) if value_first else scale_and_shift(p, value, -one, vector)
    if function == "div" and value_first:
        return scale_and_shift(p, value, 1 / vector, zero)
    raise Unsupported("a number, or + - * / of a constant for each column", f"'{function}' of one")


def times(p: Program, x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else (x * alpha if not isinstance(x, Value) else elementwise(p, "mul", x, alpha))


@handles("add", "add_")
def add(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    if not isinstance(b, Value) and scalar_of(b) == 0 and isinstance(a, Value):
        return a  # of sum()
    return binary(p, "add", a, times(p, b, alpha))


@handles("sub", "sub_")
def sub(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    return binary(p, "sub", a, times(p, b, alpha))


@handles("rsub")
def rsub(p: Program, a: Any, b: Any, alpha: Any = 1) -> Any:
    return binary(p, "sub", b, times(p, a, alpha))


def register_binary(name: str, function: str) -> None:
    HANDLERS[name] = lambda p, a, b: binary(p, function, a, b)


for _name, _function in {"mul": "mul", "mul_": "mul", "div": "div", "div_": "div", "minimum": "min", "maximum": "max",
                         "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
                         "ne": "not_equal"}.items():
    register_binary(_name, _function)


@handles("where")
def where(p: Program, condition: Any, a: Any, b: Any) -> Value:
    return elementwise(p, "select", *(x if isinstance(x, Value) else required_scalar(x) for x in (a, b, condition)))


def required_scalar(x: Any) -> float:
    number = scalar_of(x)
    if number is None:
        raise Unsupported("a batch or one number", "a constant for each column")
    return number


@handles("pow")
def power(p: Program, x: Any, exponent: Any) -> Value:
    number = scalar_of(exponent) if isinstance(x, Value) else None
    if number == 2:
        return elementwise(p, "square", x)
    if number == 0.5:
        return elementwise(p, "sqrt", x)
    if number == 3:
        return elementwise(p, "mul", elementwise(p, "square", x), x)
    if number == -1:
        return elementwise(p, "div", 1.0, x)
    raise Unsupported("an exponent of 2, 3, 0.5 or -1", str(number if number is not None else "another"))


def register_unary(name: str, function: str) -> None:
    HANDLERS[name] = lambda p, x, **_: elementwise(p, function, numbers(x))


for _name, _function in {"relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu",
                         "silu_": "silu", "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "abs", "neg": "neg",
                         "square": "square"}.items():
    register_unary(_name, _function)


@handles("reciprocal")
def reciprocal(p: Program, x: Any) -> Value:
    return elementwise(p, "div", 1.0, numbers(x))


@handles("rsqrt")
def rsqrt(p: Program, x: Any) -> Value:
    return elementwise(p, "div", 1.0, elementwise(p, "sqrt", numbers(x)))


@handles("gelu")
def gelu(p: Program, x: Any, approximate: str = "none") -> Value:
    return elementwise(p, "gelu_tanh" if approximate == "tanh" else "gelu", numbers(x))


def activation(p: Program, x: Any, kind: Any, name: str = "") -> Value:
    axis = p.sources.axis_of(numbers(x))
    return computed(p, p.builder.activate(p.sources.gather(x.cells, axis), kind, name), axis, x.cells.shape)


@handles("leaky_relu", "leaky_relu_")
def leaky_relu(p: Program, x: Any, negative_slope: float = 0.01) -> Value:
    from warprank import Activation
    return activation(p, x, Activation("leaky_relu", alpha=negative_slope))


@handles("elu", "elu_")
def elu(p: Program, x: Any, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Value:
    from warprank import Activation
    if (scale, input_scale) != (1, 1):
        raise Unsupported("elu without scales", f"scales {scale} and {input_scale}")
    return activation(p, x, Activation("elu", alpha=alpha))


@handles("prelu", "_prelu_kernel")
def prelu(p: Program, x: Any, weight: torch.Tensor) -> Value:
    layer = p.layer(p.path_of(weight, ".weight"))
    shape = numbers(x).cells.shape
    by_channel = weight.reshape(-1, *[1] * (len(shape) - 1)) if weight.numel() > 1 else weight
    p.weights[f"{layer}.prelu.alpha"] = constant_vector(by_channel, shape)
    return activation(p, x, "prelu", layer)


@handles("clamp", "clamp_", "hardtanh", "hardtanh_", "clamp_min", "clamp_max")
def clamp(p: Program, x: Any, min: Any = None, max: Any = None) -> Any:
    for function, limit in (("max", min), ("min", max)):
        if limit is not None:
            x = elementwise(p, function, numbers(x), required_scalar(limit))
    return x


# --- layers


@handles("linear")
def linear(p: Program, x: Any, weight: Any, bias: torch.Tensor | None = None) -> Value:
    if not isinstance(weight, torch.Tensor):
        raise Unsupported("a weight that is a parameter", "one that is computed")
    shape = numbers(x).cells.shape
    axis = p.sources.axis_of(x)
    rows = []
    layer = p.path_of(weight, ".weight")
    out, width = weight.shape
    for cells in x.cells.reshape(-1, width):  # the same layer for each field, where there are several
        name = p.layer(layer)
        p.weights[f"{name}.weight"] = p.array(weight)
        if bias is not None:
            p.weights[f"{name}.bias"] = p.array(bias)
        tensor = p.builder.linear(name, p.sources.gather(cells, axis), out, bias=bias is not None)
        rows.append(computed(p, tensor, axis, (out,)).cells)
    return Value(np.stack(rows).reshape(*shape[:-1], out))


@handles("addmm")
def addmm(p: Program, bias: torch.Tensor, x: Any, weight: torch.Tensor) -> Value:
    return linear(p, x, weight.t(), bias)


@handles("mm", "matmul", "bmm")
def matmul(p: Program, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, torch.Tensor):
        if b.dim() > 2:
            raise Unsupported("a matrix", f"a constant of shape {list(b.shape)}")
        result = linear(p, a, b.reshape(b.shape[0], -1).t())
        return result if b.dim() == 2 else Value(result.cells[..., 0])
    a, b = numbers(a), numbers(b)
    if a.cells.ndim != 2 or b.cells.ndim != 2:
        raise Unsupported("products of matrices, one for each row", f"{a.cells.ndim} and {b.cells.ndim} dimensions")
    return dots(p, a.cells, b.cells.T)


def dots(p: Program, a: np.ndarray, b: np.ndarray) -> Value:
    """[B, len(a), len(b)]: the products of fields with fields. Only those that are wanted are computed."""
    dim = a.shape[1]
    places: dict[bytes, int] = {}
    for field in (*a, *b):
        places.setdefault(np.ascontiguousarray(field).tobytes(), len(places))
    fields = [np.frombuffer(key, np.int64) for key in places]
    axis = p.sources.axis_of(Value(a), Value(b))
    i = np.array([places[np.ascontiguousarray(f).tobytes()] for f in a])[:, None]
    j = np.array([places[np.ascontiguousarray(f).tobytes()] for f in b])[None, :]
    row, column = np.maximum(i, j), np.minimum(i, j)
    number = row * (row + 1) // 2 + column  # in the lower triangle with the diagonal

    def make(wanted: np.ndarray) -> tuple[Any, np.ndarray]:
        rows = ((np.sqrt(8.0 * wanted + 1) - 1) // 2).astype(np.int64)
        with_itself = bool((wanted == rows * (rows + 1) // 2 + rows).any())
        if with_itself not in made:
            tensors = [p.sources.gather(field, axis) for field in fields]
            made[with_itself] = p.builder.dot(tensors, dim, order="lower", self_=with_itself)
        return made[with_itself], wanted if with_itself else wanted - rows

    made: dict[bool, Any] = {}
    source = p.sources.add(Source(axis, len(fields) * (len(fields) + 1) // 2, make=make))
    return Value(source.cells[number])


@handles("batch_norm", "_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def batch_norm(p: Program, x: Any, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor,
               variance: torch.Tensor, *rest: Any) -> tuple[Value]:
    eps = float(rest[-1] if not isinstance(rest[-1], bool) or len(rest) == 1 else rest[-2])
    shape = numbers(x).cells.shape
    axis = p.sources.axis_of(x)
    layer = p.layer(p.path_of(mean, ".running_mean"))

    def vector(t: torch.Tensor) -> np.ndarray:
        return constant_vector(t.reshape(-1, *[1] * (len(shape) - 1)), shape)

    p.weights.update({f"{layer}.running_mean": vector(mean), f"{layer}.running_var": vector(variance)})
    if weight is not None:
        p.weights[f"{layer}.weight"] = vector(weight)
        p.weights[f"{layer}.bias"] = vector(bias if bias is not None else torch.zeros_like(weight))
    tensor = p.builder.batch_norm(layer, p.sources.gather(x.cells, axis), eps=eps, affine=weight is not None)
    return (computed(p, tensor, axis, shape),)


@handles("layer_norm")
def layer_norm(p: Program, x: Any, normalized: Sequence[int], weight: torch.Tensor | None = None,
               bias: torch.Tensor | None = None, eps: float = 1e-5, _: bool = True) -> Value:
    shape = numbers(x).cells.shape
    axis = p.sources.axis_of(x)
    rows = []
    for cells in x.cells.reshape(-1, math.prod(normalized)):
        layer = p.layer(p.path_of(weight, ".weight") if weight is not None else None)
        if weight is not None:
            p.weights[f"{layer}.weight"] = p.array(weight.reshape(-1))
            p.weights[f"{layer}.bias"] = p.array(bias.reshape(-1) if bias is not None else torch.zeros(weight.numel()))
        tensor = p.builder.layer_norm(layer, p.sources.gather(cells, axis), eps=eps, affine=weight is not None)
        rows.append(computed(p, tensor, axis, (len(cells),)).cells)
    return Value(np.stack(rows).reshape(shape))


@handles("softmax", "_softmax")
def softmax(p: Program, x: Any, dim: int, _: Any = None) -> Value:
    dim = positive(dim, numbers(x).cells.ndim)
    axis = p.sources.axis_of(x)
    last = np.moveaxis(x.cells, dim, -1)
    rows = [computed(p, p.builder.softmax(p.sources.gather(cells, axis)), axis, (len(cells),)).cells
            for cells in last.reshape(-1, last.shape[-1])]
    return Value(np.moveaxis(np.stack(rows).reshape(last.shape), -1, dim))


# --- reductions


def reduce(p: Program, x: Any, dims: Any, keepdim: bool, pooling: str, function: str) -> Value:
    cells = numbers(x).cells
    dims = [dims] if isinstance(dims, int) else list(dims or [])
    if not dims:
        raise Unsupported("each row by itself", "an op over the batch")
    over = sorted({positive(d, cells.ndim) for d in dims})
    kept = [d for d in range(cells.ndim) if d not in over]
    shape = tuple(1 if d in over else n for d, n in enumerate(cells.shape)) if keepdim else tuple(
        cells.shape[d] for d in kept)
    count = math.prod(cells.shape[d] for d in over)
    rows = np.transpose(cells, [*kept, *over]).reshape(-1, count)  # [kept, reduced]
    axis = p.sources.axis_of(x)
    if len(rows) <= count:
        tensors = [p.builder.reduce(p.sources.gather(r, axis), pooling) for r in rows]  # type: ignore[arg-type]
        return Value(np.concatenate([computed(p, t, axis, (1,)).cells for t in tensors]).reshape(shape))
    total = Value(rows[:, 0])
    for column in rows.T[1:]:
        total = elementwise(p, function, total, Value(np.ascontiguousarray(column)))
    if pooling == "mean":
        total = elementwise(p, "mul", total, 1 / count)
    return Value(total.cells.reshape(shape))


@handles("sum")
def sum_(p: Program, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return reduce(p, x, dims, keepdim, "sum", "add")


@handles("mean")
def mean(p: Program, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return reduce(p, x, dims, keepdim, "mean", "add")


@handles("amax")
def amax(p: Program, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
    return reduce(p, x, dims, keepdim, "max", "max")


# --- look-ups


def ids_of(x: Any) -> Value:
    if not isinstance(x, Value) or not x.is_ids:
        raise Unsupported("ids that are an input", "numbers that are computed")
    return x


@handles("embedding")
def embedding(p: Program, weight: torch.Tensor, ids: Any, *_: Any) -> Value:
    table, dim = p.table(weight), weight.shape[1]
    rows = []
    for cell in ids_of(ids).cells.ravel():
        column, axis = p.ids_column(int(cell))
        rows.append(computed(p, p.builder.embed(column, table), axis, (dim,)).cells)
    return Value(np.stack(rows).reshape(*ids.cells.shape, dim))


@handles("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(p: Program, weight: torch.Tensor, ids: Any, offsets: Any, scale_grad: bool = False, mode: int = 0,
                  sparse: bool = False, per_sample_weights: Any = None, include_last: bool = False,
                  padding: int | None = -1) -> tuple[Value]:
    if per_sample_weights is not None:
        raise Unsupported("bags without weights", "per_sample_weights")
    if not isinstance(ids, FlatIds) or not isinstance(offsets, torch.Tensor):
        raise Unsupported("ids [batch, length]", "ids and offsets")
    cells = ids.value.cells.ravel()
    length = len(cells)
    starts = torch.arange(p.batch + (1 if include_last else 0)) * length
    if not torch.equal(offsets, starts):
        raise Unsupported("a bag of all ids of a row", "others")
    bag, parent = p.bag(cells, None if padding is None or padding < 0 else padding)
    tensor = p.builder.embed_bag(bag, p.table(weight), ("sum", "mean", "max")[mode])  # type: ignore[arg-type]
    return (computed(p, tensor, parent, (weight.shape[1],)),)
