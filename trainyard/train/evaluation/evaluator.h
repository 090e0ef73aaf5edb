// Measures a model with a second executor in inference mode, on the parameters of a training or of a loaded model. It
// only reads the set's values and buffers, so an evaluator may exist during a training, and run between its steps.
//
//   Evaluator evaluator({.graph = graph}, trainer.parameters());
//   Evaluation result = evaluator.run(validation_source);      // to the source's end: every sample once
//   evaluator.measure(validation_source, metrics);             // the same with metrics of one's choice
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/evaluation/metrics.h"

namespace trainyard::train {
class ReplicaThreads;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Samples of one class.
struct ClassCount {
  int64_t right = 0, total = 0;
};

struct Evaluation {
  double loss = 0;              // mean over samples
  double top_1 = 0, top_5 = 0;  // fraction of samples, in [0, 1]
  bool shows_top_5 = true;      // as Accuracies
  bool has_accuracies = true;   // false: none were measured; top_1, top_5 and classes are unused
  bool has_loss = true;         // false: none was measured, as EvaluatorOptions::labels says
  int64_t samples = 0;
  int64_t not_finite = 0;             // samples with an output that is not finite: they count as wrong
  std::vector<ClassCount> classes{};  // by output of the model; their sums are top_1 * samples and samples
  // The sums behind loss, top_1 and top_5: the sum of the samples' losses, and the numbers of correct samples.
  double loss_sum = 0;
  int64_t right_1 = 0, right_5 = 0;
  double seconds = 0;        // duration of the evaluation
  double input_seconds = 0;  // part of `seconds` spent waiting for batches
  // Further results, by name: Evaluator leaves them empty, EvaluationCallback passes them to the monitors.
  std::vector<std::pair<std::string, double>> more{};
};

// Test-time augmentation: the model sees several views of each image, and what it says of them is averaged: its
// probabilities, with kFlipShift its logits. kNone takes the image as it is, which must then have the model's size; the
// others cut windows of that size out of it.
enum class TestTimeAugmentation {
  kNone,
  kFlip,           // the centre, and the same mirrored left to right
  kFiveCrops,      // the four corners and the centre
  kFlipFiveCrops,  // these five, and each of them mirrored: Krizhevsky, Sutskever, Hinton, "ImageNet classification
                   // with deep convolutional neural networks", 2012, section 4.1
  // The image, the windows that begin one pixel above and left and one pixel below and right of it, and each of these
  // three mirrored. Outside of the image is its reflection. The image and its mirror weigh 1/4 each, the others 1/8:
  // Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024, section 3.5.
  kFlipShift
};

struct EvaluatorOptions {
  nn::Graph graph{};
  OpenDevices devices{};      // what of them runs the model: executor, dtype of activations, kernels
  std::string name_prefix{};  // prefix of the graph's names in the set
  // [N, classes], [N] int64 -> [] mean loss. Empty: softmax cross-entropy. A custom loss may take outputs [N, ...] and
  // labels [N, ...] of any shape and dtype: several labels per sample, regression targets.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& labels)> loss{};
  // Whether accuracies are counted, which needs logits [N, classes] and labels [N] int64. Unset: yes when outputs and
  // labels have that form and, on the CPU, all labels are numbers of classes; always without a custom loss.
  std::optional<bool> accuracies = std::nullopt;
  // false: batches have no labels. Neither a loss nor accuracies are measured; on_output sees the outputs.
  bool labels = true;
  std::function<bool()> stops{};  // called before each batch: true ends run() with kCancelled. Empty: never stopped
  // Called with each batch that has samples and its output, in the order of the source, on the thread that called
  // run(). The output's memory is reused afterwards. May be empty.
  std::function<void(const data::Batch& batch, const at::Tensor& output)> on_output = {};
  // Threads that run batches at the same time, each with an executor of its own on the one parameter set: thread r runs
  // the batch of replica r. Empty: the calling thread runs them one after the other. On the CPU.
  std::vector<core::ThreadOptions> replicas = {};
  // The views of each image. With any but kNone the graph has one input, images [N, C, H, W], and its output are logits
  // [N, classes]; the output of a batch is then the logarithm of the mean of its views' probabilities, with kFlipShift
  // the weighted mean of their logits. Batches may hold larger images than the model takes.
  TestTimeAugmentation views = TestTimeAugmentation::kNone;
  // The scales by which the graph computes in 8 bits. Null: in float.
  std::shared_ptr<const nn::Quantization> quantization = nullptr;
};

// Returns a number of an evaluation by name: "loss", "top_1_accuracy", "top_5_accuracy", "mean_class_accuracy" (the
// mean of the accuracies of classes with samples), or one of Evaluation::more. Returns nothing when it has no such
// value, no loss, or no accuracies.
[[nodiscard]] std::optional<double> value_of(const Evaluation& evaluation, std::string_view name);
// Returns the names for which value_of() has a value.
[[nodiscard]] std::vector<std::string> names_of_values(const Evaluation& evaluation);

enum class BestMetric { kTop1, kLoss };  // the highest; the lowest

// The metric that selects the best checkpoint: the highest or the lowest value of that name, one of
// value_of().
struct BestBy {
  std::string name{};
  // Whether the lowest value is the best. Unset: decided by the name (lowest_is_best()).
  std::optional<bool> lowest = std::nullopt;
};
// Returns {"top_1_accuracy", false} or {"loss", true}.
[[nodiscard]] BestBy best_by(BestMetric metric);
// Returns whether the lowest value is the best: by.lowest when set, else decided by the name. Losses and errors are
// better the lower they are ("loss", "val/center_loss", "mean_error"), accuracies, precisions, recalls, f1 and auc the
// higher. Throws kInvalidArgument for any other name.
[[nodiscard]] bool lowest_is_best(const BestBy& by);
// Returns the evaluation's value of that name. Throws kInvalidArgument, with the known names, when it has none.
[[nodiscard]] double value_to_compare(const Evaluation& evaluation, const BestBy& by);

// Ends a training whose evaluations no longer improve.
struct EarlyStop {
  int64_t patience = 5;  // evaluations in a row without an improvement, 1 or more
  double min_delta = 0;  // an improvement by no more than this does not count; the best checkpoint is kept all the same
};

struct BestValue {
  double value = 0;
  int64_t global_step = 0;  // step after which it was measured
};

// Returns threads for `replicas` devices that are CPU threads, which share `intra_op_threads` (0: the cores that this
// process may use) and run on `placement`, one each (empty: anywhere). Empty for one replica.
[[nodiscard]] std::vector<core::ThreadOptions> replica_thread_options(
    int replicas, int intra_op_threads, const std::vector<core::ThreadPlacement>& placement);

// Adds the samples of `part` to `all`, and recomputes the means of `all`. Seconds are unchanged.
void add_samples(const Evaluation& part, Evaluation& all);

// Measures a model. One thread at a time, with the intra-op threads of that thread; not while a step changes the
// parameters. It runs on the device of the parameters: on an accelerator, call it within its use().
class Evaluator {
 public:
  // `parameters` is allocated, has all that the graph needs, and must outlive the evaluator. Throws kInvalidArgument or
  // kNotFound when they do not fit.
  Evaluator(EvaluatorOptions options, nn::ParameterSet& parameters);
  ~Evaluator();
  Evaluator(Evaluator&&) noexcept;
  Evaluator& operator=(Evaluator&&) noexcept;

  // Runs `batches` global batches. With 0 runs all until the source ends, shorter last ones included; a source that
  // repeats never ends. Throws kInvalidArgument when there was no sample (with may_be_empty all means are 0 instead),
  // or fewer batches than requested, and kCancelled when it was stopped.
  Evaluation run(data::BatchSource& source, int64_t batches = 0, bool may_be_empty = false);

  // Measures each of `metrics` over the batches that run() would use, and throws what it throws. Collective with
  // `ranks`: the results are then those of all ranks' samples together, and a rank may have none.
  void measure(data::BatchSource& source, std::span<const std::shared_ptr<Metric>> metrics, int64_t batches = 0,
               core::Communicator* ranks = nullptr);

 private:
  // Calls `use` with each batch that has samples and the model's output. Returns the number of samples.
  using UseOutput = std::function<void(const data::Batch& batch, const at::Tensor& output)>;
  int64_t for_each_output(data::BatchSource& source, int64_t batches, bool may_be_empty, const UseOutput& use);

  // Computes the outputs of batches [first, first + executors_.size()), as far as they exist.
  std::vector<at::Tensor> outputs_of(const std::vector<data::Batch>& batches, size_t first);
  // Computes the output of a batch that has samples on the executor of a replica.
  at::Tensor output_of(nn::Executor& executor, const data::Batch& batch);

  EvaluatorOptions options_;
  std::vector<std::unique_ptr<nn::Executor>> executors_;  // one a replica
  std::vector<std::string> input_names_;                  // of the graph
  std::unique_ptr<ReplicaThreads> threads_;               // null: the calling thread runs the only executor
  at::Device device_;
};

// Recomputes batch norm statistics with forward passes over training data, for weights that were not trained with them,
// such as averages of weights.
struct RecalibrationOptions {
  nn::Graph graph{};
  OpenDevices devices{};  // what of them runs the model: executor, dtype of activations, kernels
  uint64_t seed = 0;      // seed of dropout and stochastic depth, which are active as in training
  std::function<bool()>
      stops{};  // called before each batch: true ends the passes with kCancelled. Empty: never stopped
};

// Sets the running means and variances in `parameters` to the means over the next `batches` batches of `source`, in
// training mode, each batch with the same weight: torch.optim.swa_utils.update_bn, and fvcore's precise batch norm (Wu,
// Johnson, "Rethinking 'batch' in batch norm", 2021, section 3). With several replicas in the source, all of their
// batches are used. Batch norms whose parameters are all frozen keep their statistics. Nothing else changes, and
// nothing at all when it throws.
//
// One thread at a time, with the intra-op threads of that thread; on an accelerator, within its use(). Throws
// kInvalidArgument for a graph without batch norms, and when the source has too few batches.
void recalibrate_batch_norms(const RecalibrationOptions& options, nn::ParameterSet& parameters,
                             data::BatchSource& source, int64_t batches);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
