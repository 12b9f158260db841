// SPDX-License-Identifier: Apache-2.0

// The GRUs of DIEN, all steps in one launch, against a product of cuBLASLt for each step alone: what a step makes of
// the products, and the attention, are not in the baseline.

#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"
#include "reference/recurrent.hpp"
#include "warprank/ops/recurrent.cuh"

namespace warprank::bench {
namespace {

std::vector<int64_t> offsets_of(int64_t count, int64_t size) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i <= count; ++i) offsets.push_back(i * size);
  return offsets;
}

/// A GRU over the histories of some users, or an AUGRU over the history of one for `rows` items.
void recurrent(Run& run, RecurrentCell cell, int64_t rows, int64_t num_events, int64_t hidden) {
  const bool attends = cell != RecurrentCell::gru;
  const int64_t users = attends ? 1 : rows, events = users * num_events;
  const DenseLayer products(hidden, 3 * hidden, false, 1);
  reference::Recurrent layer{cell, hidden, 0.25, products.weight, products.bias};
  for (float& weight : layer.weight) weight /= 4;  // errors do not grow from event to event
  const std::vector<float16> gates = random_halves(events * 3 * hidden, 3), queries = random_halves(rows * hidden, 4),
                             keys = random_halves(events * hidden, 5);
  const std::vector<int64_t> event_offsets = offsets_of(users, num_events), row_offsets = {0, rows};
  RecurrentInputs in{
      {run.upload(gates), events, 3 * hidden}, run.upload(event_offsets), {users, nullptr}, {}, {}, nullptr};
  if (attends) {
    in.q = {run.upload(queries), rows, hidden};
    in.k = {run.upload(keys), events, hidden};
    in.row_offsets = run.upload(row_offsets);
  }
  const int64_t results = attends ? rows : events;
  const Matrix<float16> y(run.allocate<float16>(results * hidden), results, hidden),
      state(run.allocate<float16>(rows * hidden), rows, hidden),
      product(run.allocate<float16>(rows * 3 * hidden), rows, 3 * hidden);
  const auto packed = pack_recurrent({hidden}, layer.weight, layer.bias);
  const Recurrent<float16> op(
      {cell, {hidden}, run.upload(packed.data(), packed.size()), static_cast<float>(layer.scale)}, in, y);

  const auto check = [&] {
    const std::vector<float> g = to_floats(gates), q = to_floats(queries), k = to_floats(keys);
    const int64_t one_user[] = {0, num_events}, one_row[] = {0, 1};
    expect_within<float16>(
        "recurrent",
        reference::recurrent(layer, {g.data(), num_events, 3 * hidden}, {one_user, 1}, {q.data(), 1, hidden},
                             {k.data(), num_events, hidden}, {one_row, 1}, true),
        to_floats(run.read(y.data, (attends ? 1 : num_events) * hidden)), 2);
  };
  std::vector<Queue> steps;
  for (int64_t t = 0; t < num_events; ++t) steps.push_back(queue_product(run, products, state, product));
  const double bytes = 2.0 * static_cast<double>(events * 3 * hidden + results * hidden) + products.weight_bytes();
  const double flops = products.flops(rows * num_events);
  run.measure({bytes, flops}, {queue_launch(run, op), check}, {{product_maker, {in_sequence(steps), [] {}}}});
}

}  // namespace

void add_benchmarks() {
  struct Case {
    RecurrentCell cell;
    int64_t rows, events, hidden;
  };
  for (const Case given : on_gpu ? std::vector<Case>{{RecurrentCell::gru, 1, 100, 36},
                                                     {RecurrentCell::gru, 64, 100, 36},
                                                     {RecurrentCell::augru, 100, 100, 36},
                                                     {RecurrentCell::augru, 100, 100, 64},
                                                     {RecurrentCell::augru, 100, 100, 128},
                                                     {RecurrentCell::augru, 500, 100, 36}}
                                 : std::vector<Case>{{RecurrentCell::gru, 2, 3, 36}, {RecurrentCell::augru, 3, 4, 36}})
    add(std::string("recurrent/") + name_of_enum(given.cell) + "/rows:" + std::to_string(given.rows) +
            "/events:" + std::to_string(given.events) + "/hidden:" + std::to_string(given.hidden),
        [given](Run& run) { recurrent(run, given.cell, given.rows, given.events, given.hidden); });
}

}  // namespace warprank::bench
