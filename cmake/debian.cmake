# SPDX-License-Identifier: Apache-2.0
#
# cpack -G DEB: warprank-headers, and libwarprank-dev with the compiled host engine. The same bytes each time where
# SOURCE_DATE_EPOCH is set: scripts/package.sh.
set(CPACK_PACKAGE_NAME warprank)
set(CPACK_PACKAGE_CONTACT "The warprank authors <warprank@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL headers dev)
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
include(CPack)
