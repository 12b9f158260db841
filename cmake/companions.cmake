# SPDX-License-Identifier: Apache-2.0
#
# What stands on the core, which includes none of it: scripts/check_includes.py. Each has an option. Of what is off
# nothing is built, looked for or installed.
#   store    WARPRANK_WITH_STORE    warprank::store    tables whose rows lie outside of the process
#   redis    WARPRANK_WITH_REDIS    warprank::redis    and in a Redis Cluster; needs hiredis
#   ids      WARPRANK_WITH_IDS      warprank::ids      ids from the values of features
#   serving  WARPRANK_WITH_SERVING  warprank::serving  the queue in front of a served model
#   server   WARPRANK_WITH_SERVER                      examples/server; needs gRPC, cpp-httplib, store and serving
#   clients  WARPRANK_WITH_CLIENTS                     examples/rank_client and tools/client; the first needs gRPC
#   python   WARPRANK_WITH_PYTHON                      the Python package's extension; needs nanobind and ids
option(WARPRANK_WITH_STORE "Tables whose rows lie outside of the process: warprank::store" ON)
option(WARPRANK_WITH_IDS "Ids from the values of features: warprank::ids" ON)
option(WARPRANK_WITH_SERVING "The queue in front of a served model: warprank::serving" ON)
option(WARPRANK_WITH_PYTHON "The extension of the Python package; pip builds it" OFF)
foreach(name_and_text IN ITEMS "REDIS;warprank::redis, where hiredis is found" "SERVER;examples/server, where gRPC is found"
                               "CLIENTS;examples/rank_client, where gRPC is found, and tools/client")
  list(GET name_and_text 0 name)
  list(GET name_and_text 1 text)
  set(WARPRANK_WITH_${name} AUTO CACHE STRING "ON, OFF or AUTO: ${text}")
  set_property(CACHE WARPRANK_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
endforeach()

# Says what an option needs that is not there: an error where it is ON, and no more where it is AUTO.
function(warprank_need option what)
  if(${option} STREQUAL "AUTO")
    message(STATUS "${option}: OFF, as it needs ${what}")
  else()
    message(FATAL_ERROR "${option}: expected ${what}")
  endif()
endfunction()

# Those with headers.
set(warprank_companions)
foreach(companion IN ITEMS store ids serving)
  string(TOUPPER ${companion} name)
  if(WARPRANK_WITH_${name})
    list(APPEND warprank_companions ${companion})
    add_library(warprank_${companion} INTERFACE)
    add_library(warprank::${companion} ALIAS warprank_${companion})
    set_target_properties(warprank_${companion} PROPERTIES EXPORT_NAME ${companion})
    target_link_libraries(warprank_${companion} INTERFACE warprank)
  endif()
endforeach()
list(TRANSFORM warprank_companions PREPEND warprank:: OUTPUT_VARIABLE warprank_companion_targets)

if(WARPRANK_WITH_REDIS)
  if(NOT WARPRANK_WITH_STORE)
    warprank_need(WARPRANK_WITH_REDIS "WARPRANK_WITH_STORE")
  else()
    include(${CMAKE_CURRENT_LIST_DIR}/hiredis.cmake)
    if(NOT warprank_redis_FOUND)
      warprank_need(WARPRANK_WITH_REDIS "hiredis: apt-get install libhiredis-dev")
    else()
      add_library(warprank_redis INTERFACE)
      add_library(warprank::redis ALIAS warprank_redis)
      target_include_directories(warprank_redis SYSTEM INTERFACE ${WARPRANK_HIREDIS_INCLUDE_DIR})
      target_link_libraries(warprank_redis INTERFACE warprank_store ${WARPRANK_HIREDIS_LIBRARY})
    endif()
  endif()
endif()
if(WARPRANK_WITH_PYTHON AND NOT WARPRANK_WITH_IDS)
  warprank_need(WARPRANK_WITH_PYTHON "WARPRANK_WITH_IDS")
endif()

# Takes those sources out of a list that include a companion that is off, themselves or by headers of tests, examples and
# benchmarks. Paths are those of the calling folder.
function(leave_out_companions sources)
  set(absent)
  foreach(companion IN ITEMS store ids serving)
    if(NOT companion IN_LIST warprank_companions)
      list(APPEND absent ${companion})
    endif()
  endforeach()
  if(NOT absent)
    return()
  endif()
  list(JOIN absent "|" absent)
  set(left)
  foreach(source IN LISTS ${sources})
    get_filename_component(open ${source} ABSOLUTE)
    set(seen)
    set(needs FALSE)
    while(open AND NOT needs)
      list(POP_FRONT open file)
      list(APPEND seen ${file})
      get_filename_component(folder ${file} DIRECTORY)
      file(STRINGS ${file} lines REGEX "^ *#include \"")
      foreach(line IN LISTS lines)
        string(REGEX REPLACE "^ *#include \"([^\"]*)\".*" "\\1" header ${line})
        if(header MATCHES "^warprank/(${absent})(/|\\.hpp$)")
          set(needs TRUE)
          break()
        endif()
        foreach(root IN ITEMS ${folder} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/benchmarks
                              ${PROJECT_SOURCE_DIR}/examples ${PROJECT_SOURCE_DIR}/examples/models)
          get_filename_component(path ${root}/${header} ABSOLUTE)
          if(EXISTS ${path} AND NOT path IN_LIST seen AND NOT path IN_LIST open)
            list(APPEND open ${path})
          endif()
        endforeach()
      endforeach()
    endwhile()
    if(NOT needs)
      list(APPEND left ${source})
    endif()
  endforeach()
  set(${sources} ${left} PARENT_SCOPE)
endfunction()
