// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Values and scores in a card's memory, which other libraries share by DLPack.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "arrays.hpp"
#include "warprank/engine/model.hpp"

namespace warprank::python {

class Columns;
struct Worker;

/// A card's memory for the blobs of batches.
class DeviceBlobs {
 public:
  /// Memory of the current card for so many bytes; what was there before is lost when it grows.
  void* reserve(int64_t bytes);

 private:
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
};

using DeviceFloats = nb::ndarray<nb::array_api, float, nb::device::cuda>;

/// Begins to score a worker's batch, which has the requests of `columns` from `begin` on, in CUDA's default stream.
/// Throws invalid_argument if the values are not on the model's card.
Pending submit_with_device_values(const Columns& columns, int64_t begin, Worker& worker);

/// The outputs of a batch that is on its way in CUDA's default stream, each [rows, width] in memory of its own, once
/// they are there. Needs the interpreter's lock. Throws invalid_argument on the host.
std::map<std::string, DeviceFloats> scores_on_device(Pending pending, const Worker& worker);

}  // namespace warprank::python
