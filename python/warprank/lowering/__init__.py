# SPDX-License-Identifier: Apache-2.0
"""From the arithmetic of a traced program, of whichever framework, to a graph: what the library has as one op is
recognised here by what is computed."""
