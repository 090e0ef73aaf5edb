// A model of the caller's own for BenchmarkCnn (benchmark_cnn.h). Methods have the names of tf_cnn_benchmarks' Model.
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
#include "trainyard/core/base/named_tensors.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/graph_tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// What an evaluation has found out.
struct EvaluationResults {
  // "top_1_accuracy" and "top_5_accuracy", in [0, 1], and the scalars of accuracy_function(), as means over samples.
  // Those whose name begins with "simple_value:" are written to the summaries, as "eval/<the rest of the name>".
  std::map<std::string, double> numbers{};
  // Those of accuracy_function() whose name begins with "tensor:", of all batches and devices one behind the other.
  core::NamedTensors tensors{};
};

// A batch of synthetic inputs that is asked for.
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

  // Returns the model's name: in the header, and in checkpoints, which only serve a model of that name.
  [[nodiscard]] virtual std::string name() const = 0;
  // Returns the batch size of a device where --batch_size does not say it.
  [[nodiscard]] virtual int64_t get_batch_size() const { return 32; }
  // Hears the batch size of a device that the run has, before build_network().
  virtual void set_batch_size(int64_t /*batch_size*/) {}
  // Returns the learning rate where no flag gives one.
  [[nodiscard]] virtual models::DefaultSchedule get_learning_rate() const { return {}; }

  // Returns the shapes of what a batch holds: "images" [channels, height, width], whose height and width become
  // ModelOptions::image_size unless the run asks for others, and what else the model or its loss takes.
  [[nodiscard]] virtual InputShapes get_input_shapes(data::Subset subset) const = 0;
  // Returns a batch for runs without data, the same for the same argument. None: images as tf_cnn_benchmarks makes
  // them, and uniform labels (data/pipeline/synthetic_source.h).
  [[nodiscard]] virtual core::NamedTensors get_synthetic_inputs(const SyntheticBatch& /*wanted*/) const { return {}; }

  // Returns the network, whose main output are logits [num_classes].
  [[nodiscard]] virtual nn::Graph build_network(const models::ModelOptions& options) const = 0;
  // Returns which of the parameters `names` take part in weight decay. At first they are all but those of batch norms
  // and others that ops.h excludes.
  [[nodiscard]] virtual std::vector<std::string> filter_l2_loss_vars(std::vector<std::string> names) const {
    return names;
  }
  // Returns the loss, a mean over samples, in training and in evaluation. It is called by several threads at a time.
  // None: softmax cross-entropy, with --label_smoothing.
  [[nodiscard]] virtual train::LossFunction loss_function() const { return {}; }

  // Returns more results of an evaluation's batch beside its accuracies: scalars [], means over the batch's samples,
  // of which names without a prefix are for postprocess() alone, and tensors [n, ...] as "tensor:<name>".
  [[nodiscard]] virtual core::NamedTensors accuracy_function(const at::Tensor& /*logits*/,
                                                             const at::Tensor& /*labels*/) const {
    return {};
  }
  // May change the results of a whole evaluation, before anybody sees them.
  virtual void postprocess(EvaluationResults& /*results*/) {}
  // Returns whether the training may end. Asked behind each evaluation during a training.
  [[nodiscard]] virtual bool reached_target() const { return false; }
};

// Returns height and width of the "images" of the model's shapes. Throws kInvalidArgument where there are none.
[[nodiscard]] nn::Size2d image_size_of(const BenchmarkModel& model);

// Returns the model as the registry describes its models, for a model that outlives the result.
[[nodiscard]] models::ModelInfo info_of(const BenchmarkModel& model);

// Adds up what accuracy_function() gives of an evaluation's batches.
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
