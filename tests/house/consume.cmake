# SPDX-License-Identifier: Apache-2.0
#
# Configures, builds and runs the project in PROJECT, consumer or cuda_consumer, against the library, HOW = find_package
# (installed to a folder of its own first) or add_subdirectory.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
if(HOW STREQUAL "find_package")
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
if(HOW STREQUAL "find_package")
  list(APPEND programs with_headers)
endif()
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --target ${programs})
foreach(program IN LISTS programs)
  run(${WORK_DIR}/build/${program})
endforeach()
