# SPDX-License-Identifier: Apache-2.0
#
# cpack -G DEB: warprank-headers, libwarprank-dev with the compiled host engine, and a package for the headers of each
# companion, as warprank-store-headers. The same bytes each time where SOURCE_DATE_EPOCH is set: scripts/package.sh.
set(CPACK_PACKAGE_NAME warprank)
set(CPACK_PACKAGE_CONTACT "The warprank authors <warprank@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL headers dev ${warprank_companions})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS  # whatever the umask
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)

set(CPACK_DEBIAN_HEADERS_PACKAGE_NAME warprank-headers)
set(CPACK_DEBIAN_HEADERS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_HEADERS_PACKAGE_DEPENDS "libhwy-dev (>= 1.0.3), nlohmann-json3-dev (>= 3.11)")
set(CPACK_COMPONENT_HEADERS_DESCRIPTION "Fused primitives and a graph executor for ranking: headers")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libwarprank-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "warprank-headers (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Fused primitives and a graph executor for ranking: the compiled host engine")

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/warprank-headers RENAME copyright COMPONENT headers)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libwarprank-dev RENAME copyright COMPONENT dev)
foreach(companion IN LISTS warprank_companions)
  set(package warprank-${companion}-headers)
  string(TOUPPER ${companion} name)
  set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${name}_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "warprank-headers (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_${name}_DESCRIPTION "Fused primitives and a graph executor for ranking: ${companion}")
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright COMPONENT ${companion})
endforeach()
set(CPACK_DEBIAN_STORE_PACKAGE_SUGGESTS libhiredis-dev)  # warprank::redis
include(CPack)
