# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms over columns, whose complex numbers a module reads as their parts."""

import pytest
import torch
from test_export import B, Function, check, ids
from torch import nn

import warprank as wr
import warprank.torch

FIELDS, D = 3, 6


def parts(x):
    return torch.view_as_real(x)


def convolved(m, x):
    """Circular convolutions of neighbouring fields, by the product of their transforms."""
    a, b = (parts(torch.fft.fft(each)) for each in (x[:, :-1], x[:, 1:]))
    product = torch.stack([a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1],
                           a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]], -1)
    return parts(torch.fft.ifft(torch.view_as_complex(product)))[..., 0].flatten(1)


def correlated(m, x):
    return torch.fft.irfft(torch.conj(torch.fft.rfft(x[:, :-1])) * torch.fft.rfft(x[:, 1:])).flatten(1)


TRANSFORMS = {
    "convolution": convolved,
    "over fields": lambda m, x: parts(torch.fft.fft(x, dim=1)).flatten(1),
    "of real numbers": lambda m, x: parts(torch.fft.rfft(x, norm="ortho")).flatten(1),
    "and back": lambda m, x: torch.fft.irfft(torch.fft.rfft(x), n=D).flatten(1),
    "and back, over fields": lambda m, x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=FIELDS, dim=1).flatten(1),
    "cut": lambda m, x: torch.fft.irfft(torch.fft.rfft(x, n=4, norm="forward"), n=5).flatten(1),
    "correlation": correlated,
    "parts": lambda m, x: torch.cat([torch.fft.ifft(x).real, torch.fft.ifft(x).imag], 1).flatten(1),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    check(Function(TRANSFORMS[name]), torch.randn(B, FIELDS, D))


@pytest.mark.parametrize("function, expected", [
    (lambda m, x: parts(torch.fft.fft(x) * 2), "products of complex numbers of a batch, got of others with them"),
    (lambda m, x: torch.fft.fft(x).abs(), "parts of complex numbers, view_as_real, got 'abs' of them"),
    (lambda m, x: parts(torch.cat([torch.fft.fft(x), torch.fft.fft(x)], -1)), "got 'cat' of them"),
    (lambda m, x: torch.fft.fft(x), "outputs: expected real numbers, got complex ones"),
    (lambda m, x: parts(torch.fft.fft(x, dim=0)), "each row by itself, got an op over the batch"),
])
def test_what_is_not_expressed(function, expected):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.torch.export(Function(function), torch.randn(B, FIELDS, D))


@pytest.mark.parametrize("function", [
    lambda x: torch.fft.irfft(torch.fft.rfft(x), n=D),
    lambda x: parts(torch.fft.fft(x, dim=1)).flatten(2),
    lambda x: parts(torch.view_as_complex(x.unflatten(2, (-1, 2))) * torch.view_as_complex(x.unflatten(2, (-1, 2))))])
def test_of_events_they_are_refused(function):
    module = Function(lambda m, history: function(m.films(history)).sum(1), films=nn.Embedding(9, D))
    with pytest.raises(wr.InvalidArgument, match="complex numbers of a row's columns, got those of events"):
        wr.torch.export(module, ids(9, 5), axes={"batch_0": "row/history[]"})


def test_of_what_is_pooled_over_events_they_are_not():
    module = Function(lambda m, history: torch.fft.irfft(torch.fft.rfft(m.films(history).sum(1)), n=D),
                      films=nn.Embedding(9, D))
    check(module, ids(9, 5), axes={"batch_0": "row/history[]"})
