# SPDX-License-Identifier: Apache-2.0
"""conan create packaging/conan"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir, save


class Warprank(ConanFile):
    name = "warprank"
    description = "Fused primitives and a graph executor for click-through-rate ranking"
    license = "Apache-2.0"
    topics = ("ranking", "recommendation", "inference", "header-only")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "fPIC": [True],  # the compiled engine goes into shared libraries, too
        "store": [True, False],
        "ids": [True, False],
        "serving": [True, False],
        "redis": [True, False],  # warprank::redis, for which users need hiredis
    }
    default_options = {"fPIC": True, "store": True, "ids": True, "serving": True, "redis": False}
    companions = ("store", "ids", "serving")  # with headers
    features = "cmake/features.cmake"  # in the package, for CMake alone

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
        if self.options.redis:
            self.requires("hiredis/[>=0.14 <2]", transitive_headers=True)

    def package_id(self):
        # What is compiled knows nothing of Redis.
        if self.info.options.redis:
            self.info.requires.remove("hiredis")
        del self.info.options.redis

    def validate(self):
        check_min_cppstd(self, 17)
        if self.options.redis and not self.options.store:
            raise ConanInvalidConfiguration("redis: expected store, got none")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        # The package in ConanCenter has Conan's names; this tree asks for those of Highway's own CMake package.
        dependencies = CMakeDeps(self)
        dependencies.set_property("highway", "cmake_file_name", "hwy")
        dependencies.set_property("highway::hwy", "cmake_target_name", "hwy::hwy")
        dependencies.generate()
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES"):
            toolchain.cache_variables[f"WARPRANK_BUILD_{part}"] = False
        for companion in self.companions:
            toolchain.cache_variables[f"WARPRANK_WITH_{companion.upper()}"] = bool(self.options.get_safe(companion))
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        # Conan's generators write these again, with the names that the dependencies have there.
        rmdir(self, os.path.join(self.package_folder, "share"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        save(self, os.path.join(self.package_folder, self.features),
             "target_compile_features(warprank::warprank INTERFACE cxx_std_17)\n")

    def package_info(self):
        # As write_basic_package_version_file in cmake/install.cmake has it.
        self.cpp_info.set_property("cmake_config_version_compat", "SameMinorVersion")
        self.cpp_info.set_property("cmake_build_modules", [self.features])
        # Conan makes a target of all components, whose name would be that of the headers.
        self.cpp_info.set_property("cmake_target_name", "warprank::all")
        self.cpp_info.set_property("pkg_config_name", "warprank-all")

        headers = self.cpp_info.components["headers"]
        headers.set_property("cmake_target_name", "warprank::warprank")
        headers.set_property("pkg_config_name", "warprank")
        headers.requires = ["highway::hwy", "nlohmann_json::nlohmann_json"]
        headers.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            headers.system_libs = ["pthread"]

        host = self.cpp_info.components["host"]
        host.set_property("cmake_target_name", "warprank::host")
        host.set_property("pkg_config_name", "warprank-host")
        host.requires = ["headers"]
        host.libs = ["warprank_host"]
        host.defines = ["WARPRANK_HOST_COMPILED"]

        for companion in self.companions:
            if self.options.get_safe(companion):
                component = self.cpp_info.components[companion]
                component.set_property("cmake_target_name", f"warprank::{companion}")
                component.set_property("pkg_config_name", f"warprank-{companion}")
                component.requires = ["headers"]
                component.libdirs = []

        if self.options.redis:
            redis = self.cpp_info.components["redis"]
            redis.set_property("cmake_target_name", "warprank::redis")
            redis.set_property("pkg_config_name", "warprank-redis")
            redis.requires = ["store", "hiredis::hiredislib"]
            redis.libdirs = []
