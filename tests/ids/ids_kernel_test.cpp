// SPDX-License-Identifier: Apache-2.0
//
// Kernels make the ids that TensorFlow's vectors name, from the same functions as the host.

#include <cstdint>
#include <string>
#include <vector>

#include "ids/vectors.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ids/buckets.hpp"
#include "warprank/ids/slot.hpp"

namespace kernels {

using namespace warprank::device;
using namespace warprank::ids;

WARPRANK_KERNEL(64, 1)
encode_texts(const char* texts, const int64_t* offsets, int64_t n, Slot slot, HashBuckets buckets, int64_t* ids,
             int64_t* rows) {
  for (int64_t i = global_thread_rank(); i < n; i += num_threads()) {
    const auto value = Fingerprint::of_bytes(texts + load(&offsets[i]), load(&offsets[i + 1]) - load(&offsets[i]));
    store(&ids[i], encode(slot, value));
    store(&rows[i], buckets.bucket(value));
  }
}

WARPRANK_KERNEL(64, 1)
encode_integers(const int64_t* integers, int64_t n, Slot slot, int64_t* ids) {
  for (int64_t i = global_thread_rank(); i < n; i += num_threads()) store(&ids[i], encode(slot, load(&integers[i])));
}

WARPRANK_KERNEL(64, 1)
decode_ids(const int64_t* ids, int64_t n, int64_t* slots, uint64_t* hashes) {
  for (int64_t i = global_thread_rank(); i < n; i += num_threads()) {
    const Decoded decoded = decode(load(&ids[i]));
    store(&slots[i], int64_t{decoded.slot});
    store(&hashes[i], decoded.hash);
  }
}

WARPRANK_KERNEL(64, 1)
cross_pairs(const uint64_t* first, const uint64_t* second, int64_t n, uint64_t* crosses) {
  for (int64_t i = global_thread_rank(); i < n; i += num_threads()) {
    const Fingerprint a = Fingerprint::from_value(load(&first[i])), b = Fingerprint::from_value(load(&second[i]));
    store(&crosses[i], cross({a, b}).value());
  }
}

WARPRANK_KERNEL(64, 1)
find_intervals(const float* x, int64_t n, const float* boundaries, int64_t num_boundaries, Boundaries<3> constants,
               int64_t* buckets, int64_t* of_constants) {
  for (int64_t i = global_thread_rank(); i < n; i += num_threads()) {
    store(&buckets[i], bucketize(load(&x[i]), boundaries, num_boundaries));
    store(&of_constants[i], constants.bucket(load(&x[i])));
  }
}

}  // namespace kernels

namespace {

using kernel_testing::DeviceArray;
using kernel_testing::in_every_order;
using warprank::device::launch;
using namespace warprank::ids;
namespace vectors = id_vectors;

constexpr int num_seeds = 3;  // the threads share nothing

TEST(IdKernels, EncodeTexts) {
  const Slot slot("city", 12);
  const HashBuckets buckets(1000);
  std::string texts;
  std::vector<int64_t> offsets = {0}, ids, rows;
  for (const auto& vector : vectors::document()["texts"]) {
    texts += vectors::bytes(vector["bytes"]);
    offsets.push_back(static_cast<int64_t>(texts.size()));
    const uint64_t fingerprint = vectors::fingerprint(vector["fingerprint"]);
    ids.push_back(static_cast<int64_t>(12 * (uint64_t{1} << 44) + fingerprint % (uint64_t{1} << 44)));
    rows.push_back(static_cast<int64_t>(fingerprint % 1000));
  }
  const auto n = static_cast<int64_t>(ids.size());
  in_every_order(
      [&] {
        const DeviceArray<char> device_texts(std::vector<char>(texts.begin(), texts.end()));
        const DeviceArray<int64_t> device_offsets(offsets);
        DeviceArray<int64_t> device_ids(n), device_rows(n);
        launch({2, 64}, kernels::encode_texts, device_texts.data(), device_offsets.data(), n, slot, buckets,
               device_ids.data(), device_rows.data());
        EXPECT_EQ(device_ids.read(), ids);
        EXPECT_EQ(device_rows.read(), rows);
      },
      num_seeds);
}

TEST(IdKernels, EncodeAndDecodeIntegers) {
  const Slot slot("last", num_slots - 1);
  std::vector<int64_t> integers;
  std::vector<uint64_t> hashes;
  for (const auto& vector : vectors::document()["integers"]) {
    integers.push_back(vector["integer"].get<int64_t>());
    hashes.push_back(vectors::fingerprint(vector["fingerprint"]) % (uint64_t{1} << 44));
  }
  const auto n = static_cast<int64_t>(integers.size());
  in_every_order(
      [&] {
        const DeviceArray<int64_t> device_integers(integers);
        DeviceArray<int64_t> ids(n), slots(n);
        DeviceArray<uint64_t> device_hashes(n);
        launch({1, 64}, kernels::encode_integers, device_integers.data(), n, slot, ids.data());
        launch({1, 64}, kernels::decode_ids, ids.data(), n, slots.data(), device_hashes.data());
        EXPECT_EQ(device_hashes.read(), hashes);
        EXPECT_EQ(slots.read(), std::vector<int64_t>(integers.size(), num_slots - 1));
      },
      num_seeds);
}

TEST(IdKernels, Cross) {
  std::vector<uint64_t> first, second, crosses;
  for (const auto& vector : vectors::document()["crosses"]) {
    const std::vector<Fingerprint> parts = vectors::parts(vector["parts"]);
    if (parts.size() != 2) continue;
    first.push_back(parts[0].value());
    second.push_back(parts[1].value());
    crosses.push_back(vectors::fingerprint(vector["fingerprint"]));
  }
  const auto n = static_cast<int64_t>(crosses.size());
  ASSERT_GT(n, 3);
  in_every_order(
      [&] {
        const DeviceArray<uint64_t> device_first(first), device_second(second);
        DeviceArray<uint64_t> device_crosses(n);
        launch({1, 64}, kernels::cross_pairs, device_first.data(), device_second.data(), n, device_crosses.data());
        EXPECT_EQ(device_crosses.read(), crosses);
      },
      num_seeds);
}

TEST(IdKernels, FindIntervals) {
  constexpr Boundaries age_groups{18, 25, 35};
  for (const auto& vector : vectors::document()["boundaries"]) {
    const std::vector<float> boundaries = vectors::numbers(vector["boundaries"]), x = vectors::numbers(vector["x"]);
    const auto buckets = vector["bucket"].get<std::vector<int64_t>>();
    const auto n = static_cast<int64_t>(x.size()), num_boundaries = static_cast<int64_t>(boundaries.size());
    const bool is_age = boundaries == std::vector<float>{18, 25, 35};
    in_every_order(
        [&] {
          const DeviceArray<float> device_x(x), device_boundaries(boundaries);
          DeviceArray<int64_t> device_buckets(n), of_constants(n);
          launch({1, 64}, kernels::find_intervals, device_x.data(), n, device_boundaries.data(), num_boundaries,
                 age_groups, device_buckets.data(), of_constants.data());
          EXPECT_EQ(device_buckets.read(), buckets);
          if (is_age) {
            EXPECT_EQ(of_constants.read(), buckets);
          }
        },
        num_seeds);
  }
}

}  // namespace
