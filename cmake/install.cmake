# SPDX-License-Identifier: Apache-2.0
#
# Installs the headers, the compiled host engine and the package that find_package(warprank) reads.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/warprank)

install(DIRECTORY include/warprank DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS warprank warprank_host EXPORT warprankTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT warprankTargets NAMESPACE warprank:: DESTINATION ${package_dir})
if(WARPRANK_CUDA)
  install(TARGETS warprank_cuda warprank_cuda_engine EXPORT warprankCudaTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT warprankCudaTargets NAMESPACE warprank:: DESTINATION ${package_dir})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/warprankConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/warprankConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break what an earlier one offered.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/warprankConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/warprankConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/warprankConfigVersion.cmake
        DESTINATION ${package_dir})
