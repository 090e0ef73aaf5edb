// Measuring a model: a second executor in inference mode, on parameters that belong to a training, or to nobody. The
// set's values and buffers are only read, so an evaluator may live beside the training that changes them, and run
// between its steps.
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
#include "trainyard/train/evaluation/metric.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class ReplicaThreads;

// Samples of one class.
struct ClassCount {
  int64_t right = 0, total = 0;
};

struct Evaluation {
  double loss = 0;              // mean over samples
  double top_1 = 0, top_5 = 0;  // fraction of samples, in [0, 1]
  bool shows_top_5 = true;      // as Accuracies
  bool has_accuracies = true;   // false: there was only a loss; top_1, top_5 and classes say nothing
  int64_t samples = 0;
  int64_t not_finite = 0;             // samples with an output that is not: none of them counts as right
  std::vector<ClassCount> classes{};  // by output of the model; their sums are top_1 * samples and samples
  // What loss, top_1 and top_5 are made of: the sum of the samples' losses, and how many samples were right.
  double loss_sum = 0;
  int64_t right_1 = 0, right_5 = 0;
  double seconds = 0;        // of the whole run
  double input_seconds = 0;  // of these, waiting for batches
  // Results of the caller's own, by name: Evaluator leaves them empty, EvaluationCallback hands them to the monitors.
  std::vector<std::pair<std::string, double>> more{};
};

struct EvaluatorOptions {
  nn::Graph graph{};
  std::string executor = "auto";                    // a name for nn::make_executor
  at::ScalarType dtype = at::kFloat;                // of activations
  nn::KernelOptions kernels = nn::KernelOptions();  // not {}: GCC 12 warns of it in error
  std::string name_prefix{};                        // in front of the graph's names in the set
  // [N, classes], [N] int64 -> [] mean loss. None: softmax cross-entropy. A loss of one's own may take outputs [N, ...]
  // and labels [N, ...] of any shape and dtype: several labels a sample, numbers to come close to.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& labels)> loss{};
  // Whether accuracies are counted, which needs logits [N, classes] and labels [N] int64. Unset: where outputs and
  // labels are that; without a loss of one's own always.
  std::optional<bool> accuracies = std::nullopt;
  std::function<bool()> stops{};  // asked before each batch: true ends run() with kCancelled. None: it goes on
  // Called with each batch that has samples and its output, in the order of the source, on the thread that called
  // run(). The output's memory is used again afterwards. None: nobody looks.
  std::function<void(const data::Batch& batch, const at::Tensor& output)> on_output = {};
  // Threads that run batches at the same time, each with an executor of its own on the one parameter set: batch r of
  // what the source gives at once is thread r's. Empty: the calling thread runs them one after the other. On the CPU.
  std::vector<core::ThreadOptions> replicas = {};
};

// Returns a number of an evaluation by name: "loss", "top_1_accuracy", "top_5_accuracy", "mean_class_accuracy" (the
// mean over the classes with samples of the part that is right), or one of Evaluation::more. Nothing where it has no
// such one, or has no accuracies.
[[nodiscard]] std::optional<double> value_of(const Evaluation& evaluation, std::string_view name);
// Returns the names for which value_of() has a value.
[[nodiscard]] std::vector<std::string> names_of_values(const Evaluation& evaluation);

// Returns threads for `replicas` devices that are CPU threads, which share `intra_op_threads` (0: the cores that this
// process may use) and lie on `placement`, one each (empty: anywhere). Empty for one replica.
[[nodiscard]] std::vector<core::ThreadOptions> replica_thread_options(
    int replicas, int intra_op_threads, const std::vector<core::ThreadPlacement>& placement);

// Adds the samples of `part` to `all`, and makes the means of `all` anew. Seconds are left as they are.
void add_samples(const Evaluation& part, Evaluation& all);

// Measures a model. One thread at a time, with the intra-op threads of that thread; not while a step changes the
// parameters. It runs where the parameters lie: on an accelerator, within its use().
class Evaluator {
 public:
  // `parameters` is allocated, has all that the graph needs, and outlives the evaluator. Throws kInvalidArgument or
  // kNotFound when they do not fit.
  Evaluator(EvaluatorOptions options, nn::ParameterSet& parameters);
  ~Evaluator();
  Evaluator(Evaluator&&) noexcept;
  Evaluator& operator=(Evaluator&&) noexcept;

  // Runs `batches` global batches. With 0 runs all until the source ends, shorter last ones included; a source that
  // repeats never ends. Throws kInvalidArgument when there was no sample (may_be_empty: all means are 0 then), or fewer
  // batches than asked for, and kCancelled when it was stopped.
  Evaluation run(data::BatchSource& source, int64_t batches = 0, bool may_be_empty = false);

  // Measures each of `metrics` over the batches that run() would take, and throws what it throws. Collective with
  // `ranks`: the results are then those of what all ranks' sources hold together, and a rank may have no sample.
  void measure(data::BatchSource& source, std::span<const std::shared_ptr<Metric>> metrics, int64_t batches = 0,
               core::Communicator* ranks = nullptr);

 private:
  // Calls `use` with each batch that has samples and the model's output. Returns the number of samples.
  using UseOutput = std::function<void(const data::Batch& batch, const at::Tensor& output)>;
  int64_t for_each_output(data::BatchSource& source, int64_t batches, bool may_be_empty, const UseOutput& use);

  // Computes the outputs of batches [first, first + executors_.size()), of those that are there.
  std::vector<at::Tensor> outputs_of(const std::vector<data::Batch>& batches, size_t first);

  EvaluatorOptions options_;
  std::vector<std::unique_ptr<nn::Executor>> executors_;  // one a replica
  std::vector<std::string> input_names_;                  // of the graph
  std::unique_ptr<ReplicaThreads> threads_;               // null: the calling thread runs the only executor
  at::Device device_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
