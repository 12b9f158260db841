# SPDX-License-Identifier: Apache-2.0
#
# Installs, by components:
#   headers  the headers, warprank::warprank for find_package(warprank), warprank for pkg-config
#   dev      the compiled host engine: warprank::host, warprank-host
#   cuda     with WARPRANK_CUDA: warprank::cuda, warprank::cuda_engine
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/warprank)

install(DIRECTORY include/warprank DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT headers)
install(TARGETS warprank EXPORT warprankTargets COMPONENT headers INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT warprankTargets NAMESPACE warprank:: DESTINATION ${package_dir} COMPONENT headers)
install(TARGETS warprank_host EXPORT warprankHostTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT warprankHostTargets NAMESPACE warprank:: DESTINATION ${package_dir} COMPONENT dev)
if(WARPRANK_CUDA)
  install(TARGETS warprank_cuda warprank_cuda_engine EXPORT warprankCudaTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
  install(EXPORT warprankCudaTargets NAMESPACE warprank:: DESTINATION ${package_dir} COMPONENT cuda)
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/warprankConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/warprankConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break what an earlier one offered.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/warprankConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/hiredis.cmake RENAME warprankHiredis.cmake
        DESTINATION ${package_dir} COMPONENT headers)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/warprankConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/warprankConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT headers)

# pkg-config finds the prefix from where its files are.
foreach(name_and_folder IN ITEMS "warprank;${CMAKE_INSTALL_DATADIR};headers" "warprank-host;${CMAKE_INSTALL_LIBDIR};dev")
  list(GET name_and_folder 0 name)
  list(GET name_and_folder 1 folder)
  list(GET name_and_folder 2 component)
  file(RELATIVE_PATH to_prefix /${folder}/pkgconfig /)
  string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${folder}/pkgconfig COMPONENT ${component})
endforeach()
