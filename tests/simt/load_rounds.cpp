// SPDX-License-Identifier: Apache-2.0
#include "simt/load_rounds.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

#include "simt/load_probe.hpp"
#include "simt/memory.hpp"

namespace simt {

void LoadProbe::before(Thread& thread, const void* address, Here here) {
  const BlockNumber number = number_of(thread);
  load_ = {here.file, here.line, turns_[{number, thread.rank, here.file, here.line}]++};
  OfBlock& block = blocks_[number];
  const Place place = DeviceMemory::instance().place_of(address);
  if (block.loads.insert(load_).second) block.order.push_back(load_);
  block.places[{load_, thread.rank}] = place;
  for (const auto& [load, allocations] : block.points_to)
    if (allocations.count(place.first) > 0) block.follow_pointers[load].insert(load_);
  made(number, load_, thread.rank, place);
}

void LoadProbe::after(Thread& thread, void* value, int bytes) {
  auto* const at = static_cast<char*>(value);
  bool has_pointers = false;
  for (int begin = 0; begin + 8 <= bytes; begin += 8) {
    uintptr_t word = 0;
    std::memcpy(&word, at + begin, 8);
    const auto* const pointer = reinterpret_cast<const void*>(word);
    if (!DeviceMemory::instance().reserved(pointer)) continue;
    has_pointers = true;
    blocks_[number_of(thread)].points_to[load_].insert(DeviceMemory::instance().place_of(pointer).first);
  }
  const int word_bytes = std::min(bytes, 8);
  for (int begin = 0; begin < bytes && !has_pointers; begin += word_bytes) {
    uint64_t word = 0;
    std::memcpy(&word, at + begin, static_cast<size_t>(word_bytes));
    change(load_, word);
    std::memcpy(at + begin, &word, static_cast<size_t>(word_bytes));
  }
}

namespace {

/// Runs with a probe; false where it was cut off.
bool runs_with(LoadProbe& probe, const std::function<void()>& run) {
  LoadProbe::current() = &probe;
  bool has_ended = true;
  try {
    run();
  } catch (const std::exception&) {
    has_ended = false;
  }
  LoadProbe::current() = nullptr;
  return has_ended;
}

/// By block and load: whether it waits for the load that is changed. Processes share it: wrong values may end one.
class Waiting {
 public:
  explicit Waiting(const LoadProbe::Blocks& blocks) {
    for (const auto& [number, block] : blocks)
      for (const Load& load : block.order) places_[{number, load}] = bytes_++;
    void* const memory = mmap(nullptr, bytes_ + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<unsigned char*>(memory);
  }
  ~Waiting() { munmap(memory_, bytes_ + 1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void clear() { std::memset(memory_, 0, bytes_); }
  void add(const LoadProbe::BlockNumber& block, const Load& load) {
    const auto place = places_.find({block, load});  // loads that there were none of before wait for nothing else
    if (place != places_.end()) memory_[place->second] = 1;
  }
  bool has(const LoadProbe::BlockNumber& block, const Load& load) const {
    return memory_[places_.at({block, load})] != 0;
  }

 private:
  std::map<std::pair<LoadProbe::BlockNumber, Load>, size_t> places_;
  size_t bytes_ = 0;
  unsigned char* memory_;
};

/// Changes what one load brings, and notes which others are made elsewhere than before.
class ChangingProbe : public LoadProbe {
 public:
  ChangingProbe(const Blocks& before, const Load& load, int by, Waiting& waiting)
      : before_(before), load_(load), by_(by), waiting_(waiting) {}

  /// When all have been made.
  void note_missing() {
    for (const auto& [number, block] : before_) {
      const auto after = blocks().find(number);
      for (const auto& [key, place] : block.places)
        if (after == blocks().end() || after->second.places.count(key) == 0) waiting_.add(number, key.first);
    }
  }

 private:
  void made(const BlockNumber& number, const Load& load, unsigned thread, const Place& place) override {
    const auto block = before_.find(number);
    if (block == before_.end()) return;
    const auto was = block->second.places.find({load, thread});
    if (was == block->second.places.end() || was->second != place) waiting_.add(number, load);
  }
  void change(const Load& load, uint64_t& word) override {
    const bool is_it = !(load < load_) && !(load_ < load);
    if (is_it && (by_ > 0 || word > 0)) word += static_cast<uint64_t>(int64_t{by_});
  }

  const Blocks& before_;
  const Load load_;
  const int by_;
  Waiting& waiting_;
};

/// In a process of its own, which may end in any way, and is ended after a while.
void run_apart(const std::function<void()>& body) {
  constexpr unsigned most_seconds = 20;
  const pid_t child = fork();
  if (child < 0) throw std::bad_alloc();
  if (child == 0) {
    alarm(most_seconds);
    body();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string text_of(const Load& load) {
  const std::string path = load.file, place = path.substr(path.rfind('/') + 1) + ":" + std::to_string(load.line);
  return load.turn == 0 ? place : place + " time " + std::to_string(load.turn + 1);
}

}  // namespace

LoadRounds load_rounds(const std::function<void()>& run) {
  LoadProbe as_it_is;
  if (!runs_with(as_it_is, run)) run();  // throws again
  const LoadProbe::Blocks& blocks = as_it_is.blocks();
  std::set<Load> loads;
  for (const auto& [number, block] : blocks) loads.insert(block.order.begin(), block.order.end());

  std::map<std::pair<LoadProbe::BlockNumber, Load>, std::set<Load>> waits_for;
  Waiting waiting(blocks);
  for (const Load& load : loads) {
    waiting.clear();
    for (const int by : {1, -1})
      run_apart([&] {
        ChangingProbe probe(blocks, load, by, waiting);
        if (runs_with(probe, run)) probe.note_missing();
      });
    for (const auto& [number, block] : blocks)
      for (const Load& other : block.order)
        if (waiting.has(number, other)) waits_for[{number, other}].insert(load);
  }
  for (const auto& [number, block] : blocks)
    for (const auto& [pointer, others] : block.follow_pointers)
      for (const Load& other : others) waits_for[{number, other}].insert(pointer);

  LoadRounds longest;
  for (const auto& [number, block] : blocks) {
    std::map<Load, std::vector<std::string>> chains;  // that end with a load
    for (const Load& load : block.order) {
      std::vector<std::string>& chain = chains[load];
      for (const Load& earlier : waits_for[{number, load}]) {
        const auto of_earlier = chains.find(earlier);  // none: it is made later
        if (of_earlier != chains.end() && of_earlier->second.size() > chain.size()) chain = of_earlier->second;
      }
      chain.push_back(text_of(load));
      if (chain.size() > longest.chain.size()) longest.chain = chain;
    }
  }
  longest.rounds = static_cast<int64_t>(longest.chain.size());
  return longest;
}

}  // namespace simt
