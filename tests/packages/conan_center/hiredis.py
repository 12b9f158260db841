# SPDX-License-Identifier: Apache-2.0
"""The system's hiredis as a package of ConanCenter's shape, as highway.py is."""

import glob
import os

from conan import ConanFile
from conan.tools.files import copy


class Hiredis(ConanFile):
    name = "hiredis"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def package(self):
        copy(self, "hiredis/*", "/usr/include", os.path.join(self.package_folder, "include"))
        folder = os.path.dirname(glob.glob("/usr/lib/*/libhiredis.so")[0])
        copy(self, "libhiredis.so*", folder, os.path.join(self.package_folder, "lib"))

    def package_info(self):
        library = self.cpp_info.components["hiredislib"]
        library.set_property("cmake_target_name", "hiredis::hiredis")
        library.set_property("pkg_config_name", "hiredis")
        library.libs = ["hiredis"]
