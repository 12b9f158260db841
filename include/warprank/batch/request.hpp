// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Filling one request.

#include <cstdint>
#include <string>

#include "warprank/batch/detail/batch_state.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/values.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"

namespace warprank { inline namespace v0 {

/// A request of a Batch: a handle that is cheap to copy and valid until the batch is cleared or destroyed. One thread
/// at a time fills it; different requests are filled by different threads at once.
///
///     request.ids(film_id, films).dense(context, values)           // one row for each item
///            .ids(genre, {3, 7, 3}, Lengths{2, 0, 1})              // bags on an axis nested in the item axis
///            .finish();
///
/// All values are copied at once. Wrong data never throws: the first problem becomes the request's status, and later
/// values are ignored. invalid_argument is thrown for a slot of no input, and for setting values after finish() or
/// Batch::clear().
///
/// Ids and values get the type that the model declares for their input in requests (IdsWire, DenseWire): values are
/// rounded, and a value out of range is a problem of the request or saturates, as the model says.
///
/// An axis has as many rows as its inputs, which must agree; an axis without set inputs has no rows. An input that is
/// not set takes its default in every row. On an axis with keep_last the last rows of each parent row are kept, with
/// the rows nested in them.
class Request {
 public:
  /// Its number in the batch.
  int64_t index() const { return record_->index; }
  const Status& status() const { return record_->status(); }

  /// One id per row of the input's axis.
  Request& ids(IdsSlot slot, const Values<int64_t>& values) {
    staging().set_ids(slot, values);
    return *this;
  }
  /// The same, with the division of the rows among the parent's rows. It is needed once for each axis whose parent is
  /// not the outermost axis, and is shared by the axis' inputs.
  Request& ids(IdsSlot slot, const Values<int64_t>& values, const Lengths& lengths) {
    return ids(slot, values).lengths(axis_of(slot), lengths);
  }
  Request& ids(IdsSlot slot, const Values<int64_t>& values, const Offsets& offsets) {
    return ids(slot, values).offsets(axis_of(slot), offsets);
  }

  /// [rows * width], row-major, of finite values.
  Request& dense(DenseSlot slot, const Values<float>& values) {
    staging().set_dense(slot, values);
    return *this;
  }
  Request& dense(DenseSlot slot, const Values<float>& values, const Lengths& lengths) {
    return dense(slot, values).lengths(axis_of(slot), lengths);
  }
  Request& dense(DenseSlot slot, const Values<float>& values, const Offsets& offsets) {
    return dense(slot, values).offsets(axis_of(slot), offsets);
  }

  /// [parent rows]: the number of the axis' rows in each parent row.
  Request& lengths(AxisSlot slot, const Lengths& lengths) {
    staging().set_lengths(slot, lengths);
    return *this;
  }
  /// [parent rows + 1]: the beginning of each parent row's rows, and the total.
  Request& offsets(AxisSlot slot, const Offsets& offsets) {
    staging().set_offsets(slot, offsets);
    return *this;
  }

  /// Checks that the request is complete and packs its blob, on the calling thread; Batch::close() does it for requests
  /// that are not finished. The second call does nothing.
  const Status& finish() {
    check_generation();
    state_->finish(*record_);
    return status();
  }

 private:
  friend class Batch;

  Request(detail::BatchState& state, detail::RequestRecord& record)
      : state_(&state), record_(&record), generation_(state.generation()) {}

  void check_generation() const {
    if (generation_ != state_->generation())
      throw invalid_argument("request", "to be used before its batch is cleared", "a request of a cleared batch");
  }
  detail::Staging& staging() {
    check_generation();
    if (record_->staging == nullptr)
      throw invalid_argument("request " + std::to_string(index()), "values before it is finished",
                             "values for a finished request");
    return *record_->staging;
  }
  // Called after a setter has checked the slot.
  AxisSlot axis_of(IdsSlot slot) const { return {state_->layout().ids(slot).axis}; }
  AxisSlot axis_of(DenseSlot slot) const { return {state_->layout().dense(slot).axis}; }

  detail::BatchState* state_;
  detail::RequestRecord* record_;
  uint64_t generation_;
};

}}  // namespace warprank::v0
