// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Elementwise programs that benchmarks of the host and of GPUs run.

#include <string>
#include <vector>

#include "warprank/model/elementwise.hpp"

namespace warprank::bench {

struct NamedProgram {
  std::string name;
  ElementwiseProgram program;
};

inline std::vector<NamedProgram> elementwise_programs() {
  using Function = ElementwiseFunction;
  return {{"product", {2, 0, {}, {{Function::mul, 0, 1}}}},
          {"sigmoid", {1, 0, {}, {{Function::sigmoid, 0}}}},
          {"prelu", {1, 1, {0.0f}, {{Function::mul, 0, 1}, {Function::greater, 0, 2}, {Function::select, 0, 3, 4}}}},
          {"dice",
           {1,
            3,
            {1.0f},
            {{Function::mul, 0, 1},
             {Function::add, 5, 2},
             {Function::sigmoid, 6},
             {Function::sub, 4, 7},
             {Function::mul, 3, 8},
             {Function::add, 7, 9},
             {Function::mul, 0, 10}}}}};
}

}  // namespace warprank::bench
