// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

struct Outcome {
  const void* engine = nullptr;
  bool is_own = false;  ///< cuda() means that engine
  int num_devices = 0;
  bool is_right = false;
  std::string error;
};

Outcome score_in_first_library();
Outcome score_in_second_library();
