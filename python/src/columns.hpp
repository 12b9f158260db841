// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Many requests as columns: of each input the values of all requests one behind the other, and of each axis but the
/// outermost where the rows of each of its parent's rows begin.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank::python {

/// Keeps the arrays; reads them in place.
class Columns {
 public:
  /// Throws invalid_argument with everything that does not fit the plan or one another. What is not given has its
  /// default in every row, and an axis without offsets has no rows.
  Columns(const Plan& plan, int64_t num_requests, const std::map<std::string, Integers>& offsets,
          const std::map<std::string, Integers>& ids, const std::map<std::string, Floats>& dense);

  int64_t num_requests() const { return num_requests_; }
  /// Rows of all axes together in the requests [0, r).
  int64_t rows_before(int64_t r) const;
  /// Packs request `r`; `lengths` is a workspace.
  void pack(int64_t r, Batch& batch, std::vector<int64_t>& lengths) const;

 private:
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
  BatchLayout layout_;
  std::vector<Span<const int64_t>> offsets_;  ///< by axis; empty where there are none
  std::vector<Integers> arrays_;              ///< of the offsets
  std::vector<Input<IdsSlot, Integers>> ids_;
  std::vector<Input<DenseSlot, Floats>> dense_;
};

}  // namespace warprank::python
