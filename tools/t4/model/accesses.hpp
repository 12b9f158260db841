// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an instruction asks of memory, as the card divides it.

#include <cstdint>
#include <vector>

namespace t4 {

/// Times that shared memory's 32 banks of 4 bytes have to be asked: words of one bank that differ come one after the
/// other. Of 8 bytes a lane 16 lanes are asked at once, of 16 bytes 8.
int wavefronts(const uint64_t* addresses, int num_addresses, int width);

/// The numbers of the sectors of 32 bytes, each once, in order.
void find_sectors(const uint64_t* addresses, int num_addresses, int width, std::vector<uint64_t>& sectors);
/// The lines of 128 bytes that they are in.
int count_lines(const std::vector<uint64_t>& sectors);

}  // namespace t4
