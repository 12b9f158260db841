// SPDX-License-Identifier: Apache-2.0
#include "model/sector_cache.hpp"

#include <algorithm>

namespace t4 {

SectorCache::SectorCache(double bytes, int ways)
    : ways_(static_cast<size_t>(ways)),
      sets_(std::max<uint64_t>(static_cast<uint64_t>(bytes) / 128 / static_cast<uint64_t>(ways), 1)),
      lines_(sets_ * ways_) {}

SectorCache::Line& SectorCache::line(uint64_t number) {
  const uint64_t set = (number ^ number / sets_) % sets_;
  Line* const first = &lines_[set * ways_];
  Line* oldest = first;
  for (Line* line = first; line != first + ways_; ++line) {
    if (line->tag == number) {
      line->used = ++tick_;
      return *line;
    }
    if (line->used < oldest->used) oldest = line;
  }
  written_back_ += static_cast<uint64_t>(__builtin_popcount(oldest->written));
  *oldest = Line();
  oldest->tag = number;
  oldest->used = ++tick_;
  return *oldest;
}

void SectorCache::settle() {
  for (Line& line : lines_)
    for (double& there : line.there)
      if (there >= 0) there = 0;
}

void SectorCache::clear() { std::fill(lines_.begin(), lines_.end(), Line()); }

}  // namespace t4
