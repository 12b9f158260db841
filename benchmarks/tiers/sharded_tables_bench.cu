// SPDX-License-Identifier: Apache-2.0

// Look-ups in a table that is divided among 1, 2, 4 and 8 cards, of keys that are asked for evenly: those of one card,
// against a table in its own memory, one in the host's, and all cards doing the same at once. Without so many cards a
// benchmark is skipped. Where cards do not access one another the table is the host's, and `peer_access` 0.

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "measure_cuda.cuh"
#include "tiers/placed_rows.cuh"
#include "warprank/device/event.hpp"
#include "warprank/device/sharded_memory.hpp"

namespace warprank::bench {
namespace {

/// The same look-ups on another card.
class OtherCard {
 public:
  OtherCard(int device, CudaTableStore& store, const Rows& rows, const std::vector<int64_t>& ids)
      : device_(device),
        store_(std::dynamic_pointer_cast<CudaTableStore>(store.on(device))),
        look_ups_(memory_, *store_, rows, static_cast<int64_t>(ids.size())) {
    look_ups_.set_ids(ids);
  }

  void launch_behind(const device::Event& begin) {
    const device::DeviceGuard current(device_);
    begin.wait_in(memory_.stream());
    look_ups_.call().queue(memory_.stream());
    done_.record(memory_.stream());
  }
  const device::Event& done() const { return done_; }
  void check() const {
    const device::DeviceGuard current(device_);
    look_ups_.check();
  }

 private:
  int device_;
  Memory memory_;
  device::Event done_;
  std::shared_ptr<CudaTableStore> store_;
  LookUps look_ups_;
};

void look_up(Run& run, int64_t row_bytes, int num_cards) {
  if (num_cards > device::num_devices())
    throw NotHere("needs " + std::to_string(num_cards) + " cards, there are " + std::to_string(device::num_devices()));
  std::vector<int> devices(static_cast<size_t>(num_cards));
  std::iota(devices.begin(), devices.end(), 0);
  const int64_t count = size_for(1 << 17, 256),
                num_rows = size_for(int64_t{512} << 20, int64_t{2000} * row_bytes) / row_bytes;
  Rows rows(num_rows, row_bytes / 2);
  for (int64_t row = 0; row < num_rows; ++row) rows.write(row);
  const auto sharded = rows.load({Placement::sharded, 0}, devices);
  const auto on_device = rows.load({});
  const auto on_host = rows.load({Placement::host, 0});
  LookUps ours(run, *sharded, rows, count), in_device(run, *on_device, rows, count),
      in_host(run, *on_host, rows, count);
  std::mt19937_64 random(1);
  const auto draw = [&] {
    std::vector<int64_t> ids(static_cast<size_t>(count));
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(num_rows));
    return ids;
  };
  const std::vector<int64_t> ids = draw();
  for (LookUps* some : {&ours, &in_device, &in_host}) some->set_ids(ids);

  std::vector<std::unique_ptr<OtherCard>> others;
  for (int device = 1; device < num_cards; ++device) {
    const device::DeviceGuard current(device);
    others.push_back(std::make_unique<OtherCard>(device, *sharded, rows, draw()));
  }
  device::Event begin;
  Call all_cards = ours.call();
  all_cards.is_captured = false;
  all_cards.queue = [&, own = all_cards.queue](device::Stream stream) {
    begin.record(stream);
    for (const auto& other : others) other->launch_behind(begin);
    own(stream);
    for (const auto& other : others) other->done().wait_in(stream);
  };
  all_cards.check = [&, own = all_cards.check] {
    own();
    for (const auto& other : others) other->check();
  };

  run.count("peer_access", device::can_shard(devices));
  Work work{static_cast<double>(count * (8 + 2 * row_bytes))};
  run.measure(work, ours.call(),
              {{"device", in_device.call()}, {"host", in_host.call()}, {"all_cards", std::move(all_cards)}});
}

}  // namespace

void add_benchmarks() {
  for (const int64_t row_bytes : {64, 256})
    for (const int cards : {1, 2, 4, 8})
      add("sharded_tables/row_bytes:" + std::to_string(row_bytes) + "/cards:" + std::to_string(cards),
          [=](Run& run) { look_up(run, row_bytes, cards); });
}

}  // namespace warprank::bench
