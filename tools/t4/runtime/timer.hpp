// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace t4 {

class Timer {
 public:
  double microseconds() const { return microseconds_; }
  void add(double microseconds) { microseconds_ += microseconds; }

 private:
  double microseconds_ = 0;
};

}  // namespace t4
