# SPDX-License-Identifier: Apache-2.0
"""Ops that PyTorch does not make of those that have a handler, made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch.nn import functional as F

from ..lowering.cells import Unsupported
from ..lowering.limits import MOST_SORTED

aten = torch.ops.aten
MADE: dict[Any, Callable[..., Any]] = {}


def makes(*ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        MADE.update(dict.fromkeys(ops, function))
        return function
    return register


def _dims(x: torch.Tensor, dim: Any) -> list[int]:
    return [dim] if isinstance(dim, int) else list(dim) if dim else list(range(x.dim()))


@makes(aten.var.correction)
def variance(x: torch.Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> torch.Tensor:
    dims = _dims(x, dim)
    squares = (x - x.mean(dims, keepdim=True)).square()
    if correction == 0:
        return squares.mean(dims, keepdim)
    count = 1
    for d in dims:
        count *= x.shape[d]
    return squares.sum(dims, keepdim) / (count - correction)


@makes(aten.std.correction)
def deviation(x: torch.Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> torch.Tensor:
    return variance(x, dim, correction=correction, keepdim=keepdim).sqrt()


@makes(aten.var_mean.correction)
def variance_and_mean(x: torch.Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    return variance(x, dim, correction=correction, keepdim=keepdim), x.mean(_dims(x, dim), keepdim)


@makes(aten._log_softmax.default)
def log_softmax(x: torch.Tensor, dim: int, _: bool = False) -> torch.Tensor:
    return x - x.logsumexp(dim, keepdim=True)


@makes(aten.prod.dim_int)
def product(x: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    first, *others = x.unbind(dim)
    for other in others:
        first = first * other
    return first.unsqueeze(dim) if keepdim else first


@makes(aten.cumsum.default)
def cumulative_sum(x: torch.Tensor, dim: int, *, dtype: Any = None) -> torch.Tensor:
    """One after the other: of a later infinity nothing is in those before it, as there would be in a product."""
    sums = list(x.float().unbind(dim))
    for place in range(1, len(sums)):
        sums[place] = sums[place - 1] + sums[place]
    return torch.stack(sums, dim)


@makes(aten.any.dim, aten.any.dims)
def is_any(x: torch.Tensor, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
    return (x != 0).float().sum(_dims(x, dim), keepdim) > 0


@makes(aten.sign.default)
def sign(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).float() - (x < 0).float()


@makes(aten.group_norm.default)
def group_norm(x: torch.Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
               _: bool = True) -> torch.Tensor:
    by_group = x.reshape(x.shape[0], groups, -1)
    centred = by_group - by_group.mean(-1, keepdim=True)
    normed = (centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()).reshape(x.shape)
    by_channel = (1, -1, *[1] * (x.dim() - 2))
    scaled = normed if weight is None else normed * weight.reshape(by_channel)
    return scaled if bias is None else scaled + bias.reshape(by_channel)


@makes(aten.bilinear.default)
def bilinear(a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    by_row = torch.tensordot(a, weight, dims=([-1], [1]))  # [.., out, of b]
    made = (by_row * b.unsqueeze(-2)).sum(-1)
    return made if bias is None else made + bias


@makes(aten.max_pool1d.default, aten.max_pool2d.default)
def max_pool(x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False) -> torch.Tensor:
    if _is_any_but(dilation, 1) or ceil_mode:
        raise Unsupported("a pool without dilation and ceil_mode, behind F.pad", "one with them")
    sizes = _of_dimensions(x, kernel)
    if _is_any_but(padding, 0):  # with what no maximum is
        ends = _of_dimensions(x, padding)
        x = F.pad(x, [end for size in reversed(ends) for end in (size, size)], value=torch.finfo(x.dtype).min)
    return _windows(x, sizes, stride).amax(_last(sizes))


@makes(aten.avg_pool1d.default, aten.avg_pool2d.default)
def average_pool(x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Any = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor: Any = None) -> torch.Tensor:
    if _is_any_but(padding, 0) or ceil_mode or divisor is not None:
        raise Unsupported("a mean without padding, ceil_mode and divisor_override, behind F.pad", "one with them")
    sizes = _of_dimensions(x, kernel)
    return _windows(x, sizes, stride).mean(_last(sizes))


def _of_dimensions(x: torch.Tensor, given: Any) -> list[int]:
    """Of the dimensions behind channels one number each, where PyTorch also takes one for all."""
    each = [given] if isinstance(given, int) else list(given)
    return each * (x.dim() - 2) if len(each) == 1 else each


def _last(sizes: Sequence[int]) -> list[int]:
    return list(range(-len(sizes), 0))


def _windows(x: torch.Tensor, sizes: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """[.., places, kernel], of two dimensions [.., places, places, kernel, kernel]"""
    first = x.dim() - len(sizes)
    for d, (size, step) in enumerate(zip(sizes, _of_dimensions(x, stride or sizes), strict=True)):
        x = x.unfold(first + d, size, step)
    return x


def _is_any_but(given: Any, number: int) -> bool:
    return any(each != number for each in ([given] if isinstance(given, int) else given))


# --- the largest of a few columns


def _ranks(x: torch.Tensor, largest: bool) -> torch.Tensor:
    """Of the numbers along the last dimension how many come before each; of equal ones the first does."""
    count = x.shape[-1]
    if count > MOST_SORTED:
        raise Unsupported(f"topk or sort of at most {MOST_SORTED} columns", str(count))
    one, other = x.unsqueeze(-1), x.unsqueeze(-2)
    earlier = torch.ones(count, count, dtype=torch.bool).tril(-1)
    less, at_most = (other > one, other >= one) if largest else (other < one, other <= one)
    return torch.where(earlier, at_most, less).float().sum(-1)


def _first(x: torch.Tensor, k: int, largest: bool) -> torch.Tensor:
    """The k first along the last dimension, by exchanges."""
    first, second = (torch.maximum, torch.minimum) if largest else (torch.minimum, torch.maximum)
    columns, found = list(x.unbind(-1)), []
    for _ in range(k):
        best = columns.pop()
        for i in reversed(range(len(columns))):
            best, columns[i] = first(columns[i], best), second(columns[i], best)
        found.append(best)
    return torch.stack(found, -1)


@makes(aten.topk.default)
def top_k(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True) -> Any:
    last = x.movedim(dim, -1)
    ranks = _ranks(last, largest)
    hits = [ranks == float(place) for place in range(k)]
    places = torch.arange(last.shape[-1], dtype=x.dtype)
    indices = torch.stack([(hit.float() * places).sum(-1) for hit in hits], -1)
    return _first(last, k, largest).movedim(-1, dim), indices.movedim(-1, dim)


@makes(aten.sort.default)
def sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return top_k(x, x.shape[dim], dim, descending)


@makes(aten.sort.stable)
def stable_sort(x: torch.Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Any:
    return sort(x, dim, descending)


def largest_in_order(x: torch.Tensor, k: int, dim: int) -> torch.Tensor:
    """The k largest along a dimension, in the order in which they lie: the least is left out, the last of equal ones,
    until there are k. The minima begin at one column each and share none, so that each is a part of what reads it."""
    columns = list(x.unbind(dim))
    while len(columns) > k:
        least = reduce(torch.minimum, columns[1:], columns[0])
        behind = [reduce(torch.minimum, columns[i + 2:], column) for i, column in enumerate(columns[1:])]
        columns = [torch.where(rest > least, after, column)
                   for column, after, rest in zip(columns, columns[1:], behind)]
    return torch.stack(columns, dim)


@makes(aten.gather.default)
def gather(x: torch.Tensor, dim: int, places: torch.Tensor, **_: Any) -> torch.Tensor:
    """Of places that are computed, as those of topk; of other dimensions the first of x, as many as there are places."""
    for d, size in enumerate(places.shape):
        x = x if d == dim % x.dim() or x.shape[d] == size else x.narrow(d, 0, size)
    x, places = x.movedim(dim, -1), places.movedim(dim, -1)
    columns = x.unbind(-1)
    made = [sum(torch.where(place == float(i), column, 0.0) for i, column in enumerate(columns))
            for place in places.unbind(-1)]
    return torch.stack(made, -1).movedim(-1, dim)
