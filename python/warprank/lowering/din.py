# SPDX-License-Identifier: Apache-2.0
"""DIN's attention, recognised by what it computes: sum_t s(q, k_t) k_t, where s is an MLP of q, k, q - k and q * k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from .cells import PAIR, Unsupported, columns_of, pooled_axis, source_numbers
from .expressions import at, constant_of, polynomial, resolve
from .masks import check_masks, check_weight, or_of_empty

if TYPE_CHECKING:
    from .program import Program

PLAIN = ("relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu")


def unscaled(p: Program, cell: int) -> tuple[int, float]:
    """The cell without the numbers that it is multiplied with, and those."""
    factor = 1.0
    while True:
        cell = resolve(p, cell)
        source, column = p.sources.of(cell)
        operands = [at(x, column) for x in source.operands]
        numbers = [constant_of(p, x) for x in operands] if source.kind in ("mul", "div") else []
        if len(numbers) != 2 or (numbers[1] is None and (numbers[0] is None or source.kind == "div")):
            return cell, factor
        if numbers[1] is None:
            cell, factor = operands[1], factor * (numbers[0] or 0.0)
        else:
            cell, factor = operands[0], factor * (numbers[1] if source.kind == "mul" else 1 / numbers[1])


def of_one(p: Program, cells: np.ndarray) -> Any:
    """The source that has these columns and no others, in order."""
    bare = np.array([resolve(p, int(c)) for c in cells])
    source, _ = p.sources.of(int(bare[0]))
    same = len(np.unique(source_numbers(bare))) == 1 and len(bare) == source.width
    return source if same and (columns_of(bare) == np.arange(len(bare))).all() else None


class _Mlp:
    """The layers of a score, from the last: weights with the norms before them, and the activation of all."""

    def __init__(self) -> None:
        self.weights: list[np.ndarray] = []  # [out, in]
        self.biases: list[np.ndarray] = []
        self.activation: wr.Activation | None = None
        self.learned: list[dict[str, np.ndarray]] = []  # of each activation
        self.cells: np.ndarray | None = None  # that the first layer reads


def _mlp_of(p: Program, score: int) -> _Mlp | None:
    found = _Mlp()
    cells = np.array([score])
    while True:
        layer = layer_of(p, cells)
        if layer is None:
            return None
        weight, bias, inputs = layer
        found.weights.insert(0, weight)
        found.biases.insert(0, bias)
        activation = _activation_of(p, inputs)
        if activation is None or (found.activation is not None and activation[0] != found.activation):
            found.cells = inputs
            return found if 2 <= len(found.weights) <= 4 else None
        found.activation = activation[0]
        found.learned.insert(0, activation[1])
        cells = activation[2]


def layer_of(p: Program, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """weight, bias and inputs of a linear layer with a batch norm or numbers behind it, whose columns the cells are."""
    scale, shift = np.ones(len(cells), np.float32), np.zeros(len(cells), np.float32)
    if len(cells) == 1:
        cell, factor = unscaled(p, int(cells[0]))
        cells, scale = np.array([cell]), scale * np.float32(factor)
    source = of_one(p, cells)
    if source is not None and source.kind == "affine":
        scale, shift = source.data[0] * scale, source.data[1] * scale
        source = of_one(p, source.operands[0])
    if source is None or source.kind != "linear":
        return None
    layer = source.data
    bias = shift if layer.bias is None else layer.bias * scale + shift
    return layer.weight * scale[:, None], bias, layer.cells


def _activation_of(p: Program, cells: np.ndarray) -> tuple[wr.Activation, dict[str, np.ndarray], np.ndarray] | None:
    """The activation that the cells are, what it has learned, and of which cells."""
    source = of_one(p, cells)
    if source is not None and source.kind in PLAIN:
        return wr.Activation(source.kind), {}, np.broadcast_to(source.operands[0], source.width)
    if source is not None and source.kind == "activation":
        activation, learned = source.data
        return activation, learned, source.operands[0]
    return dice_of(p, cells)


def dice_of(p: Program, cells: np.ndarray) -> tuple[wr.Activation, dict[str, np.ndarray], np.ndarray] | None:
    """x (g + alpha (1 - g)) with g = sigmoid(x scale + shift), however it is written: alpha x + (1 - alpha) g x."""
    inputs: list[int] = []
    alphas, scales, shifts = [], [], []
    for cell in cells:
        try:
            terms = polynomial(p, int(cell))
        except Unsupported:
            return None
        products = [m for m in terms if len(m) == 2]
        if len(products) != 1 or len(terms) > 2:
            return None
        gates = [c for c in products[0] if p.sources.of(c)[0].kind == "sigmoid"]
        if len(gates) != 1:
            return None
        (x,) = set(products[0]) - set(gates)
        source, column = p.sources.of(gates[0])
        try:
            line = polynomial(p, at(source.operands[0], column), frozenset([x]))
        except Unsupported:
            return None
        alpha = terms.get((x,), 0.0)
        if set(terms) - {products[0], (x,)} or abs(terms[products[0]] + alpha - 1) > 1e-6 or set(line) - {(x,), ()}:
            return None
        inputs.append(x)
        alphas.append(alpha)
        scales.append(line.get((x,), 0.0))
        shifts.append(line.get((), 0.0))
    ones = np.ones(len(cells), np.float32)
    learned = {"dice.alpha": np.array(alphas, np.float32), "dice.running_mean": 0 * ones, "dice.running_var": ones,
               "dice.weight": np.array(scales, np.float32), "dice.bias": np.array(shifts, np.float32)}
    return wr.Activation("dice", eps=0.0, affine=True), learned, np.array(inputs)


def _first_layer(p: Program, cells: np.ndarray, weight: np.ndarray, keys: np.ndarray) -> tuple[Any, Any] | None:
    """The query's cells, and the weight [out, 4 D] of q, k, q - k, q * k, where the cells are columns of those."""
    dim = len(keys)
    place = {int(k): i for i, k in enumerate(keys)}
    query: dict[int, int] = {}  # by place
    parts: list[tuple[int, int, float]] = []  # which of the four, place, sign
    single: list[tuple[int, int]] = []  # column, cell of the query
    for column, cell in enumerate(cells):
        cell = resolve(p, int(cell))
        source, c = p.sources.of(cell)
        if cell in place:
            parts.append((1, place[cell], 1.0))
        elif p.sources.sequence_of(source.axis) is None:
            parts.append((0, -1, 1.0))
            single.append((column, cell))
        elif source.kind in ("sub", "mul") and all(isinstance(x, np.ndarray) for x in source.operands):
            a, b = (resolve(p, at(x, c)) for x in source.operands)
            key, other = (b, a) if b in place else (a, b)
            if key not in place or p.sources.sequence_of(p.sources.of(other)[0].axis) is not None:
                return None
            if query.setdefault(place[key], other) != other:
                return None
            parts.append((2, place[key], 1.0 if key == b else -1.0) if source.kind == "sub" else (3, place[key], 1.0))
        else:
            return None
    if not query and len(single) == dim:
        query = {i: cell for i, (_, cell) in enumerate(single)}
    if len(query) != dim:
        return None
    whose = {cell: i for i, cell in query.items()}
    canonical = np.zeros((len(weight), 4 * dim), np.float32)
    for column, cell in single:
        if cell not in whose:
            return None
        parts[column] = (0, whose[cell], 1.0)
    for column, (part, i, sign) in enumerate(parts):
        canonical[:, part * dim + i] += sign * weight[:, column]
    return np.array([query[i] for i in range(dim)]), canonical


def din_attention(p: Program, products: np.ndarray, weight: int, keys: np.ndarray, axis: str) -> np.ndarray | None:
    """The sum over events of products [D] of a weight with keys [D]; None: the weight is not DIN's."""
    source, column = p.sources.of(weight)
    normalization = {"event_softmax": "softmax", "sigmoid": "sigmoid"}.get(source.kind, "none")
    mlp = _mlp_of(p, weight if normalization == "none" else at(source.operands[0], column))
    if mlp is None or mlp.cells is None or mlp.activation is None or len(mlp.weights[-1]) != 1:
        return None
    first = _first_layer(p, mlp.cells, mlp.weights[0], keys)
    if first is None:
        return None
    query, mlp.weights[0] = first
    activation = mlp.activation
    result = pooled_axis(axis)

    def make() -> Any:
        of_empty = check_masks(p, products)
        check_weight(p, weight)
        name = p.layer(p.module_path() or None)
        for i, (w, bias) in enumerate(zip(mlp.weights, mlp.biases)):
            p.weights[f"{name}.{i}.weight"], p.weights[f"{name}.{i}.bias"] = w, bias.astype(np.float32)
        for i, learned in enumerate(mlp.learned):
            p.weights.update({f"{name}.{i}.{what}": array for what, array in learned.items()})
        events = axis.rpartition(PAIR)[2]
        made = p.builder.din_attention(name, p.sources.gather(query, result), p.sources.gather(keys, events),
                                       hidden=[len(w) for w in mlp.weights[:-1]], activation=activation,
                                       normalization=normalization)  # type: ignore[arg-type]
        return or_of_empty(p, made, of_empty, events, result)
    return p.sources.add(result, len(keys), "din_attention", make)
