// SPDX-License-Identifier: Apache-2.0

/// Two shared libraries that both have the CUDA engine, in one program: each uses its own kernels, whose names are the
/// same. Without a device both say so.

#include <iostream>

#include "two_libraries/library.hpp"

int main() {
  const Outcome outcomes[] = {score_in_first_library(), score_in_second_library(), score_in_first_library()};
  if (outcomes[0].engine == outcomes[1].engine || outcomes[0].engine != outcomes[2].engine) {
    std::cerr << "the libraries share an engine\n";
    return 1;
  }
  for (const Outcome& outcome : outcomes) {
    if (!outcome.is_own) {
      std::cerr << "a library's device is of another library's engine\n";
      return 1;
    }
    if (outcome.num_devices > 0 && !outcome.is_right) {
      std::cerr << "wrong scores; " << outcome.error << '\n';
      return 1;
    }
    if (outcome.num_devices == 0 && outcome.error.find("CUDA error") == std::string::npos) {
      std::cerr << "expected an error of CUDA without a device, got '" << outcome.error << "'\n";
      return 1;
    }
  }
  if (outcomes[0].num_devices > 0) return 0;
  std::cout << "no GPU: nothing was scored, and both libraries said so: " << outcomes[0].error << '\n';
  return 77;
}
