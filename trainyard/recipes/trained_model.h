// A model from a checkpoint, ready to run forward: for evaluation, prediction and export.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/data/transform.h"
#include "trainyard/nn/executor.h"
#include "trainyard/nn/parameter_set.h"
#include "trainyard/train/checkpoint.h"

namespace trainyard::recipes {

struct TrainedModel {
  train::CheckpointInfo checkpoint;
  train::CheckpointIdentity identity;
  std::vector<std::string> label_names;  // may be empty
  data::TransformOptions input;          // of evaluation
  std::unique_ptr<nn::ParameterSet> parameters;
  std::unique_ptr<nn::Executor> executor;  // in inference mode, bound to `parameters`
};

// `path`: a checkpoint directory, or a train directory whose newest one is meant. `model`, `dataset`: those that the
// caller expects, or empty; a checkpoint of another one is an error that names both. `kernels`: for the executor; its
// choices, if there are any, become the checkpoint's, which the model computed with so far. Throws kNotFound when there
// is no checkpoint.
TrainedModel load_trained_model(const std::string& path, const std::string& model = "", const std::string& dataset = "",
                                const nn::KernelOptions& kernels = {.choices = std::make_shared<nn::KernelChoices>()});

}  // namespace trainyard::recipes
