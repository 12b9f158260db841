// SPDX-License-Identifier: Apache-2.0

#include "../tiny_model.hpp"
#include "all_headers.hpp"

std::vector<float> scores_of_the_avx2_unit() { return score_with_tiny_model(); }
