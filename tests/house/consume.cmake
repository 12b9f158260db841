# SPDX-License-Identifier: Apache-2.0
#
# Configures, builds and runs the project in PROJECT, consumer or cuda_consumer, against the library, HOW = find_package
# (installed to a folder of its own first), core_alone (the same of a build whose companions are off) or add_subdirectory.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed")
  endif()
endfunction()

# Refuses what was found of a companion.
function(expect_none what found)
  if(found)
    message(FATAL_ERROR "${what}: expected nothing of a companion that is off, got ${found}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
if(HOW STREQUAL "core_alone")
  set(library ${WORK_DIR}/library)
  set(off)
  foreach(companion IN ITEMS STORE REDIS IDS SERVING SERVER CLIENTS PYTHON)
    list(APPEND off -D WARPRANK_WITH_${companion}=OFF)
  endforeach()
  set(how -G ${GENERATOR} -D CMAKE_BUILD_TYPE=${BUILD_TYPE} -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${CXX_FLAGS}
      -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${off})
  run(${CMAKE_COMMAND} -S ${WARPRANK_SOURCE_DIR} -B ${library} ${how} -D WARPRANK_BUILD_TESTS=OFF
      -D WARPRANK_BUILD_BENCHMARKS=OFF -D WARPRANK_BUILD_EXAMPLES=OFF)
  run(${CMAKE_COMMAND} --build ${library})
  run(${CMAKE_COMMAND} --install ${library} --prefix ${WORK_DIR}/prefix)
  file(STRINGS ${library}/CMakeCache.txt looked_for
       REGEX "^(WARPRANK_HIREDIS|WARPRANK_GRPC|GRPCPP|HTTPLIB|Protobuf|PKG_CONFIG|nanobind|Python)")
  expect_none("what is looked for" "${looked_for}")
  file(GLOB_RECURSE installed RELATIVE ${WORK_DIR}/prefix ${WORK_DIR}/prefix/*)
  list(FILTER installed INCLUDE REGEX
       "/warprank/(store|ids|serving)[/.]|/warprank[-_](store|ids|serving)|[Hh]iredis|^bin/|\\.(py|proto)$")
  expect_none("what is installed" "${installed}")
  # Tests, benchmarks and examples, which are not built: what they would build of a companion.
  run(${CMAKE_COMMAND} -S ${WARPRANK_SOURCE_DIR} -B ${WORK_DIR}/all ${how} -D WARPRANK_BUILD_TESTS=ON
      -D WARPRANK_BUILD_BENCHMARKS=ON -D WARPRANK_BUILD_EXAMPLES=ON)
  file(GLOB_RECURSE units ${WORK_DIR}/all/*/Unity/*.cxx ${WORK_DIR}/all/build.ninja)
  foreach(unit IN LISTS units)
    file(STRINGS ${unit} built REGEX "tests/(store|ids|serving)/|tools/load_redis/|\
examples/(server|rank_client|tiers|cookbook|embed_in_service)/[^ ]*\\.cpp")
    expect_none("what ${unit} builds" "${built}")
  endforeach()
  set(where -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix -D CORE_ALONE=ON)
elseif(HOW STREQUAL "find_package")
  run(${CMAKE_COMMAND} --install ${WARPRANK_BINARY_DIR} --prefix ${WORK_DIR}/prefix)
  set(where -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
else()
  # As a part of the consumer's tree, but for the engine, which the build of this one has compiled.
  set(where -D WARPRANK_SOURCE_DIR=${WARPRANK_SOURCE_DIR} -D WARPRANK_HOST_ARCHIVE=${HOST_ARCHIVE})
endif()
if(CUDA_ARCHITECTURES)
  list(APPEND where -D CMAKE_CUDA_COMPILER=${CUDA} -D CMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES})
endif()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/${PROJECT} -B ${WORK_DIR}/build -G ${GENERATOR} ${where}
    -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${CXX_FLAGS} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
# The engine in a unit of its own is long to compile, and no other by add_subdirectory, which is tried with the one that
# the folder added compiles.
set(programs with_compiled_engine)
if(NOT HOW STREQUAL "add_subdirectory")
  list(APPEND programs with_headers)
endif()
if(PROJECT STREQUAL "consumer" AND NOT HOW STREQUAL "core_alone")
  list(APPEND programs with_companions)
endif()
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --target ${programs})
foreach(program IN LISTS programs)
  run(${WORK_DIR}/build/${program})
endforeach()
