// SPDX-License-Identifier: Apache-2.0

#include "all_headers.hpp"

int main() { return 0; }
