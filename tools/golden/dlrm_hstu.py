#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/dlrm_hstu.safetensors: what generative-recommenders' DlrmHSTU, its plain PyTorch functions, makes
of requests (github.com/meta-recsys/generative-recommenders, commit db1bf8f).

    tools/golden/dlrm_hstu.py CHECKOUT

TorchRec and fbgemm need not be there: embeddings are given, and the three functions of fbgemm that are called are
below.
"""

import sys
import unittest.mock

import numpy as np
import torch

from golden import Case, Request, f64

DIM, ITEM_DIM, HEADS, HEAD_DIM, LAYERS, HIDDEN, TOP = 8, 6, 2, 3, 2, 5, 512
PLACES, AGES = 12, 24
OLDEST = DIM - 1  # the public code takes the columns of the table of ages for its rows
MAX_EVENTS, MAX_CANDIDATES = 11, 4
ACTIONS, TASKS = 5, 2


def define_fbgemm():
    library = torch.library.Library("fbgemm", "DEF")

    def implement(signature):
        library.define(signature)
        return lambda function: library.impl(signature.split("(")[0], function, "CPU")

    @implement("asynchronous_complete_cumsum(Tensor x) -> Tensor")
    def cumsum(x):
        return torch.cat([torch.zeros(1, dtype=x.dtype), torch.cumsum(x, 0)])

    @implement("jagged_to_padded_dense(Tensor values, Tensor[] offsets, int[] max_lengths, float padding_value=0.0)"
               " -> Tensor")
    def to_padded(values, offsets, max_lengths, padding_value=0.0):
        sizes = torch.diff(offsets[0]).tolist()
        padded = values.new_full((len(sizes), max_lengths[0], *values.shape[1:]), padding_value)
        for row, part in zip(padded, values.split(sizes)):
            row[:len(part)] = part[:len(row)]
        return padded

    @implement("dense_to_jagged(Tensor dense, Tensor[] offsets, int? total_L=None) -> (Tensor, Tensor[])")
    def to_jagged(dense, offsets, total_L=None):
        return torch.cat([row[:n] for row, n in zip(dense, torch.diff(offsets[0]).tolist())]), offsets

    return library


def public_model(checkout):
    """The public model with small tables of positions, and weights that are about as large as learned ones."""
    for name in ("", ".modules", ".modules.sorted_index_select", ".modules.embedding_configs",
                 ".modules.embedding_modules"):
        sys.modules["torchrec" + name] = unittest.mock.MagicMock()
    sys.modules["torchrec.modules.sorted_index_select"].maybe_sorted_index_select = \
        lambda values, index, use_sorted: values.index_select(0, index)
    sys.path.insert(0, checkout)
    from generative_recommenders.common import HammerKernel
    from generative_recommenders.modules import dlrm_hstu
    from generative_recommenders.modules.multitask_module import MultitaskTaskType, TaskConfig
    from generative_recommenders.modules.positional_encoder import HSTUPositionalEncoder

    config = dlrm_hstu.DlrmHSTUConfig(
        max_seq_len=MAX_EVENTS + MAX_CANDIDATES + 1, hstu_num_heads=HEADS, hstu_attn_linear_dim=HEAD_DIM,
        hstu_attn_qk_dim=HEAD_DIM, hstu_attn_num_layers=LAYERS, hstu_embedding_table_dim=ITEM_DIM,
        hstu_preprocessor_hidden_dim=HIDDEN, hstu_transducer_embedding_dim=DIM,
        contextual_feature_to_max_length={"user": 1}, uih_post_id_feature_name="item",
        uih_action_time_feature_name="time", uih_weight_feature_name="actions",
        candidates_querytime_feature_name="query_time", item_embedding_feature_names=["item"],
        action_weights=[2**i for i in range(ACTIONS)], use_layer_norm_postprocessor=True,
        multitask_configs=[TaskConfig(f"task{i}", 1, MultitaskTaskType.BINARY_CLASSIFICATION) for i in range(TASKS)])
    model = dlrm_hstu.DlrmHSTU(config, {}, is_inference=True, is_dense=True, bf16_training=False)
    model._hstu_transducer._positional_encoder = HSTUPositionalEncoder(PLACES, AGES - 1, DIM, 1)
    model.set_hammer_kernel(HammerKernel.PYTORCH)
    random = np.random.default_rng(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = max(parameter.shape[-1], 1)**-0.5 if parameter.dim() > 1 else 0.2
            values = random.normal(size=parameter.shape) * scale
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(torch.as_tensor(values + (1 if is_norm else 0), dtype=torch.float32))
    return model.double().eval(), dlrm_hstu.SequenceEmbedding


def stored_weights(case, model):
    """The public weights under the names of examples/models/dlrm_hstu.hpp."""
    def put(name, values):
        case.weights[name] = values.detach().numpy().astype(np.float32)

    def network(name, layers):
        put(name + ".0.weight", layers[0].weight), put(name + ".0.bias", layers[0].bias)
        put(name + ".norm.weight", layers[1].weight), put(name + ".norm.bias", layers[1].bias)
        put(name + ".1.weight", layers[2].weight), put(name + ".1.bias", layers[2].bias)
        if len(layers) > 3:
            put(name + ".out_norm.weight", layers[3].weight), put(name + ".out_norm.bias", layers[3].bias)

    transducer = model._hstu_transducer
    preprocessor = transducer._input_preprocessor
    network("content", preprocessor._content_embedding_mlp)
    network("action", preprocessor._action_embedding_mlp)
    network("item", model._item_embedding_mlp)
    network("tasks", model._multitask_module._prediction_module)
    put("person.weight", preprocessor._batched_contextual_linear_weights[0].T)
    put("person.bias", preprocessor._batched_contextual_linear_bias[0])
    put("norm.weight", transducer._output_postprocessor._layer_norm.weight)
    put("norm.bias", transducer._output_postprocessor._layer_norm.bias)
    encoder = preprocessor._action_encoder
    put("action.embedding.weight", torch.block_diag(*encoder._action_embedding_table[:, :, None]))
    positions = transducer._positional_encoder
    case.tables["place"] = positions._position_embeddings_weight.detach().float()
    case.tables["age"] = positions._timestamp_embeddings_weight.detach().float()
    case.tables["to_do"] = preprocessor._action_embedding_mlp(encoder._target_action_embedding_table).detach().float()
    for i, layer in enumerate(transducer._stu_module._stu_layers):
        parts, inner = ("u", "v", "q", "k"), HEADS * HEAD_DIM
        for part, weight, bias in zip(parts, layer._uvqk_weight.split(inner, 1), layer._uvqk_beta.split(inner)):
            put(f"layer{i}.{part}.weight", weight.T), put(f"layer{i}.{part}.bias", bias)
        put(f"layer{i}.norm.weight", layer._input_norm_weight), put(f"layer{i}.norm.bias", layer._input_norm_bias)
        put(f"layer{i}.attention_norm.weight", layer._output_norm_weight)
        put(f"layer{i}.attention_norm.bias", layer._output_norm_bias)
        put(f"layer{i}.out.weight", layer._output_weight.T)


def main(checkout):
    library = define_fbgemm()
    model, SequenceEmbedding = public_model(checkout)
    case = Case("dlrm_hstu")
    items = case.table("item", 6, ITEM_DIM)
    people = case.table("person", 2, ITEM_DIM)
    stored_weights(case, model)
    times = {}
    for events, candidates in ((11, 4), (1, 2), (6, 1)):
        request, draw = Request(), case.random.integers
        request.lengths.update(context=[1], event=[events], candidate=[candidates])
        request.ids["event_item"], request.ids["candidate_item"] = draw(0, 6, events), draw(0, 6, candidates)
        request.ids["context_user"] = draw(0, 2, 1)
        request.values["event_actions"] = draw(0, 2, (events, ACTIONS)).astype(np.float32)
        seconds = 10_000 + np.sort(draw(0, 9_000, events + 1)).astype(np.float64)
        times[id(request)] = seconds
        # Places are counted from the end, candidates' and the first event's from behind the context; ages are roots of
        # minutes. The context is as old as can be.
        request.ids["event_place"] = np.minimum(events - np.arange(events) + 1, PLACES - 1)
        request.ids["candidate_place"], request.ids["context_place"] = np.full(candidates, 1), [0]
        request.ids["event_age"] = np.minimum(np.sqrt((seconds[-1] - seconds[:-1]) / 60).astype(np.int64), OLDEST)
        request.ids["candidate_age"] = np.zeros(candidates, np.int64)
        request.ids["context_age"] = [min(int((seconds[-1] / 60)**0.5), OLDEST)]
        case.add(request)

    def scores(request):
        seconds, (events,), (candidates,) = times[id(request)], request.lengths["event"], request.lengths["candidate"]
        shown = items[torch.as_tensor(request.ids["candidate_item"])]
        seen = items[torch.as_tensor(request.ids["event_item"])]
        bits = torch.as_tensor(request.values["event_actions"]).long() @ (2**torch.arange(ACTIONS))
        candidate_lengths = torch.tensor([candidates])
        user = model._user_forward(
            MAX_EVENTS, MAX_CANDIDATES,
            {"item": SequenceEmbedding(torch.tensor([events + candidates]), torch.cat([seen, shown])),
             "user": SequenceEmbedding(torch.tensor([1]), people[torch.as_tensor(request.ids["context_user"])])},
            {"uih_offsets": torch.tensor([0, events]), "candidate_offsets": torch.tensor([0, candidates]),
             "time": f64(seconds[:-1]), "query_time": f64(np.full(candidates, seconds[-1])), "actions": bits},
            candidate_lengths)
        item = model._item_forward({"item": SequenceEmbedding(candidate_lengths, shown)})
        return {"tasks": model._multitask_module(user, item, {}, {})[0].T}

    with torch.no_grad():
        case.save(scores)
    del library


if __name__ == "__main__":
    main(*sys.argv[1:])
