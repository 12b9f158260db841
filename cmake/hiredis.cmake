# SPDX-License-Identifier: Apache-2.0
#
# Looks for hiredis: for a build of this repository, and installed beside the package's configuration for its users.
find_path(WARPRANK_HIREDIS_INCLUDE_DIR hiredis/hiredis.h)
find_library(WARPRANK_HIREDIS_LIBRARY hiredis)
mark_as_advanced(WARPRANK_HIREDIS_INCLUDE_DIR WARPRANK_HIREDIS_LIBRARY)
if(WARPRANK_HIREDIS_INCLUDE_DIR AND WARPRANK_HIREDIS_LIBRARY)
  set(warprank_redis_FOUND TRUE)
else()
  set(warprank_redis_FOUND FALSE)
endif()
