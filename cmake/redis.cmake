# SPDX-License-Identifier: Apache-2.0
#
# warprank::redis: the headers and hiredis, which store/redis_cluster.hpp needs. Defined where hiredis is found.
set(WARPRANK_REDIS AUTO CACHE STRING "Define warprank::redis: ON, OFF, or AUTO where hiredis is found")
set_property(CACHE WARPRANK_REDIS PROPERTY STRINGS AUTO ON OFF)
if(NOT WARPRANK_REDIS)
  return()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/hiredis.cmake)
if(NOT warprank_redis_FOUND)
  set(message "warprank::redis needs hiredis: apt-get install libhiredis-dev")
  if(WARPRANK_REDIS STREQUAL "AUTO")
    message(STATUS "Not defined: ${message}")
    return()
  endif()
  message(FATAL_ERROR "${message}")
endif()

add_library(warprank_redis INTERFACE)
add_library(warprank::redis ALIAS warprank_redis)
target_include_directories(warprank_redis SYSTEM INTERFACE ${WARPRANK_HIREDIS_INCLUDE_DIR})
target_link_libraries(warprank_redis INTERFACE warprank ${WARPRANK_HIREDIS_LIBRARY})
