# SPDX-License-Identifier: Apache-2.0
#
# An overlay port of the source tree that it lies in:
#   vcpkg install warprank --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
vcpkg_check_features(OUT_FEATURE_OPTIONS companions FEATURES
  store WARPRANK_WITH_STORE
  redis WARPRANK_WITH_REDIS
  ids WARPRANK_WITH_IDS
  serving WARPRANK_WITH_SERVING)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DWARPRANK_BUILD_TESTS=OFF -DWARPRANK_BUILD_BENCHMARKS=OFF -DWARPRANK_BUILD_EXAMPLES=OFF ${companions})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/warprank)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
     "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
