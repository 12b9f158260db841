// SPDX-License-Identifier: Apache-2.0

#include <warprank/core/dtype.hpp>

int main() { return warprank::to_float(warprank::to_half(0.5f)) == 0.5f ? 0 : 1; }
