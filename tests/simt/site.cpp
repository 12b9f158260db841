// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "simt/race.hpp"

namespace simt::race {
namespace {

/// The file and line of an instruction, from the program's debug information.
std::string line_of(const void* instruction) {
  Dl_info object{};
  if (dladdr(instruction, &object) == 0 || object.dli_fname == nullptr) return "unknown line";
  // The call that reported the access lies before the address it returns to.
  auto address = reinterpret_cast<uintptr_t>(instruction) - 1;
  for (const bool relative : {true, false}) {  // position-independent programs count from their base
    char command[1024];
    const uintptr_t base = relative ? reinterpret_cast<uintptr_t>(object.dli_fbase) : 0;
    std::snprintf(command, sizeof command, "addr2line -e '%s' 0x%zx 2>/dev/null", object.dli_fname, address - base);
    std::string line;
    if (FILE* output = popen(command, "r")) {
      std::array<char, 512> text;
      if (std::fgets(text.data(), text.size(), output) != nullptr) line = text.data();
      pclose(output);
    }
    line = line.substr(0, line.find_first_of(" \n"));  // a discriminator may follow
    if (!line.empty() && line[0] != '?') return line;
  }
  return "unknown line";
}

}  // namespace

std::string Site::text() const {
  if (instruction != nullptr) return line_of(instruction);
  return std::string(here.file) + ":" + std::to_string(here.line);
}

}  // namespace simt::race
