// SPDX-License-Identifier: Apache-2.0
#include "model/code_caches.hpp"

#include <algorithm>

namespace t4 {

CodeCaches::CodeCaches(const Card& card)
    : card_(card), l0_(num_schedulers, SectorCache(card.l0_code_bytes, 4)), l15_(card.l15_code_bytes, 8) {}

double CodeCaches::ask(int scheduler, uint64_t line, double start, bool follows) {
  double& in_l0 = l0_[static_cast<size_t>(scheduler)].line(line).there[0];
  if (in_l0 >= 0) return in_l0;
  double& in_l15 = l15_.line(line).there[0];
  if (in_l15 < 0) {
    free_ = std::max(start, free_) + card_.fetch_line_cycles;
    in_l15 = free_ + (follows ? 0 : card_.fetch_jump_cycles);
    in_l0 = in_l15;
  } else {
    in_l0 = std::max(in_l15, start + card_.l0_code_cycles);
  }
  return in_l0;
}

void CodeCaches::begin_launch() {
  free_ = 0;
  const bool keeps = ++launches_ < card_.l0_kept_launches;
  if (!keeps) launches_ = 0;
  for (SectorCache& cache : l0_) keeps ? cache.settle() : cache.clear();
  l15_.settle();
}

uint64_t CodeMemory::first_line(const Function& function) {
  const auto [found, is_new] = first_lines_.emplace(&function, end_);
  if (is_new)
    end_ += function.code.instructions.size() * instruction_bytes / CodeCaches::line_bytes + 2;  // what is asked ahead
  return found->second;
}

void CodeMemory::begin_launch() {
  for (CodeCaches& caches : caches_) caches.begin_launch();
}

}  // namespace t4
