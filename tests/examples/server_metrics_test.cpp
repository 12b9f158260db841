// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <array>

#include "../../examples/server/metrics.hpp"

namespace kserve { namespace {

TEST(MetricsText, IsWhatPrometheusReads) {
  MetricsText text;
  text.begin("a_total", "counter", "How many.");
  text.add(3, {{"model", "x\"y\\z\n"}});
  text.begin("b", "gauge", "How much.");
  text.add(0.25);
  Histogram<3> histogram(std::array<double, 3>{0.001, 0.01, 1});
  for (const double value : {0.0005, 0.001, 0.5, 2.0}) histogram.add(value);
  text.begin("c_seconds", "histogram", "How long.");
  text.add(histogram, {{"model", "m"}});
  EXPECT_EQ(text.text(), R"(# HELP a_total How many.
# TYPE a_total counter
a_total{model="x\"y\\z\n"} 3
# HELP b How much.
# TYPE b gauge
b 0.25
# HELP c_seconds How long.
# TYPE c_seconds histogram
c_seconds_bucket{model="m",le="0.001"} 2
c_seconds_bucket{model="m",le="0.01"} 2
c_seconds_bucket{model="m",le="1"} 3
c_seconds_bucket{model="m",le="+Inf"} 4
c_seconds_sum{model="m"} 2.5015
c_seconds_count{model="m"} 4
)");
}

}}  // namespace kserve
