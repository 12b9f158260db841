// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pages about users of a reference model, for its plan and for the two that this is divided into.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference_models.hpp"
#include "support/divided.hpp"
#include "support/random_data.hpp"
#include "warprank/engine/divided_batch.hpp"
#include "warprank/engine/servable.hpp"

namespace warprank::bench {

class Pages {
 public:
  static constexpr int64_t table_rows = 1000;

  Pages(const ModelFunction& model, const BatchShape& shape, const Device& device, StateType type)
      : source_(build(model)),
        plan_(compiled(source_, shape)),
        tables_(Tables::load(plan_, test_support::random_tables(plan_, table_rows, 2), device)),
        requests_(std::make_shared<const DividedRequests>(divide(plan_, "item", type))),
        model_(Model::bind(plan_, weights(), tables_)),
        context_(model_.context()),
        both_(Servable::bind(requests_, weights(), tables_), {}),
        batch_(model_.batch()),
        divided_(requests_, model_.backend()->batch_allocator()) {
    for (const test_support::PlainRequest& request : random_requests(source_, shape, table_rows, 3)) {
      whole_.push_back(packed(plan_.layout(), request));
      later_.push_back(packed(requests_->plan().later_requests, request));
    }
    score_first();
    for (int64_t r = 0; r < divided_.size(); ++r) states_.push_back(divided_.states(r));
  }

  /// Each page as a whole request.
  Scores score_whole() {
    batch_.clear();
    for (const Batch& whole : whole_) batch_.add_blob(whole.blobs());
    return context_.run(batch_);
  }
  /// First pages, of users who are not known.
  Scores score_first() { return score(whole_, {}, nullptr); }
  /// Later pages, by the states of the first; where `kept` is not null, a device keeps them.
  Scores score_later(DeviceStates* kept = nullptr) { return score(later_, states_, kept); }

  int64_t whole_bytes() const { return bytes_of(whole_); }
  int64_t later_bytes() const { return bytes_of(later_); }
  int64_t state_bytes() const {
    int64_t bytes = 0;
    for (const DividedBatch::States& states : states_) bytes += static_cast<int64_t>(states->blob.size());
    return bytes;
  }

 private:
  static Plan compiled(const Graph& source, const BatchShape& shape) {
    CompileOptions options;
    options.capacities = {shape.capacity(source)};
    return compile(source, options);
  }
  Weights weights() const { return test_support::random_weights(plan_, 1); }
  static Batch packed(const BatchLayout& layout, const test_support::PlainRequest& request) {
    Batch batch(layout);
    add_to(batch, test_support::part_of(request, layout));
    batch.close();
    return batch;
  }
  static int64_t bytes_of(const std::vector<Batch>& batches) {
    int64_t bytes = 0;
    for (const Batch& batch : batches) bytes += batch.blobs().size();
    return bytes;
  }
  Scores score(const std::vector<Batch>& pages, const std::vector<DividedBatch::States>& states, DeviceStates* kept) {
    divided_.clear();
    for (size_t r = 0; r < pages.size(); ++r)
      divided_.add(pages[r].blob(0), states.empty() ? DividedBatch::States() : states[r]);
    return divided_.run(both_.users(), both_.context(), kept);
  }

  const Graph source_;
  const Plan plan_;
  const Tables tables_;
  const std::shared_ptr<const DividedRequests> requests_;
  const Model model_;
  Context context_;
  ServableContext both_;
  std::vector<Batch> whole_, later_;
  std::vector<DividedBatch::States> states_;
  Batch batch_;
  DividedBatch divided_;
};

}  // namespace warprank::bench
