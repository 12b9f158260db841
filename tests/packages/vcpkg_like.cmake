# SPDX-License-Identifier: Apache-2.0
#
# Runs the vcpkg port's portfile where vcpkg cannot be had, with functions in place of vcpkg's that do what these do for a
# static release build:
#   cmake -D CURRENT_PACKAGES_DIR=... -D BUILD_DIR=... -D "FEATURES=core;store" -P vcpkg_like.cmake
cmake_minimum_required(VERSION 3.22)
set(PORT warprank)
set(port_dir ${CMAKE_CURRENT_LIST_DIR}/../../packaging/vcpkg/${PORT})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_QUIET)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGV}")
  endif()
endfunction()

function(vcpkg_check_linkage)
endfunction()
# ON for those of FEATURES, OFF for others.
function(vcpkg_check_features)
  cmake_parse_arguments(arg "" "OUT_FEATURE_OPTIONS" "FEATURES" ${ARGN})
  set(options)
  while(arg_FEATURES)
    list(POP_FRONT arg_FEATURES feature option)
    if(feature IN_LIST FEATURES)
      list(APPEND options -D${option}=ON)
    else()
      list(APPEND options -D${option}=OFF)
    endif()
  endwhile()
  set(${arg_OUT_FEATURE_OPTIONS} ${options} PARENT_SCOPE)
endfunction()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(arg "" "SOURCE_PATH" "OPTIONS" ${ARGN})
  run(${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${BUILD_DIR} -G Ninja -D CMAKE_BUILD_TYPE=Release
      -D BUILD_SHARED_LIBS=OFF -D CMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} -D CMAKE_INSTALL_LIBDIR=lib
      ${arg_OPTIONS})
endfunction()
function(vcpkg_cmake_install)
  run(${CMAKE_COMMAND} --build ${BUILD_DIR} --target install)
endfunction()
# Moves the CMake package to share/<port>, and mends what it says of the prefix.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(arg "" "CONFIG_PATH" "" ${ARGN})
  set(folder ${CURRENT_PACKAGES_DIR}/share/${PORT})
  file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${folder})
  set(up [=[get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)]=])
  file(GLOB files ${folder}/*.cmake)
  foreach(path IN LISTS files)
    file(READ ${path} text)
    string(REPLACE "${up}\n${up}\n${up}\n" "${up}\n${up}\n" text "${text}")
    string(REPLACE [=[${CMAKE_CURRENT_LIST_DIR}/../../../]=] [=[${CMAKE_CURRENT_LIST_DIR}/../../]=] text "${text}")
    file(WRITE ${path} "${text}")
  endforeach()
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(arg "" "" "FILE_LIST" ${ARGN})
  configure_file(${arg_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright COPYONLY)
endfunction()

file(MAKE_DIRECTORY ${CURRENT_PACKAGES_DIR})
include(${port_dir}/portfile.cmake)
