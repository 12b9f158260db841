// SPDX-License-Identifier: Apache-2.0
#include "runtime/images.hpp"

#include <cstring>
#include <stdexcept>

#include "runtime/device.hpp"

namespace t4 {
namespace {

constexpr uint32_t fat_binary_magic = 0xba55ed50;
constexpr uint16_t kind_of_ptx = 1, kind_of_elf = 2;

struct FatBinary {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  ///< of all entries
};
struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t unused[3];
  uint32_t capability;
};
struct Wrapper {
  int magic, version;
  const uint8_t* data;
};

bool is_elf(const uint8_t* data) {
  return std::memcmp(data,
                     "\x7f"
                     "ELF",
                     4) == 0;
}

}  // namespace

std::vector<uint8_t> find_cubin(const uint8_t* fat_binary, int wanted) {
  FatBinary header;
  std::memcpy(&header, fat_binary, sizeof header);
  if (header.magic != fat_binary_magic) throw std::runtime_error("the program's code is not in a fat binary");
  std::string found;
  bool is_compressed = false;
  std::vector<uint8_t> best;
  int best_capability = 0;
  const uint8_t* const end = fat_binary + header.header_bytes + header.bytes;
  for (const uint8_t* at = fat_binary + header.header_bytes; at + sizeof(Entry) <= end;) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    const uint8_t* const data = at + entry.header_bytes;
    const auto capability = static_cast<int>(entry.capability);
    at = data + entry.bytes;
    found += (found.empty() ? "" : ", ") + std::string(entry.kind == kind_of_ptx ? "PTX for sm_" : "sm_") +
             std::to_string(capability);
    if (entry.kind != kind_of_elf || capability / 10 != wanted / 10 || capability > wanted) continue;
    if (!is_elf(data)) {
      is_compressed = true;
    } else if (capability > best_capability) {
      best_capability = capability;
      best.assign(data, data + size_of(data));
    }
  }
  if (!best.empty()) return best;
  if (is_compressed)
    throw std::runtime_error("the code for sm_" + std::to_string(wanted) +
                             " is compressed: build the program with nvcc's option -no-compress");
  const std::string number = std::to_string(wanted);
  throw std::runtime_error("no code for sm_" + number + ": expected -gencode arch=compute_" + number + ",code=sm_" +
                           number + ", got " + (found.empty() ? "none" : found));
}

Module& Image::module() {
  if (!module_) {
    Wrapper wrapper;
    std::memcpy(&wrapper, wrapper_, sizeof wrapper);
    module_ = std::make_unique<Module>(load_cubin(find_cubin(wrapper.data, capability())));
  }
  return *module_;
}

}  // namespace t4
