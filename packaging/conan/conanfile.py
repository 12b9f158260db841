# SPDX-License-Identifier: Apache-2.0
"""conan create packaging/conan"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Warprank(ConanFile):
    name = "warprank"
    description = "Fused primitives and a graph executor for click-through-rate ranking"
    license = "Apache-2.0"
    topics = ("ranking", "recommendation", "inference", "header-only")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"fPIC": [True]}  # the compiled engine goes into shared libraries, too
    default_options = {"fPIC": True}

    @property
    def root(self):
        return os.path.dirname(os.path.dirname(self.recipe_folder))

    def set_version(self):
        header = load(self, os.path.join(self.root, "include/warprank/version.hpp"))
        self.version = ".".join(re.search(rf"{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        for pattern in ("include/*", "cmake/*", "CMakeLists.txt", "LICENSE"):
            copy(self, pattern, self.root, self.export_sources_folder)

    def requirements(self):
        self.requires("highway/[>=1.0.3 <2]", transitive_headers=True)
        self.requires("nlohmann_json/[>=3.11 <4]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 17)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES"):
            toolchain.cache_variables[f"WARPRANK_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The package has a CMake package of its own: targets are said once.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/warprank"]
        self.cpp_info.libs = ["warprank_host"]
        self.cpp_info.defines = ["WARPRANK_HOST_COMPILED"]
