// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the ids of a bag are, for every form in which a feature can have them.

#include <cstdint>

#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/embedding_bag/blob.cuh"
#include "warprank/ops/detail/embedding_bag/general/descriptor.hpp"

namespace warprank::detail::embedding_bag::general {

/// The ids of a bag, or some of them, one after the other.
struct Bag {
  int64_t begin;                 ///< of its first id among all ids of the feature
  int64_t length;                ///< ids
  const unsigned char* ids;      ///< null: each is the default id
  const unsigned char* weights;  ///< FP32, FP16 or BF16; null: each is the default weight
};

WARPRANK_DEVICE int64_t num_bags(const Descriptor& f) {
  if (!is_in_requests(f.form)) return device::true_count(f.num_bags, f.max_bags);
  const int64_t rows = device::load_constant(&f.bag_starts[device::true_count(f.num_requests, f.max_requests)]);
  return rows < f.max_bags ? rows : f.max_bags;
}

/// How many ids a feature has whose bags may be cut: none has one id per bag.
WARPRANK_DEVICE int64_t num_ids(const Descriptor& f, int64_t bags) {
  int64_t count;
  if (f.form == IdsForm::offsets) {
    count = device::load_constant(&f.bounds[bags]);
  } else if (f.form == IdsForm::indices) {
    return device::true_count(f.num_ids, f.max_ids);
  } else {
    count = device::load_constant(&f.id_starts[device::true_count(f.num_requests, f.max_requests)]);
  }
  return count < f.max_ids ? count : f.max_ids;
}

/// Ids [first, first + length) of a request; the request has row `first` as its row `row`.
WARPRANK_DEVICE Bag blob_bag(const Descriptor& f, const unsigned char* blob, int64_t first, int64_t row,
                             int64_t length) {
  Bag bag{first, length, nullptr, nullptr};
  if (length == 0) return bag;
  const uint32_t ids_at = read_entry(blob, f.values_entry);
  if (ids_at != 0) bag.ids = address_of_id(blob + ids_at, row, f.ids_are_narrow);
  if (!f.is_weighted) return bag;
  if (f.weights != nullptr) {
    bag.weights = f.weights + first * f.weights_stride;
  } else if (const uint32_t weights_at = read_entry(blob, f.weights_entry); weights_at != 0) {
    bag.weights = blob + weights_at + row * f.weights_stride + f.weights_column_bytes;
  }
  return bag;
}

/// The request that has row `row` of the axis whose row_starts are given.
WARPRANK_DEVICE int64_t find_request(const Descriptor& f, const int64_t* starts, int64_t row) {
  return f.has_one_row ? row : device::last_not_above(starts, device::true_count(f.num_requests, f.max_requests), row);
}

/// Bag b of the feature. Each lane may ask for another.
WARPRANK_DEVICE Bag find_bag(const Descriptor& f, int64_t b) {
  using device::load_constant;
  int64_t begin = b, end = b + 1;
  if (f.form == IdsForm::offsets) {
    begin = load_constant(&f.bounds[b]);
    end = load_constant(&f.bounds[b + 1]);
  } else if (f.form == IdsForm::indices) {
    const int64_t count = device::true_count(f.num_ids, f.max_ids);
    begin = device::first_not_below(f.bounds, count, b);
    end = begin + device::first_not_below(f.bounds + begin, count - begin, b + 1);
  } else if (f.form != IdsForm::each) {
    const int64_t request = f.form == IdsForm::blob_one_segment ? b : find_request(f, f.bag_starts, b);
    const unsigned char* blob = f.blobs + load_constant(&f.positions[request]);
    const int64_t first = load_constant(&f.id_starts[request]);
    if (f.form == IdsForm::blob_each) return blob_bag(f, blob, b, b - first, 1);
    if (f.form == IdsForm::blob_one_segment) {
      return blob_bag(f, blob, first, 0, load_constant(&f.id_starts[request + 1]) - first);
    }
    const auto* offsets =
        section<uint32_t>(blob, read_entry(blob, f.offsets_entry)) + b - load_constant(&f.bag_starts[request]);
    const int64_t row = load_constant(&offsets[0]);
    return blob_bag(f, blob, first + row, row, load_constant(&offsets[1]) - row);
  }
  return {begin, end - begin, reinterpret_cast<const unsigned char*>(f.ids + begin),
          f.is_weighted ? f.weights + begin * f.weights_stride : nullptr};
}

/// The bag that the id at `position` belongs to.
WARPRANK_DEVICE int64_t bag_at(const Descriptor& f, int64_t bags, int64_t position) {
  using device::load_constant;
  if (f.form == IdsForm::offsets) return device::last_not_above(f.bounds, bags, position);
  if (f.form == IdsForm::indices) return load_constant(&f.bounds[position]);
  const int64_t request = find_request(f, f.id_starts, position);
  if (f.form == IdsForm::blob_one_segment) return request;
  const unsigned char* blob = f.blobs + load_constant(&f.positions[request]);
  const int64_t first_bag = load_constant(&f.bag_starts[request]);
  const int64_t bags_of_request = load_constant(&f.bag_starts[request + 1]) - first_bag;
  const auto* offsets = section<uint32_t>(blob, read_entry(blob, f.offsets_entry));
  return first_bag + device::last_not_above(offsets, bags_of_request, position - load_constant(&f.id_starts[request]));
}

}  // namespace warprank::detail::embedding_bag::general
