// What a run takes from a model of the caller's own (benchmark_cnn.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

// Returns height and width of the "images" in the model's shapes. Throws kInvalidArgument when there are none.
nn::Size2d image_size_of(const BenchmarkModel& model);

// Returns the model's description for the registry. The model must outlive the result.
models::ModelInfo info_of(const BenchmarkModel& model);

// Combines the results of accuracy_function() over an evaluation's batches.
class ResultCollector {
 public:
  explicit ResultCollector(const BenchmarkModel& model) : model_(model) {}

  void clear();
  void add(const at::Tensor& logits, const at::Tensor& labels);
  // Returns the results of all batches since clear(), without accuracies.
  EvaluationResults results() const;

 private:
  const BenchmarkModel& model_;
  int64_t samples_ = 0;
  std::map<std::string, double> sums_;  // over samples
  std::map<std::string, std::vector<at::Tensor>> tensors_;
};

}  // namespace trainyard::frontends
