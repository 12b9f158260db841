// SPDX-License-Identifier: Apache-2.0
#include "model/accesses.hpp"

#include <algorithm>
#include <array>

namespace t4 {

int wavefronts(const uint64_t* addresses, int num_addresses, int width) {
  constexpr size_t banks = 32;
  const int at_once = width <= 4 ? 32 : width == 8 ? 16 : 8;
  const auto words = static_cast<uint64_t>(std::max(1, width / 4));
  int total = 0;
  for (int begin = 0; begin < num_addresses; begin += at_once) {
    std::array<std::vector<uint64_t>, banks> wanted;
    size_t most = 1;
    for (int i = begin; i < std::min(num_addresses, begin + at_once); ++i)
      for (uint64_t word = addresses[i] / 4; word < addresses[i] / 4 + words; ++word) {
        std::vector<uint64_t>& of_bank = wanted[word % banks];
        if (std::find(of_bank.begin(), of_bank.end(), word) != of_bank.end()) continue;
        of_bank.push_back(word);
        most = std::max(most, of_bank.size());
      }
    total += static_cast<int>(most);
  }
  return total;
}

void find_sectors(const uint64_t* addresses, int num_addresses, int width, std::vector<uint64_t>& sectors) {
  constexpr uint64_t sector_bytes = 32;
  sectors.clear();
  for (int i = 0; i < num_addresses; ++i)
    for (uint64_t sector = addresses[i] / sector_bytes;
         sector <= (addresses[i] + static_cast<uint64_t>(width) - 1) / sector_bytes; ++sector)
      if (std::find(sectors.begin(), sectors.end(), sector) == sectors.end()) sectors.push_back(sector);
}

int count_lines(const std::vector<uint64_t>& sectors) {
  constexpr uint64_t sectors_of_line = 4;
  std::vector<uint64_t> lines;
  for (const uint64_t sector : sectors)
    if (std::find(lines.begin(), lines.end(), sector / sectors_of_line) == lines.end())
      lines.push_back(sector / sectors_of_line);
  return static_cast<int>(lines.size());
}

}  // namespace t4
