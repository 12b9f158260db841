// SPDX-License-Identifier: Apache-2.0

#include <warprank/core/buffer.hpp>
#include <warprank/core/dtype.hpp>
#include <warprank/core/error.hpp>
#include <warprank/core/view.hpp>
