// A detector that a test can train. Programs that include this have the model "tiny_ssd" of COCO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models {

// Has SSD's maps of features and default boxes.
inline nn::Graph tiny_ssd(const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "tiny_ssd"});
  const auto convolution = [&](const std::string& name, nn::GraphBuilder::Value x, nn::Convolution op) {
    op.weight_init = nn::Initializer::he_normal();
    x = b.batch_norm(name + ".bn", b.convolution(name, x, op));
    return b.activation(name + ".relu", x);
  };
  const nn::Padding same = nn::Padding::same();
  auto x = convolution("stem", b.input(), {.out_channels = 16, .kernel = 9, .stride = 8, .padding = same});
  std::vector<nn::GraphBuilder::Value> maps{x};
  for (int i = 0; i < 3; ++i) {
    x = convolution(fmt::format("down{}", i), x, {.out_channels = 24, .kernel = 3, .stride = 2, .padding = same});
    maps.push_back(x);
  }
  for (int i = 3; i < 5; ++i) {
    x = convolution(fmt::format("down{}", i), x, {.out_channels = 24, .kernel = 3, .padding = nn::Padding::valid()});
    maps.push_back(x);
  }
  const std::vector<int64_t> boxes{4, 6, 6, 6, 4, 4};
  std::vector<nn::GraphBuilder::Value> heads;
  for (size_t i = 0; i < maps.size(); ++i) {
    for (const int64_t columns : {int64_t{4}, options.num_classes}) {
      heads.push_back(b.convolution(fmt::format("head{}.{}", i, columns), maps[i],
                                    {.out_channels = boxes[i] * columns,
                                     .kernel = 3,
                                     .padding = same,
                                     .bias = true,
                                     .weight_init = nn::Initializer::truncated_normal(0.01)}));
    }
  }
  return b.build(b.box_rows("boxes", heads, {.coordinates = 4, .classes = options.num_classes}));
}

inline const ModelRegistration kTinySsd({.name = "tiny_ssd",
                                         .family = DatasetFamily::kCoco,
                                         .task = Task::kDetection,
                                         .image_size = 300,
                                         .default_batch_size = 4,
                                         .schedule = {.learning_rate = 0.01},
                                         .build = tiny_ssd});

}  // namespace trainyard::models
