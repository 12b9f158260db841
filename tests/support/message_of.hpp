// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace warprank::test_support {

/// What a call throws, or "".
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace warprank::test_support
