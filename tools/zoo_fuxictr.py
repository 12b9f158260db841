# SPDX-License-Identifier: Apache-2.0
"""Small configurations of FuxiCTR's models for tools/zoo.py: those of its package, and those that only its repository
has."""

import sys
import tempfile
from importlib import import_module

import torch

DIM, LENGTH = 16, 20
# By feature its source, its type and how many ids it has.
FEATURES = {"user_id": ("user", "categorical", 1000), "age": ("user", "categorical", 20),
            "item_id": ("item", "categorical", 2000), "cate_id": ("item", "categorical", 50),
            "hour": ("context", "categorical", 25)}
PRICE = {"price": ("item", "numeric", None)}
TAGS = {"tags": ("item", "sequence", 50)}  # a history that models pool
SEEN = {"click_history": ("user", "sequence", 2000), "cate_history": ("user", "sequence", 50)}
COMMON = {"embedding_dim": DIM, "optimizer": "adam", "loss": "binary_crossentropy", "metrics": ["AUC"], "verbose": 0,
          "model_root": tempfile.gettempdir()}


def feature_map(features, pooled):
    from fuxictr.features import FeatureMap
    made = FeatureMap("zoo", tempfile.gettempdir())
    made.labels = ["click", "like"]
    for name, (source, kind, count) in features.items():
        made.features[name] = {"source": source, "type": kind}
        if count is not None:
            made.features[name] |= {"vocab_size": count, "padding_idx": 0}
        if kind == "sequence":
            made.features[name]["max_len"] = LENGTH
        if name in pooled:
            made.features[name]["feature_encoder"] = "layers.MaskedAveragePooling()"
    made.num_fields, made.total_features, made.default_emb_dim = made.get_num_fields(), 0, DIM
    made.set_column_index()
    return made


def batch_of(rows, features):
    """Histories of no to LENGTH events, with padding behind them; those of the same events have as many."""
    found, kept = {}, torch.arange(LENGTH) < torch.randint(0, LENGTH + 1, (rows, 1))
    for name, (_, kind, count) in features.items():
        if kind == "numeric":
            found[name] = torch.randn(rows, 1)
        elif kind == "sequence":
            found[name] = torch.randint(1, count, (rows, LENGTH)) * kept
        else:
            found[name] = torch.randint(1, count, (rows,))
    return found


def class_of(path):
    """Of "DCN/DCN_torch/src/DCN", or "GDCN/src/GDCN:GDCNP"."""
    path, _, name = path.partition(":")
    module = import_module("model_zoo." + path.replace("/", "."))
    return getattr(module, name or path.rpartition("/")[2])


class Request(torch.nn.Module):
    """A model of LongCTR, of a history and a candidate behind it, of which its data loader makes such a batch."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, user, seen, item):
        items = torch.cat([seen, item[:, None]], 1).flatten()
        return self.model([{"user_id": user}, {"item_id": items}, (seen > 0).float()])["y_pred"]


class Scores(torch.nn.Module):
    """The scores alone of a model that also gives what its losses read."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **batch):
        return self.model(batch)["y_pred"]


def fuxictr(rows):
    """Models of the package: LongCTR's."""
    features = {name: FEATURES[name] for name in ("user_id", "item_id")}
    batch = dict(zip(("user", "item", "seen"), batch_of(rows, features | {"seen": SEEN["click_history"]}).values()))
    axes = {"user": "row", "item": "row", "seen": "row/seen[]"}
    short = {"short_seq_len": 5, "topk": 5}
    own = {"DIN": {}, "DCNv2": {"parallel_dnn_hidden_units": [64, 32]}, "DIEN": {}, "DIEN_GRU": {"gru_type": "GRU"},
           "FinalMLP": {}, "ETA": short, "MIRRN": short | {"max_len": LENGTH}, "TransAct": {"dim_feedforward": 64},
           "SIM": short, "SDIM": {"short_seq_len": 5}, "TWIN": short}

    def made(name):
        items = feature_map(features, ())
        path = name.removesuffix("_GRU")
        return Request(class_of(f"LongCTR/{path}/{path}")(items, **COMMON, **own[name]))
    return {name: (lambda name=name: made(name), batch, axes) for name in own}


def fuxictr_repository(rows):
    """Models of the repository: most of fields alone, one a list of tags; some with a history."""
    if "model_zoo.LongCTR" in sys.modules:  # the package's, which has no others
        for name in [n for n in sys.modules if n.partition(".")[0] in ("fuxictr", "model_zoo")]:
            del sys.modules[name]
    layers = {"hidden_units": [64, 32]}
    deep = {"dnn_hidden_units": [64, 32]}
    tasks = {"task": ["binary_classification"] * 2, "num_tasks": 2}
    experts = {"expert_hidden_units": [64], "gate_hidden_units": [16], "tower_hidden_units": [32]}
    of_fields = {
        "AFM": {}, "AFN": {"dnn_hidden_units": [64, 32], "afn_hidden_units": [64, 32]}, "AOANet": deep,
        "APG_DeepFM": layers | {"rank_k": 8, "overparam_p": 32}, "APG_DCNv2": {"rank_k": 8, "overparam_p": 32,
                                                                             "parallel_dnn_hidden_units": [64, 32]},
        "AutoInt": deep, "CCPM": {"kernel_heights": [3, 3, 2]}, "DCN": deep,
        "DCNv2": {"parallel_dnn_hidden_units": [64, 32]}, "DESTINE": deep, "DNN": layers, "DSSM": {},
        "DeepCrossing": {}, "DeepFM": layers, "DeepIM": layers, "EDCN": {}, "EulerNet": {}, "FFM": {}, "FFMv2": {},
        "FGCNN": deep | {"channels": [6, 8], "kernel_heights": [3, 3], "pooling_sizes": [2, 2],
                         "recombined_channels": [2, 2]},
        "FLEN": deep, "FM": {}, "FiBiNET": layers, "FiGNN": {}, "DualMLP": {}, "FinalMLP": {}, "FinalNet": {},
        "FmFM": {}, "FwFM": {}, "GDCN": deep, "GDCNP": deep, "HFM": {}, "HOFM": {}, "InterHAt": {}, "LR": {},
        "LorentzFM": {}, "MaskNet": deep, "NFM": layers, "ONN": layers, "ONNv2": layers,
        "PPNet": layers | {"gate_priors": ["user_id"], "gate_hidden_dim": 16}, "PNN": layers, "QNN": {},
        "QNN_alpha": {}, "SAM": {}, "WideDeep": layers, "WuKong": {"lcb_features": 8, "fmb_features": 8},
        "xDeepFM": deep, "MMoE": tasks | experts, "PLE": tasks | experts, "ShareBottom": tasks}
    of_histories = {"BST": deep, "DIEN": {"dien_neg_seq_field": []}, "DIN": deep,
                    "DMIN": deep | {"neg_seq_field": None}, "DMR": deep | {"context_field": "age"},
                    "TransAct": {"dcn_hidden_units": [64, 32], "dim_feedforward": 64}}
    places = {"APG_DeepFM": "APG", "APG_DCNv2": "APG", "DCN": "DCN/DCN_torch", "DNN": "DNN/DNN_torch",
              "DeepFM": "DeepFM/DeepFM_torch", "ONN": "ONN/ONN_torch", "ONNv2": "ONN/ONN_torch", "PPNet": "PEPNet",
              "WideDeep": "WideDeep/WideDeep_torch", "FFMv2": "FFM", "DualMLP": "FinalMLP", "QNN_alpha": "QNN",
              "MMoE": "multitask/MMoE", "PLE": "multitask/PLE"}
    files = {"GDCNP": "GDCN/src/GDCN:GDCNP", "ShareBottom": "multitask/ShareBottom/src/ShareBottom"}

    def made(name, features, pooled, options):
        path = files.get(name, f"{places.get(name, name)}/src/{name}")
        model = class_of(path)(feature_map(features, pooled), **COMMON | options)
        return Scores(model) if name in ("DIEN", "DMIN") else model

    def of(own, features, pooled, axes):
        batch = batch_of(rows, features)
        every = dict.fromkeys(batch, "row") | axes
        return {name: (lambda name=name: made(name, features, pooled, own[name]), batch, every) for name in own}
    found = of(of_fields, FEATURES | TAGS, TAGS, {"tags": "row/tags[]"})
    # Of numbers, which most models only take as one more field.
    found |= of({"DLRM": {}}, FEATURES | PRICE, (), {})
    return found | of(of_histories, FEATURES | SEEN, (), dict.fromkeys(SEEN, "row/seen[]"))
