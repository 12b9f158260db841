// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The sources of a hash table's keys and rows.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 {

/// Some rows in memory of another owner, at any alignment.
struct HashTableChunk {
  int64_t count = 0;
  const void* keys = nullptr;    ///< [count] 64-bit integers, signed or not
  const void* rows = nullptr;    ///< [count, dim] of the table's row type
  const void* scale = nullptr;   ///< [count] floats, I8 only: x = scale * q + offset
  const void* offset = nullptr;  ///< [count] floats, I8 only
};

/// Gives the rows of a table chunk by chunk, in any order and chunks of any size, then an empty chunk; after that it
/// begins anew, with the same keys in the same order. A chunk is read before the next is asked for, so that a table may
/// be larger than the memory for its rows. An exception ends the build.
using HashTableStream = std::function<HashTableChunk()>;

/// The stream of rows that are all in memory.
inline HashTableStream stream_of(const HashTableChunk& all) {
  return [all, given = false]() mutable {
    given = !given;
    return given ? all : HashTableChunk{};
  };
}

/// The same at a pace, in chunks, for rows of `row_bytes` bytes. The pace must outlive the stream.
inline HashTableStream stream_of(const HashTableChunk& all, int64_t row_bytes, Pace& pace) {
  if (!pace.is_limited()) return stream_of(all);
  const int64_t most = std::max<int64_t>(1, (int64_t{1} << 20) / row_bytes);
  return [all, row_bytes, most, &pace, given = int64_t{0}, last = int64_t{0}]() mutable {
    if (last > 0) pace.moved(last * row_bytes);
    last = std::min(most, all.count - given);
    const auto from = [&](const void* data, int64_t bytes) -> const void* {
      return data == nullptr ? nullptr : static_cast<const unsigned char*>(data) + given * bytes;
    };
    const HashTableChunk chunk{last, from(all.keys, 8), from(all.rows, row_bytes), from(all.scale, 4),
                               from(all.offset, 4)};
    given = last == 0 ? 0 : given + last;
    return chunk;
  };
}

/// Rows as tensors, for example of a safetensors file: I64 keys [n], rows [n, dim], and for I8 rows F32 scale and
/// offset [n], else null. Throws invalid_argument for other types or shapes.
inline HashTableChunk chunk_of(const TensorView& keys, const TensorView& rows, const TensorView* scale = nullptr,
                               const TensorView* offset = nullptr) {
  Problems problems;
  const auto expect = [&](bool holds, const char* what, const std::string& expected, const TensorView* tensor) {
    if (!holds)
      problems.add(std::string("hash table: ") + what, expected,
                   tensor == nullptr ? "none" : std::string(tensor->type_name) + " " + to_string(tensor->shape));
  };
  expect(keys.dtype == DType::i64 && keys.shape.size() == 1, "keys", "I64 [n]", &keys);
  const int64_t count = keys.shape.empty() ? 0 : keys.shape[0];
  const std::string n = std::to_string(count);
  expect(rows.dtype && *rows.dtype != DType::i64 && rows.shape.size() == 2 && rows.shape[0] == count, "rows",
         "F32, F16, BF16 or I8 [" + n + ", dim]", &rows);
  const bool scaled = rows.dtype == DType::i8;
  for (const auto& [what, tensor] : {std::pair{"scale", scale}, std::pair{"offset", offset}}) {
    const bool fits = tensor != nullptr && tensor->dtype == DType::f32 && tensor->shape == Shape{count};
    expect(scaled ? fits : tensor == nullptr, what, scaled ? "F32 [" + n + "]" : "none beside rows that are not I8",
           tensor);
  }
  problems.throw_if_any();
  return {count, keys.data, rows.data, scaled ? scale->data : nullptr, scaled ? offset->data : nullptr};
}

}}  // namespace warprank::v0
