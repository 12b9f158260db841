// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The model language. Plain C++: describes models, compiles them to plans, packs batches; runs nothing.

#include "warprank/model/builder.hpp"
#include "warprank/plan/plan.hpp"
