# SPDX-License-Identifier: Apache-2.0
"""Keras' GRU, which TensorFlow has as a loop over the events of a history: recognised by what a step of it computes in
FP64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..lowering.cells import Unsupported, Value
from ..lowering.places import by_event
from ..lowering.recurrent import Gru, final_state, state_behind
from ..lowering.recurrent import gru as gru_of
from .handlers import HANDLERS, handles
from .loop_lists import Events, States
from .tracing import Variable
from .walk import computed, made_of

if TYPE_CHECKING:
    from .program import Program

EXPECTED = "a recurrent layer that begins with zeros, keras.layers.GRU with reset_after=True"
COUNTER, LAST, TIME, LIST = range(4)  # what a loop of Keras has first


@handles("TensorListFromTensor", events=True)
def listed(p: Program, op: Any, x: Value, shape: Any) -> Events:
    return Events(x)


@handles("TensorListStack", events=True)
def stacked(p: Program, op: Any, states: Any, shape: Any) -> Value:
    if not isinstance(states, States):
        raise Unsupported("the states of a recurrent layer", "another list")
    return states.value


@handles("While", "StatelessWhile", events=True)
def loop(p: Program, op: Any, *args: Any) -> list[Any]:
    places = [i for i, x in enumerate(args) if _is_state(x) and i != LIST]
    events = [x.value for x in args if isinstance(x, Events)]
    masks = [x for x in events if x.cells[0, 0].size == 1]
    steps = _Steps(p, op, args, places)
    are_known = places and len(events) == 1 + len(masks) and len(masks) < 2 and steps.are_all(len(events[0].cells))
    layer = next((x for x in _layers(args) if steps.are_of(x)), None) if are_known else None
    if layer is None:
        raise Unsupported(EXPECTED, f"another loop, {op.type}")
    x = next(x for x in events if x.cells[0, 0].size > 1)
    place, cells = p.sources.split_events(x.cells)
    if place != -3 or x.batch != -2 or x.inner != 1:
        raise Unsupported("a GRU over the events of each row, [batch, events, ..]", "another")
    row = gru_of(p, layer.of(p, cells.ravel()))
    every = Value(p.sources.with_events(row.reshape(1, 1, -1), -3, x.cells.shape[0]), False, -2)
    if masks:
        _, mask = p.sources.split_events(masks[0].cells)
        last = Value(state_behind(p, row, mask.ravel()).reshape(1, 1, -1), False, -2)
        kept = Value(masks[0].cells.reshape(-1, 1, 1), False, -2)
        every = by_event(p, lambda p, *given: HANDLERS["SelectV2"](p, op, *given), (kept, every, last), {})
    else:
        last = Value(final_state(p, row).reshape(1, 1, -1), False, -2)
    made: list[Any] = [None] * len(args)
    made[LIST] = States(every if steps.lists_every else last)
    for i in places:
        made[i] = Value(last.cells[0])
    return made


def _is_state(x: Any) -> bool:
    """Zeros; None: like what the first step makes."""
    return x is None or isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind == "f" and not x.any()


@dataclass
class _Layer:
    """Of Keras' matrices, [in, 3 hidden] of the gates z, r and n, with biases [2, 3 hidden] or none."""

    kernel: Variable
    of_state: Variable
    biases: np.ndarray

    def of(self, p: Program, cells: np.ndarray) -> Gru:
        def ordered(array: np.ndarray) -> np.ndarray:
            gates = array.T.reshape(3, -1, *array.T.shape[1:])
            return np.ascontiguousarray(gates[[1, 0, 2]].reshape(array.T.shape), np.float32)
        kernel, of_state = ordered(self.kernel.array), ordered(self.of_state.array)
        return Gru(cells, kernel, ordered(self.biases[0]), of_state, ordered(self.biases[1]),
                   p.path_of(self.kernel.array, ""))

    def step(self, x: np.ndarray, state: np.ndarray) -> np.ndarray:
        given = np.split(x @ self.kernel.array.astype(np.float64) + self.biases[0], 3, 1)
        of_state = np.split(state @ self.of_state.array.astype(np.float64) + self.biases[1], 3, 1)
        z, r = (1 / (1 + np.exp(-(a + b))) for a, b in zip(given[:2], of_state))
        return z * state + (1 - z) * np.tanh(given[2] + r * of_state[2])


def _layers(args: Any) -> list[_Layer]:
    """Those that the matrices of a loop may be."""
    weights = [x for x in args if isinstance(x, Variable) and x.array.ndim == 2]
    found = []
    for kernel in weights:
        for of_state in weights:
            hidden = of_state.array.shape[0]
            if kernel is of_state or of_state.array.shape[1] != 3 * hidden or kernel.array.shape[1] != 3 * hidden:
                continue
            biases = [x.array for x in weights if x.array.shape == (2, 3 * hidden) and x not in (kernel, of_state)]
            found += [_Layer(kernel, of_state, b) for b in biases or [np.zeros((2, 3 * hidden), np.float32)]]
    return found


class _Steps:
    """Of a loop that is given its states at `places`, with random numbers in the place of batches."""

    def __init__(self, p: Program, op: Any, args: Any, places: list[int]):
        self._body, self._condition = p.part(op, "body"), p.part(op, "cond")
        self._args, self._places, self._rows = args, places, p.batch
        reads, writes = ([o for o in self._body.get_operations() if o.type == kind]
                         for kind in ("TensorListGetItem", "TensorListSetItem"))
        time = self._body.inputs[TIME]
        self._reads_in_order = all(o.inputs[1] is time for o in reads)
        self._written = [o.inputs[2] for o in writes]
        self.lists_every = any(o.inputs[1] is time for o in writes)

    def are_all(self, length: int) -> bool:
        """Whether there is one for each event, in their order, whatever the events are."""
        allowed = {self._condition.inputs[i].ref() for i in (COUNTER, LAST, TIME)}
        given = {x.ref() for x in self._condition.inputs} & made_of(self._condition.outputs[0])
        if not self._reads_in_order or not given <= allowed or any(self._args[i] != 0 for i in (COUNTER, TIME)):
            return False

        def at(place: int) -> list[Any]:
            return [np.int32(place) if i in (COUNTER, TIME) else x for i, x in enumerate(self._args)]
        goes_on = [bool(computed(self._condition, at(place), self._condition.outputs[:1])[0])
                   for place in range(length + 1)]
        nexts = [computed(self._body, at(place), [self._body.outputs[i] for i in (COUNTER, TIME)])
                 for place in range(length)]
        return goes_on == [True] * length + [False] and all(
            int(x) == place + 1 for place, made in enumerate(nexts) for x in made)

    def are_of(self, layer: _Layer) -> bool:
        """Whether one computes random numbers as a layer does, leaves states that a mask leaves out, and lists what it
        computes."""
        random = np.random.default_rng(0)
        rows, inputs, hidden = self._rows, layer.kernel.array.shape[0], layer.of_state.array.shape[0]
        x = random.standard_normal((rows, inputs)) * np.logspace(-1, 1, rows)[:, None]
        state = random.uniform(-1, 1, (rows, hidden))
        is_kept = np.ones(rows, bool)
        given: list[Any] = []
        for i, arg in enumerate(self._args):
            if isinstance(arg, Events):
                is_mask = arg.value.cells[0, 0].size == 1
                if is_mask:
                    is_kept = random.random(rows) < 0.5
                given.append(is_kept.reshape(rows, *arg.value.cells.shape[2:]) if is_mask else x)
            else:
                given.append(state if i in self._places else arg.array if isinstance(arg, Variable) else arg)
        wanted = np.where(is_kept[:, None], layer.step(x, state), state)
        try:
            made = computed(self._body, given, [*(self._body.outputs[i] for i in self._places), *self._written])
        except Exception:  # of an op that takes no FP64
            return False
        return all(y.shape == wanted.shape and np.abs(y - wanted).max() <= 1e-9 for y in made)
