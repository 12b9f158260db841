# SPDX-License-Identifier: Apache-2.0
"""The system's nlohmann-json as a package of ConanCenter's shape, for scripts/check_packages.sh: headers alone, and names
for CMake that are those of its own CMake package."""

import os

from conan import ConanFile
from conan.tools.files import copy


class NlohmannJson(ConanFile):
    name = "nlohmann_json"
    package_type = "header-library"

    def package(self):
        copy(self, "nlohmann/*", "/usr/include", os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "nlohmann_json")
        self.cpp_info.set_property("cmake_target_name", "nlohmann_json::nlohmann_json")
        self.cpp_info.set_property("pkg_config_name", "nlohmann_json")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
