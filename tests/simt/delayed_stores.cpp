// SPDX-License-Identifier: Apache-2.0
#include "simt/delayed_stores.hpp"

#include <cstring>

#include "simt/machine.hpp"

namespace simt {
namespace {

bool overlap(const DelayedStore& store, const void* address, int64_t bytes) {
  const auto* begin = static_cast<const char*>(store.address);
  const auto* other = static_cast<const char*>(address);
  return begin < other + bytes && other < begin + store.bytes;
}

void perform(const DelayedStore& store) {
  std::memcpy(store.address, store.value.data(), static_cast<size_t>(store.bytes));
  race::publish(store.address, store.release, false);
}

}  // namespace

void store(Thread& thread, void* address, const void* value, int bytes, const race::Release& release, bool may_delay) {
  DelayedStore made{address, bytes, {}, release};
  std::memcpy(made.value.data(), value, static_cast<size_t>(bytes));
  if (!may_delay || !race::enabled()) {
    perform(made);
    return;
  }
  if (thread.delayed_stores.empty()) Machine::instance().has_delayed_stores(thread);
  thread.delayed_stores.push_back(made);
}

void flush(Thread& thread) {
  for (const DelayedStore& store : thread.delayed_stores) perform(store);
  thread.delayed_stores.clear();
}

void flush_one(Thread& thread, Random& random) {
  std::vector<DelayedStore>& stores = thread.delayed_stores;
  if (stores.empty()) return;
  const DelayedStore& drawn = stores[random.below(stores.size())];
  for (size_t i = 0; i < stores.size(); ++i) {  // the oldest to the same memory: they stay in order
    if (!overlap(stores[i], drawn.address, drawn.bytes)) continue;
    perform(stores[i]);
    stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void flush_overlapping(Thread& thread, const void* address, int64_t bytes) {
  for (const DelayedStore& store : thread.delayed_stores) {
    if (!overlap(store, address, bytes)) continue;
    flush(thread);
    return;
  }
}

}  // namespace simt
