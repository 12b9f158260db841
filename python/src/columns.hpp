// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Many requests as columns: of each input the values of all requests one behind the other, and of each axis but the
/// outermost where the rows of each of its parent's rows begin.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/engine/device_batch.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank::python {

/// Keeps the arrays; reads them in place.
class Columns {
 public:
  /// Throws invalid_argument with everything that does not fit the plan or one another. What is not given has its
  /// default in every row, and an axis without offsets has no rows. `on_device`: inputs whose values are in a card's
  /// memory, [rows] or [rows, width], of the type that the plan's requests have.
  Columns(const Plan& plan, int64_t num_requests, const std::map<std::string, Integers>& offsets,
          const std::map<std::string, Integers>& ids, const std::map<std::string, Floats>& dense,
          const std::map<std::string, DeviceArray>& on_device);

  /// The same of a dictionary whose values lie as they are read: by input an array of a row for each request, or of an
  /// axis below the outermost an instance of `ragged`. None where one is otherwise, so that there may be more to say.
  static std::optional<Columns> as_read(const Plan& plan, const nb::dict& data, nb::handle ragged);

  int64_t num_requests() const { return num_requests_; }
  /// Rows of all axes together in the requests [0, r).
  int64_t rows_before(int64_t r) const;
  /// Memory of whoever packs.
  struct Workspace {
    std::vector<int64_t> ids;
    std::vector<float> dense;
  };
  /// Packs the requests [begin, end). Values that are in a card's memory are zeros.
  void pack(int64_t begin, int64_t end, Batch& batch, Workspace& workspace) const;

  bool has_device_values() const { return !on_device_.empty(); }
  /// Calls copy(to, from, bytes) for the values in a card's memory of each request from `begin` on, which a batch has.
  template <class Copy>
  void copy_device_values(int64_t begin, const DeviceBatch& batch, const Copy& copy) const {
    for (int64_t r = 0; r < batch.batch().size(); ++r) {
      if (!batch.batch().status(r).ok()) continue;
      for (const DeviceInput& input : on_device_) {
        const int64_t first = first_row(input.axis, begin + r), rows = first_row(input.axis, begin + r + 1) - first;
        if (rows == 0) continue;
        std::byte* const to =
            input.is_ids ? batch.values(r, IdsSlot{input.index}) : batch.values(r, DenseSlot{input.index});
        copy(to, static_cast<const std::byte*>(input.values.data()) + first * input.row_bytes, rows * input.row_bytes);
      }
    }
  }
  /// Of each array in a card's memory, the card's number.
  std::vector<int> devices() const {
    std::vector<int> devices;
    for (const DeviceInput& input : on_device_) devices.push_back(input.values.device_id());
    return devices;
  }

 private:
  struct DeviceInput {
    bool is_ids;
    int index, axis;
    int64_t width, row_bytes;
    nb::dlpack::dtype type;
    DeviceArray values;
  };
  DeviceInput device_input(const std::string& name, const DeviceArray& array) const;

  template <class Slot, class Array>
  struct Input {
    Slot slot;
    int axis;
    int64_t width;
    Array values;
  };

  /// The first of the axis' rows that belong to the requests from `r` on.
  int64_t first_row(int axis, int64_t r) const;

  int64_t num_requests_;
  Plan plan_;
  const BatchLayout& layout_;                 ///< the plan's
  std::vector<Span<const int64_t>> offsets_;  ///< by axis; empty where there are none
  std::vector<Integers> arrays_;              ///< of the offsets
  std::vector<Input<IdsSlot, Integers>> ids_;
  std::vector<Input<DenseSlot, Floats>> dense_;
  std::vector<DeviceInput> on_device_;
};

}  // namespace warprank::python
