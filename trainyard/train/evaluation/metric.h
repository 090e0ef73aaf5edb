// A number that is measured over a validation set. It gets the set's batches one by one, then sums over all ranks, so
// the result is that of the whole set, whatever the number of ranks and batches.
//
//   for (batch : set) metric.update({outputs, labels});
//   metric.reduce(communicator, device);      // with several ranks
//   metric.results();                         // {{"top_1_accuracy", 0.75}}
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// A batch with the model's outputs. The tensors are on the model's device.
struct MetricBatch {
  core::NamedTensors outputs{};  // of the model in inference mode, the main one first: "logits" of a graph
  at::Tensor labels{};           // [N] int64, or in the form of the data

  const at::Tensor& output() const { return outputs.begin()->tensor; }
};

// One thread at a time.
class Metric {
 public:
  virtual ~Metric() = default;

  // Starts a new measurement.
  virtual void begin() = 0;
  // Adds a batch of at least one sample. Throws kInvalidArgument or kNotFound when it is not of the metric's form.
  virtual void update(const MetricBatch& batch) = 0;
  // Adds the results of the other ranks. Collective; uses tensors on `device`.
  virtual void reduce(core::Communicator& ranks, at::Device device) = 0;

  // Returns the results by name, always the same names. A result that no sample contributes to is NaN.
  [[nodiscard]] virtual std::vector<std::pair<std::string, double>> results() const = 0;
  // Returns a result that is not a number, by name, in Markdown.
  [[nodiscard]] virtual std::optional<std::pair<std::string, std::string>> text() const { return std::nullopt; }
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
