// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests as plain nested data, packed byte by byte as docs/BATCH_FORMAT.md says and without any check: the oracle of
/// what Request packs, and the maker of blobs that are wrong in one place.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/model/graph.hpp"

namespace warprank::batch_testing {

using Bytes = std::vector<std::byte>;

inline Span<const std::byte> span_of(const Bytes& bytes) { return bytes; }

struct RequestData {
  std::vector<uint32_t> rows;                  // of each axis
  std::vector<std::vector<uint32_t>> offsets;  // of each axis below the outermost
  std::vector<std::optional<std::vector<int64_t>>> ids;
  std::vector<std::optional<std::vector<float>>> dense;

  /// One row on the outermost axis and nothing else.
  explicit RequestData(const BatchLayout& layout)
      : rows(layout.axes().size(), 0),
        offsets(layout.axes().size()),
        ids(layout.ids().size()),
        dense(layout.dense().size()) {
    rows[0] = 1;
    for (size_t a = 1; a < rows.size(); ++a)
      offsets[a].assign(rows[static_cast<size_t>(layout.axes()[a].parent)] + 1, 0);
  }
};

template <class Value>
void put(Bytes& bytes, Value value) {
  for (size_t i = 0; i < sizeof value; ++i) {
    std::byte byte;
    std::memcpy(&byte, reinterpret_cast<const char*>(&value) + i, 1);
    bytes.push_back(byte);
  }
}
template <class Value>
void put_all(Bytes& bytes, const std::vector<Value>& values) {
  for (const Value value : values) put(bytes, value);
  while (bytes.size() % 8 != 0) put(bytes, uint8_t{0});
}
template <class Value>
void put_at(Bytes& bytes, size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
template <class Value>
Value get_at(const Bytes& bytes, size_t at) {
  Value value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Positions of the fields of a blob.
struct FieldPositions {
  size_t rows, offsets_at, ids_at, dense_at, types;
  explicit FieldPositions(const BatchLayout& layout)
      : rows(40),
        offsets_at(rows + 4 * layout.axes().size()),
        ids_at(offsets_at + 4 * layout.axes().size()),
        dense_at(ids_at + 4 * layout.ids().size()),
        types(dense_at + 4 * layout.dense().size()) {}
};

inline Bytes naive_blob(const BatchLayout& layout, const RequestData& data) {
  Bytes blob;
  for (const char c : std::string("warprank")) put(blob, c);
  const bool is_narrow = layout.has_narrow_inputs();
  put(blob, is_narrow ? uint32_t{2} : uint32_t{1});
  put(blob, uint32_t{0});  // the size, below
  put(blob, layout.fingerprint());
  put(blob, static_cast<uint32_t>(layout.axes().size()));
  put(blob, static_cast<uint32_t>(layout.ids().size()));
  put(blob, static_cast<uint32_t>(layout.dense().size()));
  put(blob, uint32_t{0});
  put_all(blob, data.rows);
  const FieldPositions fields(layout);
  blob.resize(fields.types);
  for (const IdsInfo& info : layout.ids())
    if (is_narrow) put(blob, static_cast<uint8_t>(info.wire == IdsWire::i32 ? 1 : 0));
  for (const DenseInfo& info : layout.dense())
    if (is_narrow)
      put(blob, static_cast<uint8_t>(info.wire == DenseWire::f16 ? 1 : info.wire == DenseWire::bf16 ? 2 : 0));
  blob.resize((blob.size() + 7) / 8 * 8);
  const auto section = [&](size_t position_at, const auto& values) {
    put_at(blob, position_at, static_cast<uint32_t>(blob.size()));
    put_all(blob, values);
  };
  for (size_t a = 0; a < data.rows.size(); ++a)
    if (layout.axes()[a].parent > 0) section(fields.offsets_at + 4 * a, data.offsets[a]);
  for (size_t i = 0; i < data.ids.size(); ++i)
    if (data.ids[i]) {
      const std::vector<int64_t>& ids = *data.ids[i];
      if (layout.ids()[i].wire == IdsWire::i32) {
        section(fields.ids_at + 4 * i, std::vector<int32_t>(ids.begin(), ids.end()));
      } else {
        section(fields.ids_at + 4 * i, ids);
      }
    }
  for (size_t i = 0; i < data.dense.size(); ++i)
    if (data.dense[i]) {
      const std::vector<float>& values = *data.dense[i];
      std::vector<uint16_t> narrow;
      for (const float value : values)
        narrow.push_back(layout.dense()[i].wire == DenseWire::f16 ? to_float16(value).bits : to_bfloat16(value).bits);
      if (layout.dense()[i].wire == DenseWire::f32) {
        section(fields.dense_at + 4 * i, values);
      } else {
        section(fields.dense_at + 4 * i, narrow);
      }
    }
  put_at(blob, 12, static_cast<uint32_t>(blob.size()));
  return blob;
}

template <class Value>
std::vector<Value> to_vector(Span<const Value> values) {
  return {values.begin(), values.end()};
}

/// What a blob has of an input, of any type; empty when not set.
inline std::vector<int64_t> ids_of(const BlobView& view, const BatchLayout& layout, IdsSlot slot) {
  std::vector<int64_t> ids(static_cast<size_t>(view.has(slot) ? view.rows({layout.ids(slot).axis}) : 0));
  if (view.has(slot)) view.copy_ids(slot, ids.data());
  return ids;
}
inline std::vector<float> dense_of(const BlobView& view, const BatchLayout& layout, DenseSlot slot) {
  const DenseInfo& info = layout.dense(slot);
  std::vector<float> values(static_cast<size_t>(view.has(slot) ? view.rows({info.axis}) * info.width : 0));
  if (view.has(slot)) view.copy_dense(slot, 0, static_cast<int64_t>(values.size()), values.data());
  return values;
}

/// The bytes of a request that is ok.
inline Bytes bytes_of(const Batch& batch, int64_t r) {
  const BlobView view = batch.blob(r);
  return Bytes(view.data(), view.data() + view.bytes());
}

/// Validates a copy that ends where its memory ends, so that reading past it is found by the address sanitizer.
inline Status validate(const Bytes& bytes, const BatchLayout& layout) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  return validate_blob({exact.get(), static_cast<int64_t>(bytes.size())}, layout);
}

/// A small layout with all there is:
///     user
///       item (ids film_id, film_age = 7 by default; dense context [2])
///         genres, the last 3 (ids genre)
///       history, the last 4 (ids seen)
///         tags (ids tag; dense weight [1], 1 by default)
/// On user: ids user_id; dense hour [1], 0.5 by default.
inline Graph small_graph() {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 0}, {"genres", 1, 3}, {"history", 0, 4}, {"tags", 3, 0}};
  graph.ids = {{"user_id", 0, {}, {}}, {"film_id", 1, {}, {}}, {"film_age", 1, 7, {}},
               {"genre", 2, {}, {}},   {"seen", 3, {}, {}},    {"tag", 4, {}, {}}};
  graph.dense = {{"context", 1, 2, {}}, {"hour", 0, 1, 0.5f}, {"weight", 4, 1, 1.0f}};
  return graph;
}

/// The same, narrow where small_request sets something and where it does not.
inline Graph narrow_graph(OutOfRange out_of_range = OutOfRange::refuse) {
  Graph graph = small_graph();
  for (IdsInfo& info : graph.ids) info.out_of_range = out_of_range;
  for (DenseInfo& info : graph.dense) info.out_of_range = out_of_range;
  graph.ids[1].wire = graph.ids[2].wire = graph.ids[3].wire = IdsWire::i32;  // film_id, film_age, genre
  graph.dense[0].wire = graph.dense[1].wire = DenseWire::f16;                // context, hour
  graph.dense[2].wire = DenseWire::bf16;                                     // weight
  return graph;
}

/// A request of small_graph: 2 items with 2 and 1 genres, 3 films seen with 0, 2 and 1 tags; film_age and hour not set.
inline RequestData small_request(const BatchLayout& layout) {
  RequestData data(layout);
  data.rows = {1, 2, 3, 3, 3};
  data.offsets = {{}, {}, {0, 2, 3}, {}, {0, 0, 2, 3}};
  data.ids = {{{-5}}, {{10, 11}}, {}, {{1, 2, 1}}, {{20, 21, 22}}, {{30, 31, 30}}};
  data.dense = {{{0.5f, 1.5f, -2, 3}}, {}, {{1, 0.25f, 2}}};
  return data;
}

}  // namespace warprank::batch_testing
