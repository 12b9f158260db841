// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "program/cubin.hpp"

namespace t4 {

/// The code that a program brings: what __cudaRegisterFatBinary is given. Read when it is first needed.
class Image {
 public:
  explicit Image(const void* wrapper) : wrapper_(wrapper) {}

  /// Throws std::runtime_error: no code for the card that can be read, and what there is instead.
  Module& module();

 private:
  const void* wrapper_;
  std::unique_ptr<Module> module_;
};

/// Of the entries of a fat binary the cubin that a card of a compute capability, as 75, would run.
std::vector<uint8_t> find_cubin(const uint8_t* fat_binary, int wanted);

}  // namespace t4
