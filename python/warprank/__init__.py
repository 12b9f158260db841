# SPDX-License-Identifier: Apache-2.0
"""Click-through-rate ranking models: build, load and score them with the engine that serves them.

    import warprank as wr

    def clicks(b):
        user = b.axis("user")
        item = b.axis("item", user)
        film = b.embed(b.ids("film_id", item), b.table("film", dim=8))
        age = b.dense("age", user, 1)
        x = b.concat([b.expand(age, item), film])
        return {"ctr": b.sigmoid(b.mlp("tower", x, [16, 1], "relu"))}

    plan = wr.compile(clicks)
    tables = wr.Tables.load(plan, "tables.safetensors")
    model = wr.bind(plan, wr.Weights.open("dense.safetensors"), tables)
    scores = model.score({"age": ages, "film_id": (film_ids, offsets)})
    scores["ctr"]

The Builder's functions are those of C++, with its options as keywords, its enumerators as strings.
"""

from importlib.metadata import version as _version

from . import metrics
from ._core import (Activation, Axis, Builder, Capacity, Graph, Ids, Problem, Table, Tensor, has_cuda, op_kinds,
                    pass_names)
from .columns import Ragged
from .errors import CudaError, InvalidArgument
from .model import Context, Model, Plan, Scores, Tables, bind, build, compile, load
from .transforms import Transforms
from .weights import Weights, write_safetensors

__version__ = _version("warprank")

__all__ = [
    "Activation", "Axis", "Builder", "Capacity", "Context", "CudaError", "Graph", "Ids", "InvalidArgument", "Model",
    "Plan", "Problem", "Ragged", "Scores", "Table", "Tables", "Tensor", "Transforms", "Weights", "bind", "build", "compile",
    "has_cuda", "load", "metrics", "op_kinds", "pass_names", "write_safetensors",
]
