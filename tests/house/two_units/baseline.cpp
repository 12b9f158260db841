// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "../tiny_model.hpp"
#include "all_headers.hpp"

std::vector<float> scores_of_the_avx2_unit();

int main() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::puts("skipped: this machine cannot run the unit that is built for AVX2");
    return 0;
  }
#endif
  const std::vector<float> scores = score_with_tiny_model();
  if (!are_right(scores)) return std::puts("wrong scores"), 1;
  if (scores != scores_of_the_avx2_unit()) return std::puts("the units give different scores"), 1;
  return 0;
}
