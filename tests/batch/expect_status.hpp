// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "warprank/batch/batch.hpp"

namespace warprank::batch_testing {

inline void expect_status(const Status& status, StatusCode code, const std::string& message) {
  EXPECT_EQ(status.code, code);
  EXPECT_THAT(status.message, testing::HasSubstr(message));
}

}  // namespace warprank::batch_testing
