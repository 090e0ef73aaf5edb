// A custom model for BenchmarkCnn (benchmark_cnn.h). Methods have the names of tf_cnn_benchmarks' Model.
//
//   class Linear : public BenchmarkModel {
//     std::string name() const override { return "linear"; }
//     InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 32, 32}}, {"labels", {}}}; }
//     nn::Graph build_network(const models::ModelOptions& options) const override {
//       nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
//       return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = options.num_classes}));
//     }
//   };
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/graph_tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// The results of an evaluation.
struct EvaluationResults {
  // "top_1_accuracy" and "top_5_accuracy", in [0, 1], and the scalars of accuracy_function(), as means over samples.
  // Those whose name begins with "simple_value:" are written to the summaries, as "eval/<the rest of the name>".
  std::map<std::string, double> numbers{};
  // The results of accuracy_function() whose name begins with "tensor:", concatenated over all batches and devices.
  core::NamedTensors tensors{};
};

// A requested batch of synthetic inputs.
struct SyntheticBatch {
  int64_t batch_size = 1;
  int64_t num_classes = 1;
  uint64_t seed = 0;
  int64_t batch = 0;  // of its replica, from 0
  int replica = 0;    // of all, also over several processes
};

class BenchmarkModel {
 public:
  using InputShapes = std::vector<std::pair<std::string, nn::Shape>>;  // by name, without the batch

  virtual ~BenchmarkModel() = default;

  // Returns the model's name: in the header, and in checkpoints, which only load into a model of that name.
  [[nodiscard]] virtual std::string name() const = 0;
  // Returns the default batch size of a device.
  [[nodiscard]] virtual int64_t get_batch_size() const { return 32; }
  // Called with the batch size of a device, before build_network().
  virtual void set_batch_size(int64_t /*batch_size*/) {}
  // Returns the default learning rate.
  [[nodiscard]] virtual models::DefaultSchedule get_learning_rate() const { return {}; }

  // Returns the shapes of a batch's tensors: "images" [channels, height, width], whose height and width become
  // ModelOptions::image_size unless the run requests others, and further inputs of the model or its loss.
  [[nodiscard]] virtual InputShapes get_input_shapes(data::Subset subset) const = 0;
  // Returns a batch for runs without data, the same for the same argument. Empty: images as in tf_cnn_benchmarks, and
  // uniform labels (data/pipeline/synthetic_source.h).
  [[nodiscard]] virtual core::NamedTensors get_synthetic_inputs(const SyntheticBatch& /*wanted*/) const { return {}; }

  // Returns the network, whose main output are logits [num_classes].
  [[nodiscard]] virtual nn::Graph build_network(const models::ModelOptions& options) const = 0;
  // Returns the parameters that have weight decay, from `names`: all but those of batch norms and others that ops.h
  // excludes.
  [[nodiscard]] virtual std::vector<std::string> filter_l2_loss_vars(std::vector<std::string> names) const {
    return names;
  }
  // Returns the loss, a mean over samples, in training and in evaluation. Several threads call it at the same time.
  // Empty: softmax cross-entropy, with --label_smoothing.
  [[nodiscard]] virtual train::LossFunction loss_function() const { return {}; }

  // Returns further results of an evaluation's batch, in addition to accuracies: scalars [], means over the batch's
  // samples, and tensors [n, ...] as "tensor:<name>". Scalars without a prefix are only for postprocess().
  [[nodiscard]] virtual core::NamedTensors accuracy_function(const at::Tensor& /*logits*/,
                                                             const at::Tensor& /*labels*/) const {
    return {};
  }
  // May change the results of a whole evaluation, before they are reported.
  virtual void postprocess(EvaluationResults& /*results*/) {}
  // Returns whether the training may end. Called after each evaluation during a training.
  [[nodiscard]] virtual bool reached_target() const { return false; }
};

// Returns height and width of the "images" in the model's shapes. Throws kInvalidArgument when there are none.
[[nodiscard]] nn::Size2d image_size_of(const BenchmarkModel& model);

// Returns the model's description for the registry. The model must outlive the result.
[[nodiscard]] models::ModelInfo info_of(const BenchmarkModel& model);

// Combines the results of accuracy_function() over an evaluation's batches.
class ResultCollector {
 public:
  explicit ResultCollector(const BenchmarkModel& model) : model_(model) {}

  void clear();
  void add(const at::Tensor& logits, const at::Tensor& labels);
  // Returns the results of all batches since clear(), without accuracies.
  [[nodiscard]] EvaluationResults results() const;

 private:
  const BenchmarkModel& model_;
  int64_t samples_ = 0;
  std::map<std::string, double> sums_;  // over samples
  std::map<std::string, std::vector<at::Tensor>> tensors_;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
