# SPDX-License-Identifier: Apache-2.0
"""An export of a module of PyTorch."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch

from ..errors import Problems, refuse
from ..exported import Exported


class ExportedModule(Exported):
    _kept: list[int]  # which of what the module gives are outputs

    def _arrays(self, batch: Any) -> dict[str, np.ndarray]:
        return {given.name: tensor.detach().cpu().numpy() for given, tensor in zip(self._inputs, self._tensors(batch))}

    def _tensors(self, batch: Any) -> list[torch.Tensor]:
        """Those of a batch in the order of the example's, which may have other arguments by place, or in another
        order."""
        signature = inspect.signature(self._trained.forward)
        example = bound(signature, self._example)
        given = bound(signature, as_arguments(self._trained, batch), list(example))
        problems = Problems()
        check_arguments(given, list(example), problems)
        for name, like in example.items():
            if isinstance(like, Mapping) and isinstance(given.get(name), Mapping):
                check_arguments(given[name], list(like), problems)
                problems.raise_if_any()
                given[name] = {key: given[name][key] for key in like}
        tensors: list[torch.Tensor] = []
        for name, like in example.items():
            if name not in given:
                continue
            wanted, form = torch.utils._pytree.tree_flatten(like)
            found, found_form = torch.utils._pytree.tree_flatten(given[name])
            if form != found_form or [isinstance(x, torch.Tensor) for x in wanted] != [
                    isinstance(x, torch.Tensor) for x in found]:
                problems.add(f"batch: argument '{name}'", "tensors as the example has",
                             type(given[name]).__name__ + " of others")
            tensors += [x for x in found if isinstance(x, torch.Tensor)]
        problems.raise_if_any()
        return tensors

    def _wanted(self, batch: Any) -> tuple[dict[str, np.ndarray], float]:
        """The module's scores by output, and the seconds that it took."""
        args, kwargs = arguments(as_arguments(self._trained, batch))
        with torch.no_grad(), evaluating(self._trained):
            self._trained(*args, **kwargs)
            begin = time.perf_counter()
            made = self._trained(*args, **kwargs)
            seconds = time.perf_counter() - begin
        given = torch.utils._pytree.tree_leaves(made)
        return {name: given[i].to(torch.float64).numpy() for name, i in zip(self.outputs, self._kept)}, seconds


class evaluating:
    """A module in evaluation, and afterwards each part of it as it was."""

    def __init__(self, module: torch.nn.Module):
        self._module = module

    def __enter__(self) -> None:
        self._training: Mapping[torch.nn.Module, bool] = {m: m.training for m in self._module.modules()}
        for module in self._training:
            module.training = False

    def __exit__(self, *_: Any) -> None:
        for module, training in self._training.items():
            module.training = training


def arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a module is called with: a tensor, a tuple of arguments, or arguments by name."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}


def as_arguments(module: torch.nn.Module, batch: Any) -> Any:
    """A batch; a dict that the module takes as its one argument, and not as its arguments by name, in a tuple. An
    object that has a tensor by each of its names is a dict of them."""
    batch = dict_of(batch)
    if not isinstance(batch, Mapping):
        return batch
    taken = inspect.signature(module.forward).parameters
    by_place = [p for p in taken.values()
                if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_names = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    return (dict(batch),) if len(by_place) == 1 and not takes_names and not set(batch) & set(taken) else batch


def dict_of(batch: Any) -> Any:
    """Of an object that gives its names when it is iterated over, and by each a tensor; others as they are."""
    if isinstance(batch, (torch.Tensor, tuple, list, Mapping)) or not hasattr(type(batch), "__iter__"):
        return batch
    names = list(batch)
    return {name: batch[name] for name in names} if names and all(isinstance(n, str) for n in names) else batch


def bound(signature: inspect.Signature, batch: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """A batch by the names of a module's arguments, first those by place. names: those that messages tell of"""
    args, kwargs = arguments(batch)
    try:
        made = signature.bind(*args, **kwargs).arguments
    except TypeError:
        if args:
            refuse("batch", f"arguments {', '.join(names) or signature}", f"{len(args)} by place" + (
                f", and {', '.join(kwargs)}" if kwargs else ""))
        return kwargs
    by_place: dict[str, Any] = {}
    for name, value in made.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            by_place |= {f"{name}_{i}": x for i, x in enumerate(value)}
        elif kind is not inspect.Parameter.VAR_KEYWORD and name not in kwargs:
            by_place[name] = value
    return by_place | kwargs


def check_arguments(given: Mapping[str, Any], wanted: Sequence[str], problems: Problems) -> None:
    """That a batch has the arguments that the example has, and no others."""
    for name in wanted:
        if name not in given:
            problems.add(f"batch: input '{name}'", "a tensor", "none")
    for name in given:
        if name not in wanted:
            near = get_close_matches(name, wanted, 1)
            problems.add(f"batch: '{name}'", "an input, as the example has",
                         "none of that name" + (f" (did you mean '{near[0]}'?)" if near else ""))


def leaves(batch: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(arguments(batch)) if isinstance(x, torch.Tensor)]


def names_of(tree: Any) -> list[str]:
    """The keys on the way to each leaf."""
    paths, _ = torch.utils._pytree.tree_flatten_with_path(tree)
    return ["_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) for path, _ in paths]
