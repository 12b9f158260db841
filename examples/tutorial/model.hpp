// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The model of docs/TUTORIAL.md; train.py has the same in PyTorch.

#include "warprank/model.hpp"

namespace tutorial {

using namespace warprank;

/// P(watch) of each video for a viewer, from the last videos that the viewer watched, the region and the hour.
inline Outputs watch(Builder& b) {
  auto viewer = b.axis("viewer");
  auto video = b.axis("video", viewer), watched = b.axis("watched", viewer, keep_last(20));

  auto videos = b.table("videos", {.dim = 16}), regions = b.table("regions", {.dim = 4});
  auto taste = b.embed_bag(b.ids("watched_id", watched), videos, mean);
  auto about_viewer = b.concat({taste, b.embed(b.ids("region", viewer), regions), b.dense("hour", viewer, 2)});
  auto candidate = b.embed(b.ids("video_id", video), videos);

  auto x = b.concat({b.expand(about_viewer, video), candidate, b.expand(taste, video) * candidate});
  return {{"watch", b.sigmoid(b.mlp("tower", x, {64, 32, 1}))}};
}

}  // namespace tutorial
