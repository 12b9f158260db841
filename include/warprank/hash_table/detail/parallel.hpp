// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace warprank { inline namespace v0 { namespace detail {

/// As many threads as were asked for; all that the machine has for 0.
inline int threads_for(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Calls body(i) once for each i in [0, count), by the calling thread and up to threads - 1 others, in any order.
/// Throws what a call threw first; calls that have not begun by then are left out.
template <class Body>
void parallel_for(int64_t count, int threads, const Body& body) {
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, count); ++t) others.emplace_back(work);
  } catch (...) {
    // The machine gives no more threads, or no memory for them; those that there are do the work.
  }
  work();
  for (std::thread& other : others) other.join();
  if (error != nullptr) std::rethrow_exception(error);
}

/// The i-th of `parts` nearly equal parts of [0, count): where it begins. Part i is [begin(i), begin(i + 1)).
class Parts {
 public:
  Parts(int64_t count, int64_t smallest, int64_t most)
      : count_(count), parts_(std::clamp<int64_t>(count / std::max<int64_t>(smallest, 1), 1, most)) {}
  int64_t size() const { return parts_; }
  int64_t begin(int64_t i) const { return count_ / parts_ * i + std::min(i, count_ % parts_); }
  int64_t end(int64_t i) const { return begin(i + 1); }

 private:
  int64_t count_, parts_;
};

}}}  // namespace warprank::v0::detail
