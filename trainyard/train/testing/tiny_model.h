// A small classifier and data for it, quick enough for tests that train.
#pragma once

#include <memory>
#include <string>

#include <ATen/ops/empty.h>

#include "trainyard/core/random/random.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/memory_source.h"

namespace trainyard::train {

inline constexpr int64_t kTinyClasses = 6;

struct TinyModel {
  bool batch_norm = true;
  double dropout = 0;
};

inline nn::Graph tiny_graph(const TinyModel& model = {}) {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  if (model.batch_norm) x = b.batch_norm("bn", x);
  x = b.global_average_pool("pool", b.activation("relu", x));
  if (model.dropout > 0) x = b.dropout("dropout", x, model.dropout);
  return b.build(b.linear("fc", x, {.out_features = kTinyClasses}));
}

// `samples` images of noise around a mean that tells the label.
inline std::shared_ptr<MemorySource> tiny_source(int64_t samples, int64_t batch_size, int replicas = 1,
                                                 bool repeat = true) {
  at::Tensor images = at::empty({samples, 3, 5, 5}), labels = at::empty({samples}, at::kLong);
  auto* pixel = images.mutable_data_ptr<float>();
  for (int64_t i = 0; i < samples; ++i) {
    core::RandomStream stream(11, "tiny", {static_cast<uint64_t>(i)});
    const auto label = static_cast<int64_t>(stream.below(kTinyClasses));
    labels.mutable_data_ptr<int64_t>()[i] = label;
    for (int64_t p = 0; p < 75; ++p) *pixel++ = stream.normal() + 0.5F * static_cast<float>(label) - 1.0F;
  }
  return std::make_shared<MemorySource>(images, labels, batch_size, replicas, repeat);
}

inline TowerTrainerOptions tiny_options(const TinyModel& model = {}, int replicas = 1) {
  return {.graph = tiny_graph(model),
          .devices = {.replicas = replicas},
          .threads =
              {
                  .intra_op_threads = replicas  // no OpenMP teams: gcc's TSan does not understand them
              },
          .exchange = {.deadline = std::chrono::seconds(20)},
          .seed = 7,
          .make_optimizer =
              [](nn::ParameterSet& set) { return optim::optimizers().get("tf_nesterov")(set, {.weight_decay = 1e-3}); },
          .learning_rate = optim::constant(0.05)};
}

}  // namespace trainyard::train
