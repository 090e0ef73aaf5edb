// tf_cnn_benchmarks as a library: trains, evaluates, or both, or runs forward only; prints the lines of
// tf_cnn_benchmarks (output/step_log.h) and leaves checkpoints, metrics and a summary in train_dir.
//
//   const BenchmarkParams params = {{"model", "resnet20"}, {"data_name", "cifar10"}, {"num_batches", "100"}};
//   const RunStatistics statistics = BenchmarkCnn(params).run(std::cout);
//
// With a custom data set and model, as in examples/own_benchmark.cpp:
//
//   BenchmarkCnn(params, std::make_shared<Stripes>(), std::make_shared<Linear>()).run(std::cout);
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::frontends {
struct TfCnnOptions;  // frontends/tf_cnn/options.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// The batches that a run requests from its data set.
struct WantedBatches {
  data::Subset subset = data::Subset::kTrain;
  int64_t batch_size = 1;  // a replica
  int replicas = 1;        // batches that BatchSource::next() gives at once
  // When several processes train together, these are replicas [first_replica, first_replica + replicas) of
  // total_replicas, which share the samples: every process must be able to continue from the position of another one.
  int first_replica = 0, total_replicas = 1;
  nn::Size2d image_size = 0;  // of the model's images, pixels
  int64_t num_classes = 0;    // outputs of the model: labels are in [0, num_classes)
  uint64_t seed = 0;
  bool training = true;  // false: forward passes and evaluations, without augmentation
  bool repeat = true;    // false: one pass over the subset, the last batch shorter
};

// A custom data set for BenchmarkCnn, which makes the batches itself.
//
//   class Stripes : public BenchmarkDataset {
//     std::string name() const override { return "stripes"; }
//     int64_t num_classes() const override { return 2; }
//     int64_t num_examples_per_epoch(data::Subset) const override { return 1000; }
//     std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const override { ... }
//   };
class BenchmarkDataset {
 public:
  virtual ~BenchmarkDataset() = default;

  // Returns the data set's name: in the header, in logs, and in checkpoints, which only resume with data of that name.
  [[nodiscard]] virtual std::string name() const = 0;
  virtual int64_t num_classes() const = 0;
  // Returns how many samples an epoch of the subset has, at least 1.
  [[nodiscard]] virtual int64_t num_examples_per_epoch(data::Subset subset) const = 0;
  // Returns the data set whose registered models fit, "imagenet" or "cifar10". Called when the run has no custom model.
  [[nodiscard]] virtual std::string models_of() const { return "imagenet"; }
  // Returns a source of batches with "images" [N, 3, H, W] float, or the inputs of a custom model, and "labels" [N]
  // int64. Called once for each source that the run needs, which then has one thread at a time.
  [[nodiscard]] virtual std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const = 0;
};

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

// A custom model for BenchmarkCnn. Methods have the names of tf_cnn_benchmarks' Model.
//
//   class Linear : public BenchmarkModel {
//     std::string name() const override { return "linear"; }
//     InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 32, 32}}, {"labels", {}}}; }
//     nn::Graph build_network(const models::ModelOptions& options) const override {
//       nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
//       return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = options.num_classes}));
//     }
//   };
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

// The results of a run, with the names of tf_cnn_benchmarks' BenchmarkCNN.run().
struct RunStatistics {
  int64_t num_workers = 1;  // processes that trained together
  // Steps after the warm-up, of all workers; 0 when nothing was left to do, and in an evaluation.
  int64_t num_steps = 0;
  double average_wall_time = 0;  // seconds per step of one worker; 0 without steps
  double images_per_sec = 0;     // of all workers; of the last evaluation if the run only evaluates
  // As in the last step line, by loss_type_to_report. Unset when nothing was trained.
  std::optional<double> last_average_loss{};
  // Fractions of the images of the last evaluation, in [0, 1]. Both are unset when nothing was evaluated, and top_5
  // also when the console does not show it.
  std::optional<double> top_1_accuracy{}, top_5_accuracy{};
  // COCO's AP of a detector's last evaluation. Unset: none was measured.
  std::optional<double> average_precision{};
  bool stopped_by_signal = false;  // the run ended early because of SIGINT or SIGTERM
};

// Flags of tf_cnn_benchmarks by name, with their values as on the command line (docs/flags.md).
using BenchmarkParams = std::vector<std::pair<std::string, std::string>>;

class BenchmarkCnn {
 public:
  // Flags that `params` leave out have tf_cnn_benchmarks' defaults. `dataset` replaces the data that params name, of
  // which only the seed counts, and `model` that of params; null: what params say. Opens nothing. Throws
  // kInvalidArgument for an unknown flag, a value that is none of its flag, params that do not fit each other, and
  // those that do not go with a data set or a model of the caller's own.
  explicit BenchmarkCnn(const BenchmarkParams& params, std::shared_ptr<const BenchmarkDataset> dataset = nullptr,
                        std::shared_ptr<BenchmarkModel> model = nullptr);
  // Does the same with options that were read before (read_options.h).
  explicit BenchmarkCnn(const TfCnnOptions& params, std::shared_ptr<const BenchmarkDataset> dataset = nullptr,
                        std::shared_ptr<BenchmarkModel> model = nullptr);

  // Logs the warnings of params, runs, and returns the run's statistics. With several processes each returns the same
  // counts and accuracies; speeds and the loss are the chief's alone, as lines are. Another call runs again: with a
  // train_dir it continues. `stop` ends the run after its current step, as SIGTERM does; the second form cannot be
  // stopped.
  //
  // Throws core::Error: kInvalidArgument for params that do not fit the data or the machine, kUnsupported for what this
  // build does not have, and whatever data, files and training throw. When training throws, earlier complete
  // checkpoints are kept.
  RunStatistics run(std::ostream& out, const core::StopToken& stop);
  RunStatistics run(std::ostream& out);

 private:
  std::shared_ptr<const TfCnnOptions> params_;
  std::shared_ptr<const BenchmarkDataset> dataset_;
  std::shared_ptr<BenchmarkModel> model_;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
