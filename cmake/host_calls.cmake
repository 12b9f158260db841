# SPDX-License-Identifier: Apache-2.0
find_package(Python3 3.10 COMPONENTS Interpreter)

# A target that calls a __device__ function on the host is not built: scripts/check_host_calls.py.
function(refuse_device_calls_on_host target)
  if(Python3_FOUND)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND_EXPAND_LISTS
                       COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/check_host_calls.py
                               $<TARGET_OBJECTS:${target}>)
  endif()
endfunction()
