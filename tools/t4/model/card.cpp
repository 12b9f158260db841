// SPDX-License-Identifier: Apache-2.0
#include "model/card.hpp"

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace t4 {
namespace {

const std::map<std::string, double Card::*>& fields() {
  static const std::map<std::string, double Card::*> all = {
#define T4_FIELD(name) {#name, &Card::name}
      T4_FIELD(capability),
      T4_FIELD(multiprocessors),
      T4_FIELD(gigahertz),
      T4_FIELD(resident_warps),
      T4_FIELD(resident_blocks),
      T4_FIELD(shared_bytes),
      T4_FIELD(l1_latency),
      T4_FIELD(l1_bytes),
      T4_FIELD(l2_latency),
      T4_FIELD(l2_bytes),
      T4_FIELD(l2_slices),
      T4_FIELD(l2_sectors_per_cycle),
      T4_FIELD(l2_port_sectors_per_cycle),
      T4_FIELD(dram_latency),
      T4_FIELD(dram_sectors_per_cycle),
      T4_FIELD(shared_latency),
      T4_FIELD(function_interval),
      T4_FIELD(function_latency),
      T4_FIELD(shuffle_latency),
      T4_FIELD(special_latency),
      T4_FIELD(barrier_latency),
      T4_FIELD(barrier_interval),
      T4_FIELD(branch_latency),
      T4_FIELD(tensor_interval),
      T4_FIELD(fma_interval),
      T4_FIELD(memory_interval),
      T4_FIELD(dependent_launch_microseconds),
      T4_FIELD(fetch_line_cycles),
      T4_FIELD(fetch_jump_cycles),
      T4_FIELD(l0_code_bytes),
      T4_FIELD(l0_code_cycles),
      T4_FIELD(l0_kept_launches),
      T4_FIELD(l15_code_bytes),
      T4_FIELD(constant_miss_cycles),
      T4_FIELD(launch_microseconds)};
#undef T4_FIELD
  return all;
}

}  // namespace

Card parse_card(std::istream& text, const std::string& name) {
  Card card;
  std::map<std::string, int> lines;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    const auto fail = [&](const std::string& what) {
      throw std::runtime_error(name + ":" + std::to_string(number) + ": " + what);
    };
    std::istringstream words(line);
    std::string field, source;
    double value = 0;
    if (!(words >> field >> value) || !(words >> source)) fail("expected a name, a number and its source, got " + line);
    const auto found = fields().find(field);
    if (found == fields().end()) fail("there is no parameter " + field);
    if (value <= 0) fail("expected more than 0 for " + field + ", got " + std::to_string(value));
    if (!lines.emplace(field, number).second) fail("got " + field + " a second time");
    card.*found->second = value;
  }
  for (const auto& [field, member] : fields())
    if (lines.count(field) == 0) throw std::runtime_error(name + ": " + field + " is missing");
  return card;
}

Card read_card(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("the card " + path + " cannot be read");
  return parse_card(file, path);
}

}  // namespace t4
