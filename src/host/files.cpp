// SPDX-License-Identifier: Apache-2.0

/// Of warprank::host: weights, tables, and what else is read from files.
#include <warprank/engine/table_source_definitions.hpp>
#include <warprank/engine/tuning_folder_definitions.hpp>
#include <warprank/engine/tuning_json_definitions.hpp>
#include <warprank/hash_table/build_definitions.hpp>
#include <warprank/model/graph_json_definitions.hpp>
#include <warprank/weights/safetensors_definitions.hpp>
#include <warprank/weights/weights_definitions.hpp>
