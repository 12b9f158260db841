# SPDX-License-Identifier: Apache-2.0
"""The system's Highway as a package of ConanCenter's shape, for scripts/check_packages.sh: its components and options,
without the CMake package that Highway has of its own. It is shared, as Debian has it, where ConanCenter's is static."""

import glob
import os

from conan import ConanFile
from conan.tools.files import copy


class Highway(ConanFile):
    name = "highway"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "with_test": [True, False]}
    default_options = {"shared": True, "fPIC": True, "with_test": False}

    def package(self):
        copy(self, "hwy/*", "/usr/include", os.path.join(self.package_folder, "include"))
        for library in ("libhwy.so", "libhwy_contrib.so"):
            folder = os.path.dirname(glob.glob(f"/usr/lib/*/{library}")[0])
            copy(self, library + "*", folder, os.path.join(self.package_folder, "lib"))

    def package_info(self):
        hwy = self.cpp_info.components["hwy"]
        hwy.set_property("pkg_config_name", "libhwy")
        hwy.libs = ["hwy"]
        hwy.defines = ["HWY_SHARED_DEFINE"]
        contrib = self.cpp_info.components["hwy_contrib"]
        contrib.set_property("pkg_config_name", "libhwy-contrib")
        contrib.libs = ["hwy_contrib"]
        contrib.requires = ["hwy"]
