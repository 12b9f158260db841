// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The hash of ids: FarmHash's Fingerprint64 of a feature's text, the same in C++, in kernels, in tools/ids.py, in
/// TensorFlow and in SQL. docs/IDS.md defines it bit for bit.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "warprank/core/host_device.hpp"
#include "warprank/ids/detail/fingerprint64.hpp"

namespace warprank { inline namespace v0 { namespace ids {

/// Names everything that docs/IDS.md defines: hash, layout, crosses. Store it beside stored ids; ids of two schemes do
/// not mix.
inline constexpr std::string_view scheme = "warprank-ids-1";

/// The 64-bit fingerprint of one value of a feature. Text and integers convert to it, so callers pass "Berlin" or 17.
/// It is a constant expression if its argument is one.
class Fingerprint {
 public:
  /// Fingerprint64 of the text's bytes, unchanged: UTF-8 is not normalised, and the empty text is a value like others.
  template <class Text, std::enable_if_t<std::is_convertible_v<const Text&, std::string_view>, int> = 0>
  constexpr Fingerprint(const Text& text) : Fingerprint(of_text(text)) {}

  /// The fingerprint of the integer's decimal text: 17 and "17" are the same value, as in TensorFlow's hash of
  /// integers. It takes no characters and no bool, since their text is not unique; fractions have no identity: put them
  /// into buckets.
  template <class Integer, std::enable_if_t<detail::is_number<Integer>, int> = 0>
  WARPRANK_HOST_DEVICE constexpr Fingerprint(Integer integer) : value_(detail::Decimal(integer).fingerprint()) {}

  /// Fingerprint64 of `size` bytes; for kernels, which have no string_view.
  WARPRANK_HOST_DEVICE static constexpr Fingerprint of_bytes(const char* bytes, int64_t size) {
    return from_value(detail::fingerprint64(bytes, size));
  }
  /// A hash that was made elsewhere, or an integer that TensorFlow crosses without hashing.
  WARPRANK_HOST_DEVICE static constexpr Fingerprint from_value(uint64_t value) { return Fingerprint(Raw{value}); }

  WARPRANK_HOST_DEVICE constexpr uint64_t value() const { return value_; }

 private:
  struct Raw {
    uint64_t value;
  };
  WARPRANK_HOST_DEVICE constexpr explicit Fingerprint(Raw raw) : value_(raw.value) {}

  static constexpr Fingerprint of_text(std::string_view text) {
    return of_bytes(text.data(), static_cast<int64_t>(text.size()));
  }

  uint64_t value_;
};

/// The fingerprint of a crossed feature, of two or more values in their order: cross({"Berlin", 17}). For text it is
/// the fingerprint of tf.sparse.cross_hashed with its default key.
///
///     h = 0xdecafcaffe;  for each part: h = concatenate(h, part)
template <std::size_t NumParts>
WARPRANK_HOST_DEVICE constexpr Fingerprint cross(const Fingerprint (&parts)[NumParts]) {
  static_assert(NumParts >= 2, "a cross has two parts or more");
  uint64_t hash = 0xdecafcaffe;
  for (const Fingerprint& part : parts) hash = detail::concatenate(hash, part.value());
  return Fingerprint::from_value(hash);
}

}}}  // namespace warprank::v0::ids
