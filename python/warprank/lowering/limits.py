# SPDX-License-Identifier: Apache-2.0
"""How much the library makes of what it has no op for."""

MOST_OF_CONVOLUTION = 1 << 22  # numbers of the linear layer that it is
MOST_SORTED = 16  # columns that are sorted, or of which the largest are taken
