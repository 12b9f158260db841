// SPDX-License-Identifier: Apache-2.0
#include "model/report.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace t4 {
namespace {

template <class... Values>
std::string format(const char* text, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, text, values...);
  return line;
}
std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}
/// The reasons, the greatest first.
std::vector<Why> by_size(const Timing& timing) {
  std::vector<Why> order;
  for (int i = 0; i < num_reasons; ++i) order.push_back(static_cast<Why>(i));
  std::stable_sort(order.begin(), order.end(), [&](Why a, Why b) {
    return timing.stalls[static_cast<size_t>(a)] > timing.stalls[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace

std::string describe(const std::string& name, const Timing& timing, const Card& card) {
  const double per_cycle =
      timing.cycles > 0 ? static_cast<double>(timing.instructions) / timing.cycles / card.multiprocessors : 0;
  std::string line =
      name + ": " + format("%.0f cycles, %.2f us, ", timing.cycles, timing.microseconds) +
      format("%llu warp instructions, longest %llu, %.2f a cycle of a multiprocessor; ",
             static_cast<unsigned long long>(timing.instructions), static_cast<unsigned long long>(timing.longest_warp),
             per_cycle) +
      format("sectors %llu, L1 hits %llu, L2 %llu, DRAM %llu, wavefronts %llu; ",
             static_cast<unsigned long long>(timing.sectors), static_cast<unsigned long long>(timing.l1_hits),
             static_cast<unsigned long long>(timing.l2_sectors), static_cast<unsigned long long>(timing.dram_sectors),
             static_cast<unsigned long long>(timing.wavefronts));
  const double all = std::accumulate(timing.stalls.begin(), timing.stalls.end(), 0.0);
  constexpr double least = 0.02;
  std::string stalls;
  for (const Why why : by_size(timing)) {
    const double share = all > 0 ? timing.stalls[static_cast<size_t>(why)] / all : 0;
    if (share > least)
      stalls += (stalls.empty() ? "" : ", ") + std::string(name_of(why)) + format(" %.0f%%", 100 * share);
  }
  return line + stalls;
}

std::string to_json(const std::string& name, const Timing& timing, bool has_blocks) {
  std::string line =
      "{\"name\": " + json_string(name) +
      format(", \"cycles\": %.0f, \"microseconds\": %.3f, \"instructions\": %llu, \"longest_warp\": %llu",
             timing.cycles, timing.microseconds, static_cast<unsigned long long>(timing.instructions),
             static_cast<unsigned long long>(timing.longest_warp)) +
      ", \"stalls\": {";
  bool is_first = true;
  for (const Why why : by_size(timing)) {
    line +=
        (is_first ? "" : ", ") + json_string(name_of(why)) + format(": %.0f", timing.stalls[static_cast<size_t>(why)]);
    is_first = false;
  }
  line += "}";
  if (has_blocks) {
    std::string blocks;
    for (const Timing::Stay& block : timing.blocks)
      blocks +=
          (blocks.empty() ? "" : ", ") +
          format("[%llu, %.0f, %.0f]", static_cast<unsigned long long>(block.multiprocessor), block.begin, block.end);
    line += ", \"blocks\": [" + blocks + "]";
  }
  return line + "}";
}

std::string describe_last_warp(const Timing& timing, int most_lines) {
  std::vector<std::pair<std::string, Timing::Line>> lines(timing.last_warp.begin(), timing.last_warp.end());
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second.cycles > b.second.cycles; });
  std::string result;
  for (size_t i = 0; i < std::min(lines.size(), static_cast<size_t>(most_lines)); ++i)
    result += format("  %7.0f cycles %5llu instructions  ", lines[i].second.cycles,
                     static_cast<unsigned long long>(lines[i].second.instructions)) +
              lines[i].first + "\n";
  return result;
}

std::string short_name(const std::string& mangled) {
  int status = 0;
  char* const whole = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (status != 0 || whole == nullptr) return mangled;
  std::string name = whole;
  std::free(whole);
  // The parameters: the last bracket that is open at the end.
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    depth += (name[i] == ')') - (name[i] == '(');
    if (depth == 0 && name[i] == '(') {
      name.resize(i);
      break;
    }
  }
  const size_t begin = name.rfind(' ', name.find('<'));
  return begin == std::string::npos ? name : name.substr(begin + 1);
}

}  // namespace t4
