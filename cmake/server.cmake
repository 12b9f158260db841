# SPDX-License-Identifier: Apache-2.0
#
# What examples/server, examples/rank_client and their tests need besides: the protocol's messages, compiled by protoc.
# Defines the target warprank_inference_proto where gRPC is found, and cpp-httplib, which it links with, and says by
# warprank_has_server and warprank_has_clients which of them it is for.
set(warprank_has_server FALSE)
set(warprank_has_clients FALSE)
set(with_server ${WARPRANK_WITH_SERVER})
if(with_server AND NOT (WARPRANK_WITH_STORE AND WARPRANK_WITH_SERVING))
  warprank_need(WARPRANK_WITH_SERVER "WARPRANK_WITH_STORE and WARPRANK_WITH_SERVING")
  set(with_server OFF)
endif()
if(NOT (with_server OR WARPRANK_WITH_CLIENTS))
  return()
endif()

find_package(Protobuf QUIET)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(GRPCPP QUIET IMPORTED_TARGET grpc++)
  pkg_check_modules(HTTPLIB QUIET IMPORTED_TARGET cpp-httplib>=0.11 cpp-httplib<0.19)  # streams are others from there on
endif()
find_program(WARPRANK_GRPC_PLUGIN grpc_cpp_plugin)
mark_as_advanced(WARPRANK_GRPC_PLUGIN)
if(NOT (Protobuf_FOUND AND Protobuf_PROTOC_EXECUTABLE AND GRPCPP_FOUND AND HTTPLIB_FOUND AND WARPRANK_GRPC_PLUGIN))
  foreach(option IN ITEMS WARPRANK_WITH_SERVER WARPRANK_WITH_CLIENTS)
    if(${option})
      warprank_need(${option} "gRPC, and cpp-httplib from 0.11 to 0.18: \
apt-get install libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc libcpp-httplib-dev pkg-config")
    endif()
  endforeach()
  return()
endif()
if(with_server)
  set(warprank_has_server TRUE)
endif()
if(WARPRANK_WITH_CLIENTS)
  set(warprank_has_clients TRUE)
endif()

set(proto_folder ${PROJECT_BINARY_DIR}/inference_proto)
set(proto_sources ${proto_folder}/inference.pb.cc ${proto_folder}/inference.grpc.pb.cc)
set(proto_headers ${proto_folder}/inference.pb.h ${proto_folder}/inference.grpc.pb.h)
file(MAKE_DIRECTORY ${proto_folder})
add_custom_command(
  OUTPUT ${proto_sources} ${proto_headers}
  COMMAND ${Protobuf_PROTOC_EXECUTABLE} -I ${PROJECT_SOURCE_DIR}/examples/server --cpp_out=${proto_folder}
          --grpc_out=${proto_folder} --plugin=protoc-gen-grpc=${WARPRANK_GRPC_PLUGIN} inference.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/examples/server/inference.proto
  VERBATIM)
add_library(warprank_inference_proto STATIC EXCLUDE_FROM_ALL ${proto_sources})
target_compile_features(warprank_inference_proto PUBLIC cxx_std_17)
target_compile_definitions(warprank_inference_proto PUBLIC WARPRANK_VERSION="${PROJECT_VERSION}")
target_include_directories(warprank_inference_proto SYSTEM PUBLIC ${proto_folder})
target_link_libraries(warprank_inference_proto PUBLIC protobuf::libprotobuf PkgConfig::GRPCPP PkgConfig::HTTPLIB Threads::Threads)
