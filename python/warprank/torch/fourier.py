# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of a number of columns that is known: linear layers. Complex numbers are pairs of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..lowering import linears
from ..lowering.arithmetic import apply
from ..lowering.cells import Unsupported, Value, move, numbers, row_dimension
from .handlers import handles

if TYPE_CHECKING:
    from ..lowering.program import Program


class Complex(Value):
    """As view_as_real has them: [.., 2]."""


TRANSFORMS = ("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft")


def _of_columns(p: Program, x: Any) -> Value:
    """A batch that has no events."""
    given = numbers(x)
    if p.sources.split_events(given.cells)[0] is not None:
        raise Unsupported("transforms and complex numbers of a row's columns", "those of events")
    return given


@handles(*TRANSFORMS, events=True)
def fourier(p: Program, x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    x = _of_columns(p, x)
    parts = 2 if isinstance(x, Complex) else 1
    dim = row_dimension(x, dim - parts + 1 if dim < 0 else dim)
    given = move(torch.ops.aten.movedim.int, (x, dim, -parts), {}, p.batch, torch.from_numpy)
    count = given.cells.shape[-parts]
    basis = torch.eye(count * parts).reshape(count * parts, *given.cells.shape[-parts:])
    each = p.current().target(torch.view_as_complex(basis) if parts == 2 else basis, n, -1, norm)
    is_complex = each.is_complex()
    matrix = torch.view_as_real(each.resolve_conj()).flatten(1) if is_complex else each
    flat = given if parts == 1 else move(torch.ops.aten.flatten.using_ints, (given, -2, -1), {}, p.batch,
                                         torch.from_numpy)
    made = linears.linear(p, flat, matrix.t().contiguous().numpy(), None, None)
    if not is_complex:
        return _moved(p, made, -1, dim)
    apart = move(torch.ops.aten.unflatten.int, (made, -1, [-1, 2]), {}, p.batch, torch.from_numpy)
    return view_as_complex(p, _moved(p, apart, -2, dim))


def _moved(p: Program, x: Value, dim: int, to: int) -> Value:
    return move(torch.ops.aten.movedim.int, (x, dim, to), {}, p.batch, torch.from_numpy)


@handles("view_as_complex", events=True)
def view_as_complex(p: Program, x: Any) -> Complex:
    return Complex(_of_columns(p, x).cells, False, x.batch, x.inner)


def view_as_real(p: Program, x: Any) -> Value:
    return Value(x.cells, False, x.batch, x.inner)


def _parts(p: Program, x: Complex) -> list[Value]:
    return [move(torch.ops.aten.select.int, (view_as_real(p, x), -1, place), {}, p.batch, torch.from_numpy)
            for place in (0, 1)]


def _of_parts(real: Value, imaginary: Value) -> Complex:
    cells = np.stack([real.cells, imaginary.cells], -1)
    return Complex(cells, False, real.batch - 1, real.inner)


def conjugate(p: Program, x: Complex) -> Complex:
    real, imaginary = _parts(p, x)
    return _of_parts(real, apply(p, "neg", imaginary))


def product(p: Program, x: Any, y: Any) -> Complex:
    if not isinstance(x, Complex) or not isinstance(y, Complex):
        raise Unsupported("products of complex numbers of a batch", "of others with them")
    (a, b), (c, d) = _parts(p, x), _parts(p, y)

    def times(left: Value, right: Value) -> Value:
        return apply(p, "mul", left, right)
    return _of_parts(apply(p, "sub", times(a, c), times(b, d)), apply(p, "add", times(a, d), times(b, c)))


def same(p: Program, x: Complex, **_: Any) -> Complex:
    return x


OF_COMPLEX = dict.fromkeys(TRANSFORMS, fourier) | {"view_as_real": view_as_real, "_conj": conjugate, "mul": product,
                                                   "clone": same, "resolve_conj": same}


def of_complex(p: Program, name: str, args: Any, kwargs: Any) -> Value:
    """An op of complex numbers."""
    if name not in OF_COMPLEX:
        raise Unsupported("transforms, products and parts of complex numbers, view_as_real", f"'{name}' of them")
    return OF_COMPLEX[name](p, *args, **kwargs)  # type: ignore[operator]
