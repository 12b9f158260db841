# SPDX-License-Identifier: Apache-2.0
#
# A fuzz target is tests/<path>_fuzz.cpp; its corpus is the folder tests/<path>_corpus. The tests replay the corpus with
# any compiler, and with the sanitizers on every change; WARPRANK_BUILD_FUZZERS builds what searches further, each for
# WARPRANK_FUZZ_SECONDS under ctest.
set(WARPRANK_FUZZ_SECONDS 60 CACHE STRING "How long ctest runs each fuzz target")

file(GLOB_RECURSE fuzz_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests
     ${PROJECT_SOURCE_DIR}/tests/*_fuzz.cpp)
if(NOT warprank_has_server)
  list(FILTER fuzz_sources EXCLUDE REGEX "_grpc_fuzz\\.cpp$")
endif()
if(NOT WARPRANK_WITH_SERVER)
  list(FILTER fuzz_sources EXCLUDE REGEX "^examples/server_")
endif()
list(TRANSFORM fuzz_sources PREPEND ${PROJECT_SOURCE_DIR}/tests/)
leave_out_companions(fuzz_sources)
list(TRANSFORM fuzz_sources REPLACE "^${PROJECT_SOURCE_DIR}/tests/" "")
# Those of the server, examples/server_*_grpc_fuzz.cpp, need its messages, too.
function(link_fuzz_target target source)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(source MATCHES "_grpc_fuzz\\.cpp$")
    target_link_libraries(${target} PRIVATE warprank_inference_proto)
    target_compile_features(${target} PRIVATE cxx_std_20)
  endif()
endfunction()
add_custom_target(memory_replays)
foreach(source IN LISTS fuzz_sources)
  string(REGEX REPLACE "_fuzz\\.cpp$" "" path ${source})
  string(REPLACE "/" "_" name ${path})
  set(corpus ${PROJECT_SOURCE_DIR}/tests/${path}_corpus)

  if(WARPRANK_BUILD_TESTS)
    add_executable(${name}_replay ${PROJECT_SOURCE_DIR}/tests/${source} ${PROJECT_SOURCE_DIR}/tests/replay_main.cpp)
    target_link_libraries(${name}_replay PRIVATE warprank::host warprank_strict)
    link_fuzz_target(${name}_replay ${source})
    target_compile_options(${name}_replay PRIVATE -O0)  # takes longer to compile than to run
    add_test(NAME ${name}_replay COMMAND ${name}_replay ${corpus})
    set_tests_properties(${name}_replay PROPERTIES LABELS "unit;memory;wide")
    add_dependencies(memory_replays ${name}_replay)
  endif()

  if(WARPRANK_BUILD_FUZZERS)
    set(found ${PROJECT_BINARY_DIR}/found/${name})
    file(MAKE_DIRECTORY ${found})
    add_executable(${name}_fuzz ${PROJECT_SOURCE_DIR}/tests/${source})
    target_link_libraries(${name}_fuzz PRIVATE warprank::warprank warprank_strict)
    link_fuzz_target(${name}_fuzz ${source})
    target_compile_options(${name}_fuzz PRIVATE -g -O1 -UNDEBUG -fsanitize=fuzzer,address,undefined
                                                -fno-sanitize-recover=all)
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
    # New inputs go to the first folder; one that fails is left beside it.
    add_test(NAME ${name}_fuzz COMMAND ${name}_fuzz -max_total_time=${WARPRANK_FUZZ_SECONDS} -timeout=20
                                       -rss_limit_mb=4096 -artifact_prefix=${found}- ${found} ${corpus})
    math(EXPR timeout "${WARPRANK_FUZZ_SECONDS} + 120")
    set_tests_properties(${name}_fuzz PROPERTIES LABELS fuzz TIMEOUT ${timeout})
  endif()
endforeach()
