# SPDX-License-Identifier: Apache-2.0
#
# Installs, by components:
#   headers  the headers of the core, warprank::warprank for find_package(warprank), warprank for pkg-config
#   dev      the compiled host engine: warprank::host, warprank-host
#   cuda     with WARPRANK_CUDA: warprank::cuda, warprank::cuda_engine
#   store, ids, serving  the headers of a companion: warprank::store, warprank-store; store has Redis, too
#   server   the program warprank-server, where it is built
#   clients  the program warprank-rank, where it is built; the client for Python, and the protocol
# cmake/companions.cmake has the options without which companions are not.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/warprank)

install(DIRECTORY include/warprank DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT headers
        REGEX "/include/warprank/(store|ids|serving)(\\.hpp)?$" EXCLUDE)
install(TARGETS warprank EXPORT warprankTargets COMPONENT headers INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT warprankTargets NAMESPACE warprank:: DESTINATION ${package_dir} COMPONENT headers)
install(TARGETS warprank_host EXPORT warprankHostTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT warprankHostTargets NAMESPACE warprank:: DESTINATION ${package_dir} COMPONENT dev)
set(without_redis)
if(NOT WARPRANK_WITH_REDIS)
  set(without_redis REGEX "/include/warprank/store/redis" EXCLUDE)
endif()
foreach(companion IN LISTS warprank_companions)
  install(DIRECTORY include/warprank/${companion} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/warprank COMPONENT ${companion}
          ${without_redis})
  install(FILES include/warprank/${companion}.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/warprank COMPONENT ${companion}
          OPTIONAL)
  install(TARGETS warprank_${companion} EXPORT warprank_${companion} COMPONENT ${companion})
  install(EXPORT warprank_${companion} FILE warprank_${companion}Targets.cmake NAMESPACE warprank::
          DESTINATION ${package_dir} COMPONENT ${companion})
endforeach()
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
if(WARPRANK_WITH_STORE AND WARPRANK_WITH_REDIS)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/hiredis.cmake RENAME warprankHiredis.cmake
          DESTINATION ${package_dir} COMPONENT store)
endif()
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/warprankConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/warprankConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT headers)

# pkg-config finds the prefix from where its files are.
function(install_pkg_config template name folder component)
  file(RELATIVE_PATH to_prefix /${folder}/pkgconfig /)
  string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${template}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${folder}/pkgconfig COMPONENT ${component})
endfunction()
install_pkg_config(warprank warprank ${CMAKE_INSTALL_DATADIR} headers)
install_pkg_config(warprank-host warprank-host ${CMAKE_INSTALL_LIBDIR} dev)
foreach(companion IN LISTS warprank_companions)
  install_pkg_config(warprank-companion warprank-${companion} ${CMAKE_INSTALL_DATADIR} ${companion})
endforeach()

# What examples/ has built of these.
if(TARGET server)
  install(PROGRAMS $<TARGET_FILE:server> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME warprank-server COMPONENT server
          OPTIONAL)
endif()
if(TARGET rank_client)
  install(PROGRAMS $<TARGET_FILE:rank_client> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME warprank-rank COMPONENT clients
          OPTIONAL)
endif()
if(WARPRANK_WITH_CLIENTS)
  install(FILES tools/client/warprank_client.py tools/client/rank.py examples/server/inference.proto
          DESTINATION ${CMAKE_INSTALL_DATADIR}/warprank/client COMPONENT clients)
endif()
