# SPDX-License-Identifier: Apache-2.0
"""Layers over fields, recognised by what they compute: act(W v + b), the same for each column of a field. v are fields
(Wukong's linear compression), or the products of all pairs of two rows' fields (xDeepFM's compressed interaction
network), of which the new fields' columns may be summed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import warprank as wr

from .cells import COLUMN_SHIFT, PAIR, POSITIONS, SOURCE_SHIFT, columns_of, source_numbers
from .din import of_one

if TYPE_CHECKING:
    from .program import Program

MOST_SUMMED = 64  # columns of a field that is summed


@dataclass
class Maps:
    """A layer, whose result is [out, dim]. When it is made it has the maps and the sums that were noted as read, and all
    maps if another is."""

    factors: np.ndarray | None  # [fields, dim]; None: the layer is over the fields, not over products
    fields: np.ndarray
    weight: np.ndarray  # [out, factors * fields]
    bias: np.ndarray | None
    path: str
    activation: wr.Activation = wr.Activation("identity")
    kept: set[int] = field(default_factory=set)  # maps that are read as they are
    summed: set[int] = field(default_factory=set)  # maps whose sums are
    sums: np.ndarray | None = None  # cells of those of all maps
    tensor: Any = None
    first: int = 0  # of its columns in the tensor
    width: int = 0  # of the tensor
    order: list[int] = field(default_factory=list)  # its maps, those that are only summed behind all others

    @property
    def dim(self) -> int:
        return self.fields.shape[1]

    @property
    def cells(self) -> np.ndarray:
        """That it reads."""
        return np.concatenate(self.operands).ravel()

    @property
    def operands(self) -> list[np.ndarray]:
        return [x for x in (self.factors, self.fields) if x is not None]

    def columns(self, p: Program, wanted: np.ndarray) -> tuple[Any, np.ndarray, int]:
        """What Sources ask of the maps."""
        if not self.kept.issuperset((wanted // self.dim).tolist()):
            self.kept, self.tensor = set(range(len(self.weight))), None
        self._make(p)
        places = np.array([self.order.index(m) for m in wanted // self.dim])
        return self.tensor, self.first + places * self.dim + wanted % self.dim, self.width

    def columns_of_sums(self, p: Program, wanted: np.ndarray) -> tuple[Any, np.ndarray, int]:
        """What Sources ask of the sums, which are behind the maps."""
        self._make(p)
        first = self.width - len(self.order)
        return self.tensor, np.array([first + self.order.index(m) for m in wanted]), self.width

    def _make(self, p: Program) -> None:
        if self.tensor is not None:
            return
        self.order = sorted(self.kept | self.summed, key=lambda m: ((m in self.summed) + (m not in self.kept), m))
        axis, name, layers = p.sources.axis_of(self.cells), p.layer(self.path), [self, *self._others_alike(p)]
        inputs = [p.sources.gather(x, axis) for x in self.operands]
        p.weights[f"{name}.weight"] = np.concatenate([each.weight[each.order] for each in layers])
        if self.bias is not None:
            p.weights[f"{name}.bias"] = np.concatenate([each.bias[each.order] for each in layers])  # type: ignore[index]
        tensor = p.builder.field_linear(
            name, inputs, self.dim, sum(len(each.order) for each in layers), bias=self.bias is not None,
            activation=self.activation, kept=sum(len(each.kept) for each in layers), summed=len(self.summed))
        first = 0
        for each in layers:
            each.tensor, each.first, each.width = tensor, first, sum(len(other.kept) for other in layers) * self.dim
            first += len(each.kept) * self.dim
        self.width += len(self.summed)

    def _others_alike(self, p: Program) -> list[Maps]:
        """Layers of the same rows whose maps can be more maps of this one."""
        found = []
        for number, source in enumerate(p.sources.all):
            maps = source.data
            if isinstance(maps, Maps) and maps is not self and _can_be_one(self, maps) and _is_wanted(p, number):
                maps.kept = set(range(len(maps.weight)))
                maps.order = sorted(maps.kept)
                found.append(maps)
        return found

    def activate(self, p: Program, cell: int, activation: wr.Activation) -> None:
        """Makes the source of the cell, the activation of all columns, as a part of the layer."""
        maps = replace(self, activation=activation, kept=set(), summed=set(), sums=None)
        source, _ = p.sources.of(cell)
        source.data, source.make = maps, lambda columns: maps.columns(p, columns)


def _can_be_one(a: Maps, b: Maps) -> bool:
    def is_plain(maps: Maps) -> bool:
        return maps.tensor is None and maps.activation.kind == "identity" and not maps.summed
    return is_plain(a) and is_plain(b) and (a.bias is None) == (b.bias is None) and len(a.operands) == len(b.operands) \
        and all(map(np.array_equal, a.operands, b.operands))


def _is_wanted(p: Program, number: int) -> bool:
    """Whether something else than an activation or a bias that is a part of the layer reads a layer."""
    source = p.sources.all[number]
    return source.kind == "field_linear" and any(not isinstance(reader.data, Maps) or reader.kind == "field_linear"
                                                 for reader in p.sources.readers_of(number << SOURCE_SHIFT))


def over_fields(p: Program, rows: np.ndarray, weight: np.ndarray, bias: np.ndarray | None,
                path: str | None) -> np.ndarray | None:
    """[dim, out] of a linear layer of rows [dim, inputs], where those are fields, or products of pairs of fields."""
    found: tuple[np.ndarray | None, np.ndarray] | None = _factors(p, rows) or _fields(rows)
    if found is None or PAIR in p.sources.axis_of(rows):
        return None
    maps = Maps(*found, weight, bias, path or p.module_path() or p.default_name())
    if sum(map(len, maps.operands)) > _most_operands(len(rows)):
        return None
    _reads(p, maps.cells)
    return _added(p, maps).T


def _most_operands(dim: int) -> int:
    """Of how many fields of both rows the library has kernels that sum."""
    return (1500 if dim <= 16 else 750 if dim <= 32 else 375) - 7


def _added(p: Program, maps: Maps) -> np.ndarray:
    cells = p.sources.add(p.sources.axis_of(maps.cells), len(maps.weight) * maps.dim, "field_linear",
                          lambda columns: maps.columns(p, columns), data=maps, by_column=True)
    return cells.reshape(len(maps.weight), maps.dim)


def _reads(p: Program, cells: np.ndarray) -> None:
    """Notes which of them are maps, which are kept."""
    for number in np.unique(source_numbers(cells)):
        before = p.sources.all[number].data
        if isinstance(before, Maps):
            before.kept.update((columns_of(cells[source_numbers(cells) == number]) // before.dim).tolist())


def with_bias(p: Program, cells: np.ndarray, bias: np.ndarray) -> np.ndarray | None:
    """A layer with a bias, of which the cells are all columns in any order; None: it is none, or has one."""
    source, _ = p.sources.of(int(cells[0]))
    maps, order = source.data, np.argsort(cells)
    if not isinstance(maps, Maps) or maps.bias is not None or source.kind != "field_linear" or \
            of_one(p, cells[order]) is not source:
        return None
    shifts = bias[order].reshape(-1, maps.dim)
    if (shifts != shifts[:, :1]).any():
        return None
    made = _added(p, replace(maps, bias=shifts[:, 0], kept=set(), summed=set(), sums=None))
    return made.ravel()[columns_of(cells)]


def _factors(p: Program, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The fields [n, dim] and [m, dim] of which rows [dim, n * m] are the products of all pairs, in this order."""
    dim, count = rows.shape
    matrices = p.products.get(rows.tobytes())
    if matrices is not None and matrices[0].shape[-1] == 1 and len(matrices[0]) == dim > 1:
        return matrices[0][:, :, 0].T, matrices[1][:, 0].T
    source, _ = p.sources.of(int(rows.flat[0]))
    if dim == 1 or source.kind != "mul" or (source_numbers(rows) != source_numbers(rows[0, 0])).any() or \
            any(not isinstance(x, np.ndarray) or len(x) != source.width for x in source.operands):
        return None
    operands = [x[columns_of(rows)] for x in source.operands]
    for a, b in (operands, operands[::-1]):
        size = int((a[0] != a[0, 0]).argmax())  # as many have the same first factor
        if size < 2 or count % size:
            continue
        a, b = (x.reshape(dim, -1, size) for x in (a, b))
        if (a == a[:, :, :1]).all() and (b == b[:, :1]).all():
            return a[:, :, 0].T, b[:, 0].T
    return None


def _fields(rows: np.ndarray) -> tuple[None, np.ndarray] | None:
    """The fields [n, dim] of which rows [dim, n] are the columns; one field is a layer's row."""
    is_turned = len(rows) > 1 and rows.shape[1] > 1 and (np.diff(rows, axis=0) == 1 << COLUMN_SHIFT).all()
    return (None, rows.T) if is_turned and not (rows & POSITIONS).any() else None


def sums(p: Program, rows: np.ndarray) -> np.ndarray | None:
    """[n] of [n, columns], where each row is all columns of a map."""
    found = [_whole_map(p, row) for row in rows] if 1 < rows.shape[1] <= MOST_SUMMED else [None]
    made = []
    for each in found:
        if each is None:
            return None
        maps, number = each
        if maps.sums is None:
            axis = p.sources.axis_of(maps.cells)
            maps.sums = p.sources.add(axis, len(maps.weight), "field_sums",
                                      lambda wanted, m=maps: m.columns_of_sums(p, wanted), by_column=True)
        maps.summed.add(number)
        made.append(maps.sums[number])
    return np.array(made)


def _whole_map(p: Program, row: np.ndarray) -> tuple[Maps, int] | None:
    """Of which layer the cells are a map, and which."""
    source, _ = p.sources.of(int(row[0]))
    maps, columns = source.data, np.sort(columns_of(row))
    if not isinstance(maps, Maps) or len(row) != maps.dim or (source_numbers(row) != source_numbers(row[0])).any():
        return None
    number = int(columns[0]) // maps.dim
    return (maps, number) if (columns == number * maps.dim + np.arange(maps.dim)).all() else None
