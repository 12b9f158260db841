// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs of several sizes and their device memory, most of which they take in turns.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/memory_needs.cuh"
#include "warprank/engine/cuda/prepared_run.cuh"
#include "warprank/engine/engine.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Waits for what is queued because of an error, which is the one to tell.
inline void settle(device::Stream stream) {
  try {
    device::synchronize(stream);
  } catch (const std::exception&) {  // NOLINT
  }
}

class RunSet {
 public:
  RunSet() = default;
  /// For `who`, on the current device; returns when everything is there. Counters and copied weights are those of
  /// `other`, or where that is null of the set. Throws out_of_device_memory, with what each part needs, before anything
  /// is allocated.
  RunSet(const RunSource& from, const std::vector<RunSize>& sizes, const RunSet* other, const std::string& who,
         int device_index, device::Stream stream) {
    Needs needs;
    std::vector<StepMemory::Sizes> of_steps;
    for (const RunSize& size : sizes) {
      needs.include(from, size);
      of_steps.push_back(PreparedRun(from, nowhere(), size, StepMemory()).memory().sizes());
    }
    const int64_t counter_bytes =
        other != nullptr ? 0 : static_cast<int64_t>(from.graph.nodes.size() * sizeof(LookupCounters));
    const int64_t weight_bytes = other != nullptr ? 0 : from.copied_weights.bytes();
    check(needs, counter_bytes, weight_bytes, of_steps, who, device_index);

    input_ = device::DeviceMemory(needs.index_at() + needs.index_bytes, who + "'s input");
    arena_ = device::DeviceMemory(needs.arena_bytes, who + "'s arena");
    outputs_ = device::DeviceMemory(needs.output_bytes, who + "'s outputs");
    counters_ = device::DeviceMemory(counter_bytes, who + "'s counters");
    copied_weights_ = device::DeviceMemory(weight_bytes, who + "'s copy of weights");
    ticket_ = device::DeviceMemory(sizeof(uint32_t), who + "'s ticket");
    in_turns_ = device::DeviceMemory(most_in_turns(of_steps), who + "'s workspace");
    auto* const in_turns = static_cast<unsigned char*>(in_turns_.data());
    shared_ = {static_cast<unsigned char*>(input_.data()) + needs.index_at(),
               static_cast<unsigned char*>(arena_.data()),
               static_cast<float*>(outputs_.data()),
               static_cast<unsigned char*>(copied_weights_.data()),
               static_cast<LookupCounters*>(counters_.data()),
               static_cast<uint32_t*>(ticket_.data())};
    if (other != nullptr) {
      shared_.copied_weights = other->shared_.copied_weights;
      shared_.counters = other->shared_.counters;
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      steps_.emplace_back(of_steps[i].bytes(), who + "'s steps");
      StepMemory memory(static_cast<unsigned char*>(steps_[i].data()), of_steps[i], in_turns);
      runs_.push_back(std::make_unique<PreparedRun>(from, shared_, sizes[i], std::move(memory)));
    }
    try {
      if (counter_bytes > 0) device::fill(counters_.data(), 0, counter_bytes, stream);
      copy_weights(from, stream);
      device::fill(ticket_.data(), 0, ticket_.bytes(), stream);
      for (const auto& run : runs_) {
        run->memory().write(stream);
        if (!run->reads_unused_rows()) continue;
        device::fill(arena_.data(), 0, needs.arena_bytes, stream);
        device::fill(outputs_.data(), 0, needs.output_bytes, stream);
      }
      device::synchronize(stream);
    } catch (...) {
      settle(stream);  // copies still read what the runs have
      throw;
    }
  }

  /// The runs of another model, in the same memory, where graphs of these can take them. Changes nothing.
  std::vector<PreparedRun> prepare_again(const RunSource& from) const {
    std::vector<PreparedRun> again;
    for (const auto& run : runs_) {
      const StepMemory& memory = run->memory();
      again.emplace_back(from, shared_, run->size(),
                         StepMemory(memory.begin(), memory.sizes(), memory.begin_in_turns()));
      run->expect_same_launches(again.back());
    }
    return again;
  }

  /// Queues that the copy of weights, where the set has one, becomes that of a model with as many.
  void copy_weights(const RunSource& from, device::Stream stream) const {
    const int64_t bytes = copied_weights_.bytes();
    if (bytes > 0) device::copy_on_device(copied_weights_.data(), from.copied_weights.data(), bytes, stream);
  }
  /// Writes again what is in memory while a `prepare_again` has not become the runs, which are those of `from`.
  void restore(const RunSource& from, device::Stream stream) const noexcept {
    try {
      copy_weights(from, stream);
      for (const auto& run : runs_) run->write_again(stream);
    } catch (const std::exception&) {  // NOLINT: as in settle
    }
    settle(stream);
  }
  /// Takes what prepare_again has made, once its descriptors are in memory.
  void become(std::vector<PreparedRun> again) noexcept {
    for (size_t i = 0; i < again.size(); ++i) runs_[i]->become(std::move(again[i]));
  }

  const std::vector<std::unique_ptr<PreparedRun>>& runs() const { return runs_; }
  const SharedMemory& shared() const { return shared_; }
  const device::DeviceMemory& counters() const { return counters_; }

  /// By part.
  MemoryReport memory() const {
    int64_t step_bytes = 0;
    for (const device::DeviceMemory& steps : steps_) step_bytes += steps.bytes();
    return {{"input", input_.bytes()},
            {"arena", arena_.bytes()},
            {"outputs", outputs_.bytes()},
            {"counters", counters_.bytes()},
            {"ticket", ticket_.bytes()},
            {"copied weights", copied_weights_.bytes()},
            {"workspace of steps in turn", in_turns_.bytes()},
            {"steps of all capacities", step_bytes}};
  }
  int64_t device_bytes() const {
    int64_t bytes = 0;
    for (const auto& part : memory()) bytes += part.second;
    return bytes;
  }

 private:
  /// The largest of what each size needs; where nothing has rows there are addresses, too.
  struct Needs {
    int64_t blob_bytes = 0, index_bytes = 0, arena_bytes = 1, output_bytes = 4;

    int64_t index_at() const { return round_up(blob_bytes, StepMemory::alignment); }
    void include(const RunSource& from, const RunSize& size) {
      blob_bytes = std::max(blob_bytes, size.blob_bytes);
      index_bytes = std::max(index_bytes, PreparedRun::index_of(size).bytes());
      arena_bytes = std::max(arena_bytes, ArenaLayout(from.values, from.storage, size.rows).bytes);
      output_bytes = std::max(output_bytes, 4 * OutputsLayout(from.values, size.rows).floats);
    }
  };

  static int64_t most_in_turns(const std::vector<StepMemory::Sizes>& of_steps) {
    int64_t most = 0;
    for (const StepMemory::Sizes& sizes : of_steps) most = std::max(most, sizes.in_turns);
    return most;
  }

  static void check(const Needs& needs, int64_t counter_bytes, int64_t weight_bytes,
                    const std::vector<StepMemory::Sizes>& of_steps, const std::string& who, int device_index) {
    MemoryNeeds all;
    all.add("input", needs.index_at() + needs.index_bytes);
    all.add("arena", needs.arena_bytes);
    all.add("outputs", needs.output_bytes);
    all.add("counters", counter_bytes);
    all.add("ticket", sizeof(uint32_t));
    if (weight_bytes > 0) all.add("copied weights", weight_bytes);
    int64_t descriptors = 0, workspaces = 0;
    for (const StepMemory::Sizes& sizes : of_steps) {
      descriptors += sizes.copied;
      workspaces += sizes.zeroed + sizes.unwritten;
    }
    workspaces += most_in_turns(of_steps);
    all.add("descriptors", descriptors);
    all.add("workspaces", workspaces);
    all.check(who, device_index);
  }

  /// For runs that are prepared only to know what their steps need.
  static SharedMemory nowhere() {
    return {StepMemory::nowhere(3),
            StepMemory::nowhere(4),
            reinterpret_cast<float*>(StepMemory::nowhere(5)),
            StepMemory::nowhere(7),
            reinterpret_cast<LookupCounters*>(StepMemory::nowhere(6)),
            nullptr};
  }

  device::DeviceMemory input_, arena_, outputs_, counters_, ticket_, copied_weights_, in_turns_;
  std::vector<device::DeviceMemory> steps_;  // by run
  SharedMemory shared_;
  std::vector<std::unique_ptr<PreparedRun>> runs_;
};

}}}  // namespace warprank::v0::cuda_backend
