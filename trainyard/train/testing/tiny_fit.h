// A short training of tiny_model.h's data with fit(), for tests that compare runs.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train {

// Returns 48 samples in endless shuffled epochs.
inline std::shared_ptr<data::BatchSource> shuffled_tiny_source(int64_t batch_size, int replicas = 1) {
  const auto all = tiny_source(48, 48)->next()[0];
  return std::make_shared<data::TensorSource>(
      all.images(), all.labels(),
      data::TensorSourceOptions{.batch_size = batch_size, .replicas = replicas, .shuffle = true});
}

// Returns the options of three epochs of six steps on one thread, without validation. An empty `train_dir` saves
// nothing.
inline FitOptions tiny_fit_options(nn::Graph graph, const std::string& train_dir) {
  FitOptions chosen;
  chosen.graph = std::move(graph);
  chosen.train = shuffled_tiny_source(8);
  chosen.epochs = 3;
  chosen.train_dir = train_dir;
  chosen.optimizer = optim::momentum({.weight_decay = 1e-3});
  chosen.learning_rate = 0.05;
  chosen.intra_op_threads = 1;
  chosen.seed = 5;
  return chosen;
}

}  // namespace trainyard::train
