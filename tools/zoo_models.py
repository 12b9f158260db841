# SPDX-License-Identifier: Apache-2.0
"""Small configurations of the models of public zoos, most without a history, for tools/zoo.py: by zoo its packages, and
a function of a number of rows that gives by name the fields of a Model."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from zoo_fuxictr import fuxictr, fuxictr_repository

FIELDS, DIM = (1000, 300, 50, 2000, 20), 16
NUMBERS, LENGTH = 4, 20


def ids_of(rows):
    return [torch.randint(0, field, (rows,)) for field in FIELDS]


def history_of(rows):
    """Items of a user, of whom some have none; padding is 0."""
    return torch.randint(1, FIELDS[3], (rows, LENGTH)) * (torch.arange(LENGTH) < torch.randint(0, LENGTH + 1, (rows, 1)))


class Model(NamedTuple):
    """What makes a module, and what it is exported with."""

    make: Callable[[], torch.nn.Module]
    batch: Any
    axes: Mapping[str, str] | None = None  # where a batch has lists
    outputs: Sequence[str | None] | None = None


class Columns(torch.nn.Module):
    """A model of one matrix that has all inputs, of which its users' data loaders make it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        return self.model(torch.cat([x if x.dim() == 2 else x[:, None] for x in inputs.values()], 1))


def torchfm(rows):
    from torchfm.model import (afi, afm, afn, dcn, dfm, ffm, fm, fnfm, fnn, lr, ncf, nfm, pnn, wd, xdfm)
    layers, drop, batch = (64, 32), 0.2, torch.stack(ids_of(rows), 1)
    makers = {
        "LR": lambda: lr.LogisticRegressionModel(FIELDS),
        "FM": lambda: fm.FactorizationMachineModel(FIELDS, DIM),
        "FFM": lambda: ffm.FieldAwareFactorizationMachineModel(FIELDS, DIM),
        "FNN": lambda: fnn.FactorizationSupportedNeuralNetworkModel(FIELDS, DIM, layers, drop),
        "IPNN": lambda: pnn.ProductNeuralNetworkModel(FIELDS, DIM, layers, drop, "inner"),
        "OPNN": lambda: pnn.ProductNeuralNetworkModel(FIELDS, DIM, layers, drop, "outer"),
        "WD": lambda: wd.WideAndDeepModel(FIELDS, DIM, layers, drop),
        "FNFM": lambda: fnfm.FieldAwareNeuralFactorizationMachineModel(FIELDS, DIM, layers, (drop, drop)),
        "NFM": lambda: nfm.NeuralFactorizationMachineModel(FIELDS, DIM, layers, (drop, drop)),
        "NCF": lambda: ncf.NeuralCollaborativeFiltering(FIELDS, np.array([0]), np.array([1]), DIM, (DIM, DIM), drop),
        # It leaves its dropout on in evaluation.
        "AFM": lambda: afm.AttentionalFactorizationMachineModel(FIELDS, DIM, 16, (0.0, 0.0)),
        "DCN": lambda: dcn.DeepCrossNetworkModel(FIELDS, DIM, 3, layers, drop),
        "DFM": lambda: dfm.DeepFactorizationMachineModel(FIELDS, DIM, layers, drop),
        "xDFM": lambda: xdfm.ExtremeDeepFactorizationMachineModel(FIELDS, DIM, layers, drop, (16, 16), False),
        "AFI": lambda: afi.AutomaticFeatureInteractionModel(FIELDS, DIM, 32, 2, 3, layers, (0, 0, 0)),
        "AFN": lambda: afn.AdaptiveFactorizationNetwork(FIELDS, DIM, 32, layers, (0, 0, 0))}
    return {name: (make, batch) for name, make in makers.items()}


def deepctr_torch(rows):
    from deepctr_torch import models
    from deepctr_torch.inputs import DenseFeat, SparseFeat, VarLenSparseFeat
    sparse = [SparseFeat(f"s{i}", field, DIM) for i, field in enumerate(FIELDS)]
    every = sparse + [DenseFeat(f"d{i}", 1) for i in range(NUMBERS)]
    ids = torch.stack(ids_of(rows), 1).float()
    batch = torch.cat([ids, torch.randn(rows, NUMBERS)], 1)
    two = ("WDL", "DeepFM", "xDeepFM", "AutoInt", "DCN", "DCNMix", "DIFM", "FiBiNET", "IFM", "NFM", "ONN", "AFN")
    found = {name: (lambda name=name: getattr(models, name)(every, every, device="cpu"), batch) for name in two}
    tasks = {"task_types": ["binary", "binary"], "task_names": ["click", "like"], "device": "cpu"}
    for name in ("SharedBottom", "ESMM", "MMOE", "PLE"):
        found[name] = (lambda name=name: getattr(models, name)(every, **tasks), batch)
    seen = [VarLenSparseFeat(SparseFeat("hist_s3", FIELDS[3], DIM, embedding_name="s3"), LENGTH, length_name="length")]
    with_history = {"user": ids_of(rows)[0], "item": ids_of(rows)[3], "seen": history_of(rows)}
    with_history["length"] = (with_history["seen"] > 0).sum(1)
    axes = {"user": "row", "item": "row", "seen": "row/seen[]", "length": "row/seen[]"}
    read, of_items = [sparse[0], sparse[3], *seen], ["s3"]
    for name, cell in {"DIEN": "GRU", "DIEN_AUGRU": "AUGRU"}.items():
        found[name] = (lambda cell=cell: Columns(models.DIEN(read, of_items, cell, device="cpu")), with_history, axes)
    return found | {
        "DIN": (lambda: Columns(models.DIN(read, of_items, device="cpu")), with_history, axes),
        "AFM": (lambda: models.AFM(sparse, sparse, device="cpu"), ids),
        "CCPM": (lambda: models.CCPM(sparse, sparse, device="cpu"), ids),
        "IPNN": (lambda: models.PNN(every, device="cpu"), batch),
        "OPNN": (lambda: models.PNN(every, use_outter=True, device="cpu"), batch),
        "MLR": (lambda: models.MLR(every, device="cpu"), batch)}


def torch_rechub(rows):
    from torch_rechub.basic.features import DenseFeature, SequenceFeature, SparseFeature
    from torch_rechub.models import multi_task, ranking
    sparse = [SparseFeature(f"s{i}", vocab_size=field, embed_dim=DIM) for i, field in enumerate(FIELDS)]
    # A row for each field that an id meets.
    many = [SparseFeature(f"s{i}", vocab_size=field * len(FIELDS), embed_dim=DIM) for i, field in enumerate(FIELDS)]
    numbers = [DenseFeature(f"d{i}") for i in range(NUMBERS)]
    batch = {f"s{i}": ids for i, ids in enumerate(ids_of(rows))} | {f"d{i}": torch.randn(rows) for i in range(NUMBERS)}
    layers, tower, tasks = {"dims": [64, 32]}, {"dims": [16]}, ["classification", "classification"]
    makers = {
        "WideDeep": lambda: ranking.WideDeep(numbers, sparse, layers),
        "DeepFM": lambda: ranking.DeepFM(numbers + sparse, sparse, layers),
        "DCN": lambda: ranking.DCN(numbers + sparse, 3, layers),
        "DCNv2": lambda: ranking.DCNv2(numbers + sparse, 3, layers, use_low_rank_mixture=False),
        "DCNMix": lambda: ranking.DCNv2(numbers + sparse, 3, layers),
        "EDCN": lambda: ranking.EDCN(sparse, 3, layers),
        "AFM": lambda: ranking.AFM(sparse, DIM),
        "FiBiNet": lambda: ranking.FiBiNet(sparse, layers),
        "DeepFFM": lambda: ranking.DeepFFM(numbers, many, DIM, layers),
        "FatDeepFFM": lambda: ranking.FatDeepFFM(numbers, many, DIM, 1, layers),
        "AutoInt": lambda: ranking.AutoInt(sparse, numbers, 2, 2, mlp_params=layers),
        "SharedBottom": lambda: multi_task.SharedBottom(numbers + sparse, tasks, layers, [tower, tower]),
        "MMOE": lambda: multi_task.MMOE(numbers + sparse, tasks, 4, layers, [tower, tower]),
        "PLE": lambda: multi_task.PLE(numbers + sparse, tasks, 2, 2, 1, layers, [tower, tower]),
        "ESMM": lambda: multi_task.ESMM(sparse[:2], sparse[2:], layers, layers),
        "AITM": lambda: multi_task.AITM(numbers + sparse, 2, layers, [tower, tower])}
    item = [SparseFeature("s3", FIELDS[3], DIM, padding_idx=0)]
    seen = [SequenceFeature("seen", FIELDS[3], DIM, pooling="concat", shared_with="s3", padding_idx=0)]
    with_history = {name: batch[name] for name in ("s0", "s4")} | {"s3": batch["s3"], "seen": history_of(rows)}
    axes = dict.fromkeys(with_history, "row") | {"seen": "row/seen[]"}
    of_histories = {"DIN": lambda: ranking.DIN([sparse[0], sparse[4]], seen, item, layers, {"dims": [36]}),
                    "BST": lambda: ranking.BST([sparse[0], sparse[4]], seen, item, layers, nhead=2)}
    unseen = [SequenceFeature("unseen", FIELDS[3], DIM, pooling="concat", shared_with="s3", padding_idx=0)]
    with_both = with_history | {"unseen": history_of(rows)}  # for a loss, which is left out
    of_both = (lambda: ranking.DIEN([sparse[0], sparse[4]], seen, unseen, item, layers), with_both,
               axes | {"unseen": "row/unseen[]"}, ["score", None])
    return {name: (make, batch) for name, make in makers.items()} | {
        name: (make, with_history, axes) for name, make in of_histories.items()} | {"DIEN": of_both}


class DataSet:
    """What RecBole's models ask theirs for."""

    def __init__(self, kinds, config):
        from recbole.utils import FeatureSource, FeatureType
        self.config = config
        self.field2type = {name: FeatureType[kind] for name, (_, kind, _) in kinds.items()}
        self._sources = {name: FeatureSource[source] for name, (source, _, _) in kinds.items()}
        self._counts = {name: count for name, (_, _, count) in kinds.items()}

    def fields(self, source):
        return [name for name, own in self._sources.items() if own in source]

    def num(self, name):
        return self._counts[name]

    def get_user_feature(self):
        return self._features("user_id", "age")

    def get_item_feature(self):
        return self._features("item_id", "brand")

    def _features(self, key, of_key):
        from recbole.data.interaction import Interaction
        rows = self._counts[key]
        return Interaction({key: torch.arange(rows), of_key: torch.randint(0, self._counts[of_key], (rows,))})


# A number is a pair: its value, and the interval that it lies in.
RECBOLE = {"user_id": ("USER_ID", "TOKEN", 1000), "item_id": ("ITEM_ID", "TOKEN", 2000), "age": ("USER", "TOKEN", 20),
           "brand": ("ITEM", "TOKEN", 50), "genres": ("ITEM", "TOKEN_SEQ", 50), "price": ("ITEM", "FLOAT", 2),
           "hour": ("INTERACTION", "FLOAT", 25)}


def recbole(rows):
    common = {"LABEL_FIELD": "label", "embedding_size": DIM, "device": "cpu", "mlp_hidden_size": [64, 32],
              "numerical_features": ["price", "hour"], "dropout_prob": 0.2}
    attention = {"attention_size": 16, "n_layers": 2, "num_heads": 2, "dropout_probs": [0.2] * 3, "has_residual": True,
                 "hidden_dropout_prob": 0.2, "attn_dropout_prob": 0.2}
    mixed = {"cross_layer_num": 3, "mixed": True, "expert_num": 4, "low_rank": 8, "structure": "parallel"}
    own = {"AFM": attention, "AutoInt": attention, "DCN": {"cross_layer_num": 3},
           "DCNV2": {"cross_layer_num": 3, "structure": "stacked"}, "DCNV2Mix": mixed, "DeepFM": {},
           "DSSM": {"double_tower": True}, "FFM": {}, "FM": {}, "FNN": {}, "FwFM": {}, "FiGNN": attention, "LR": {},
           "NFM": {}, "PNN": {"use_inner": True, "use_outer": True}, "WideDeep": {},
           "xDeepFM": {"cin_layer_size": [16, 16]}}
    batch = {name: torch.randint(0, count, (rows,)) for name, (_, kind, count) in RECBOLE.items() if kind == "TOKEN"}
    for name in ("price", "hour"):
        batch[name] = torch.stack([torch.randn(rows), torch.randint(0, RECBOLE[name][2], (rows,)).float()], 1)
    batch["genres"] = torch.randint(1, 50, (rows, 6)) * (torch.arange(6) < torch.randint(0, 7, (rows, 1)))
    axes = dict.fromkeys(batch, "row") | {"genres": "row/genres[]"}

    def made(name, kind="context_aware"):
        config = defaultdict(lambda: None, common | own[name])
        module = import_module(f"recbole.model.{kind}_recommender.{name.removesuffix('Mix').lower()}")
        return getattr(module, name.removesuffix("Mix"))(config, DataSet(RECBOLE, config))
    found = {name: (lambda name=name: made(name), batch, axes) for name in own}
    own["DIN"] = {"USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "LIST_SUFFIX": "_list", "NEG_PREFIX": "neg_",
                  "MAX_ITEM_LIST_LENGTH": 20, "pooling_mode": "mean"}
    history = torch.randint(1, 2000, (rows, 20)) * (torch.arange(20) < torch.randint(0, 21, (rows, 1)))
    seen = {"user": batch["user_id"], "item_seq": history, "item_seq_len": (history > 0).sum(1),
            "next_items": batch["item_id"]}
    seen_axes = {"user": "row", "item_seq": "row/seen[]", "item_seq_len": "row/seen[]", "next_items": "row"}
    own["GRU4Rec"] = own["DIN"] | {"hidden_size": 32, "num_layers": 2, "loss_type": "CE"}
    history = history.clone()
    history[:, 0] = torch.randint(1, 2000, (rows,))  # GRU4Rec fails where there is no event
    states = {"item_seq": history, "item_seq_len": (history > 0).sum(1)}
    return found | {"DIN": (lambda: made("DIN", "sequential"), seen, seen_axes),
                    "GRU4Rec": (lambda: made("GRU4Rec", "sequential"), states, dict.fromkeys(states, "row/seen[]"))}


# Of the zoos the versions that the record has; without what they ask for in turn but what their models read. A zoo
# without packages is a checkout.
ZOOS = {
    "torchfm": (torchfm, ["torchfm==0.7.0", "tqdm"]),
    "deepctr-torch": (deepctr_torch, ["deepctr-torch==0.3.0", "tqdm", "scikit-learn", "scipy", "joblib", "cloudpickle",
                                      "threadpoolctl", "narwhals", "requests", "idna", "urllib3", "certifi",
                                      "charset-normalizer"]),
    "torch-rechub": (torch_rechub, ["torch-rechub==0.9.0", "pandas", "python-dateutil", "six", "tqdm", "scikit-learn",
                                    "scipy", "joblib", "cloudpickle", "threadpoolctl", "narwhals"]),
    "recbole": (recbole, ["recbole==1.2.1", "colorlog", "colorama", "texttable", "tensorboard", "protobuf", "absl-py",
                          "packaging", "pandas", "python-dateutil", "six"]),
    "fuxictr": (fuxictr, ["fuxictr==2.3.9", "pandas", "python-dateutil", "six", "scikit-learn", "scipy", "joblib",
                          "threadpoolctl", "narwhals", "h5py", "pyyaml", "tqdm", "polars", "polars-runtime-32",
                          "Keras-Preprocessing"]),
    "FuxiCTR": (fuxictr_repository, [])}
