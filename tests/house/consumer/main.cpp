// SPDX-License-Identifier: Apache-2.0

#include "../tiny_model.hpp"

int main() { return are_right(score_with_tiny_model()) ? 0 : 1; }
