// SPDX-License-Identifier: Apache-2.0

bool ranks_on_a_gpu();

int main() { return ranks_on_a_gpu() ? 0 : 1; }
