// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A blob whose inputs have other types than a batch's: of another version, or of a plan with other choices.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Makes a blob of the layout's types from one at any address, which validate_blob has accepted.
class BlobConversion {
 public:
  BlobConversion(Span<const std::byte> blob, const BatchLayout& layout)
      : blob_(blob),
        layout_(layout),
        from_(layout, load_unaligned<uint32_t>(blob.data() + offsetof(BlobHeader, version))),
        to_(layout) {}

  /// Whether the blob has other types, those of inputs that are not set included.
  bool is_needed() const {
    if (from_.values_end != to_.values_end) return true;
    if (to_.values_end == to_.types_at) return false;
    const std::byte* type = blob_.data() + from_.types_at;
    const auto differs = [&](const auto& info) { return *type++ != static_cast<std::byte>(info.wire); };
    return std::any_of(layout_.ids().begin(), layout_.ids().end(), differs) ||
           std::any_of(layout_.dense().begin(), layout_.dense().end(), differs);
  }

  /// Converts; the status says why when that cannot be.
  Status run() {
    bytes_.assign(static_cast<size_t>(to_.end), std::byte{0});
    std::memcpy(bytes_.data(), blob_.data(), static_cast<size_t>(from_.offsets_at));
    if (to_.values_end > to_.types_at) write_types(layout_, bytes_.data() + to_.types_at);
    for (int axis = 0; axis < static_cast<int>(layout_.axes().size()); ++axis) {
      if (!layout_.has_offsets(AxisSlot{axis})) continue;
      const int64_t bytes = 4 * (rows(layout_.axis(AxisSlot{axis}).parent) + 1);
      const std::byte* from = blob_.data() + load_unaligned<uint32_t>(blob_.data() + from_.offsets_at + 4 * axis);
      std::memcpy(begin_section(to_.offsets_at + 4 * axis, bytes), from, static_cast<size_t>(bytes));
    }
    int64_t input = 0;
    for (const IdsInfo& info : layout_.ids()) convert({"ids", &info.name}, input++, info, 1, convert_ids);
    for (const DenseInfo& info : layout_.dense())
      convert({"dense", &info.name}, input++, info, info.width, convert_dense);
    const auto size = static_cast<int64_t>(bytes_.size());
    if (size > max_blob_bytes)
      fail(StatusCode::too_large, {"size"}, "fewer than 2^32 bytes in this plan's types", std::to_string(size));
    put(offsetof(BlobHeader, version), layout_.version());
    put(offsetof(BlobHeader, bytes), static_cast<uint32_t>(size));
    return std::move(status_);
  }
  /// What run() has made.
  Span<const std::byte> bytes() const { return {bytes_.data(), static_cast<int64_t>(bytes_.size())}; }

 private:
  void fail(StatusCode code, Part part, std::string expected, std::string got) {
    if (status_.ok()) status_ = {code, Problem{"blob", part.text(), std::move(expected), std::move(got)}.to_string()};
  }
  int64_t rows(int axis) const { return load_unaligned<uint32_t>(blob_.data() + from_.rows_at + 4 * axis); }
  void put(int64_t at, uint32_t value) { std::memcpy(bytes_.data() + at, &value, sizeof value); }

  /// Room for the next section, whose position goes to an entry of a table.
  std::byte* begin_section(int64_t entry_at, int64_t bytes) {
    const size_t begin = bytes_.size();
    put(entry_at, static_cast<uint32_t>(begin));
    bytes_.resize(begin + static_cast<size_t>(align_8(bytes)));
    return bytes_.data() + begin;
  }

  template <class Info, class Convert>
  void convert(Part part, int64_t input, const Info& info, int64_t width, Convert convert_values) {
    const auto position = load_unaligned<uint32_t>(blob_.data() + from_.data_at + 4 * input);
    if (position == 0) return;
    using Type = decltype(info.wire);
    const bool has_types = from_.values_end > from_.types_at;
    const auto type = has_types ? static_cast<Type>(blob_[from_.types_at + input]) : Type{};
    const int64_t count = rows(info.axis) * width;
    std::byte* const to = begin_section(to_.data_at + 4 * input, count * size_of(info.wire));
    const int64_t bad = convert_values(blob_.data() + position, type, count, to, info.wire, info.out_of_range);
    if (bad >= 0)
      fail(StatusCode::out_of_range, part, expected_text(info.wire), "one beyond in " + place_text(bad, width));
  }

  Span<const std::byte> blob_;
  const BatchLayout& layout_;
  BlobTables from_, to_;
  std::vector<std::byte> bytes_;
  Status status_;
};

}}}  // namespace warprank::v0::detail
