// Trains a graph in one call: epochs over a source, an evaluation after each, checkpoints, early stopping, and resuming
// an earlier call.
//
//   const auto train = data::open_folder("flowers/train", {.size = 160});
//   const auto validation =
//       data::open_folder("flowers/validation", {.size = 160, .training = false, .classes = train->classes()});
//   const train::FitResult result = train::fit({.graph = graph,
//                                               .train = train,
//                                               .validation = validation,
//                                               .epochs = 20,
//                                               .train_dir = "out/flowers",
//                                               .early_stop = train::EarlyStop{.patience = 3},
//                                               .optimizer = optim::momentum({.weight_decay = 1e-4}),
//                                               .learning_rate = 0.05});
//   result.model->predict_file("rose.jpg");
//
// It combines a TowerTrainer and callbacks, which a program can use directly for other needs (docs/howto/library.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/model/model.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct TowerTrainerOptions;

// The results of a complete epoch. Where an earlier call has done its steps and was stopped in its evaluation, `loss`
// is NaN and `learning_rate` that of the next step.
struct FitEpoch {
  int64_t epoch = 0;                                                   // from 1
  int64_t global_step = 0;                                             // steps done
  double loss = 0;                                                     // of the last step, with the regularization
  double learning_rate = 0;                                            // of the last step
  std::optional<Evaluation> validation = std::nullopt;                 // set when there is a validation source
  std::vector<std::pair<std::string, Evaluation>> more_validations{};  // by the sets' names
};

// A set that is evaluated as FitOptions::validation is, with the same loss and accuracies.
struct FitValidation {
  std::string name{};                              // "hard"; unique, and neither "eval" nor "train"
  std::shared_ptr<data::BatchSource> source{};     // a source that ends, with one replica
  std::vector<std::shared_ptr<Metric>> metrics{};  // metrics of this set only
};

struct FitOptions {
  nn::Graph graph{};  // the network
  // An endless source, with a batch for each replica of all processes.
  std::shared_ptr<data::BatchSource> train{};
  std::shared_ptr<data::BatchSource> validation{};  // a source that ends, with one replica; null: no evaluation
  // Further sets. Their values are prefixed with the set's name: "hard/loss" in `best`, and as a phase in
  // metrics.jsonl.
  std::vector<FitValidation> more_validations{};
  int64_t epochs = 1;  // epochs of the whole training, including those of earlier calls
  // 0: the training source's batches per epoch. Where `adjust` sets micro_steps a step takes so many batches: set it.
  int64_t steps_per_epoch = 0;

  // Checkpoints are saved here after each epoch; the newest 5 are kept and, with a validation source, the best one in
  // <train_dir>/best. metrics.jsonl is in the same folder, and, where `validation` has one class an image and `loss` is
  // empty, evaluation.json of the last evaluation (docs/formats/evaluation.md). Empty: nothing is written.
  std::string train_dir{};
  // true: continues from the newest checkpoint of train_dir, also within an epoch, bit for bit as a training without
  // interruption. false: throws when there is a checkpoint.
  bool resume = true;
  std::optional<EarlyStop> early_stop = std::nullopt;  // its counts are saved and resumed
  // The number by which evaluations are compared, for the best checkpoint and for early_stop: "loss", "top_1_accuracy",
  // "top_5_accuracy", "mean_class_accuracy", a result of `metrics`, or "<set>/<one of these>" of more_validations. Set
  // BestBy::lowest when the name does not tell whether low values are good.
  BestBy best = best_by(BestMetric::kLoss);
  // Measured in each evaluation, in addition to loss and accuracies, whose names ("loss", "top_1_accuracy",
  // "top_5_accuracy") their results must not have.
  std::vector<std::shared_ptr<Metric>> metrics{};

  optim::OptimizerChoice optimizer{};  // "tf_momentum" with its defaults
  double learning_rate = 0.01;
  // Returns the learning rate schedule of a training of `steps` steps: {return optim::cosine(0.1, steps);}. Empty:
  // always learning_rate.
  std::function<std::function<double(int64_t step)>(int64_t steps)> schedule{};
  // Keeps averaged weights, too. They are evaluated, so `early_stop` and `best` compare them, and they are the weights
  // of FitResult::model, its file and load_model(). With an equal average (AverageKind::kEqual) of a graph with batch
  // norms, the statistics are recomputed at the end of each epoch, over 200 batches of `train` or an epoch.
  std::optional<optim::WeightAverageOptions> average = std::nullopt;
  // Returns the mean loss, [], of the main output [N, ...] and the batch's "labels", in training and in evaluation.
  // Empty: softmax cross-entropy of logits [N, classes] and labels [N] int64.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& labels)> loss{};
  // Initial weights, a file that formats::open_tensor_file() reads. A head with another number of classes keeps its
  // initial values, which is logged. Read when a training begins, but not when it is resumed.
  std::string weights{};
  // Patterns of parameters that do not train (TowerTrainer::set_trainable), frozen when a training begins; a resumed
  // one takes them from its checkpoint. Throws kNotFound for a pattern that matches no parameter.
  std::vector<std::string> freeze{};

  // Where it trains: by default on the CPU. Replicas share a step, each with a batch of its own, and their gradients
  // are averaged. Processes that train together pass the same options, share the batches of evaluations, too, and all
  // get the result; rank 0 alone writes files.
  OpenDevices devices{};
  // A name of parallel::variable_updates(). Several processes exchange gradients by all-reduce, whatever it is.
  std::string variable_update = "parameter_server";
  int intra_op_threads = 0;  // of all replicas together; 0: all cores
  uint64_t seed = 0;
  std::vector<std::shared_ptr<Callback>> callbacks{};
  std::function<void(const FitEpoch&)> on_epoch{};     // called after each epoch, on the calling thread
  std::optional<core::StopToken> stop = std::nullopt;  // ends the training after the current step, and saves it
  // Changes the trainer's options, which are made from these, for everything that has no member here: mixed precision,
  // accelerators, hooks. It must not set a tower.
  std::function<void(TowerTrainerOptions&)> adjust{};

  // The description of the model. Classes and input default to those of the training source, when it is a described
  // source (data/sources/described_source.h), such as a folder. When nothing says how images become input, the training
  // runs, but the model takes tensors only: save_model() and predict() throw.
  std::string name{};                  // empty: the graph's
  std::vector<std::string> classes{};  // by output
  std::optional<data::TransformOptions> input = std::nullopt;
  std::string transform = "imagenet";  // a name of data::transforms(); empty: the model takes tensors, not images

  void validate() const;  // throws kInvalidArgument
};

using FitBest = BestValue;  // of options.best.name

struct FitResult {
  int64_t epochs = 0;       // complete epochs, over all calls
  int64_t global_step = 0;  // steps done, over all calls
  int64_t first_step = 0;   // step at which this call began: 0, or where an earlier call stopped
  double loss = 0;          // of the last step of this call, with the regularization; NaN without a step
  std::optional<Evaluation> last = std::nullopt;                   // the last evaluation of this call
  std::vector<std::pair<std::string, Evaluation>> last_of_more{};  // of each of more_validations, by name
  std::optional<FitBest> best = std::nullopt;                      // the best one of all calls
  std::string stop_reason{};             // why it ended before its last epoch; empty when complete
  std::shared_ptr<const Model> model{};  // with the last weights, or the averaged ones when the training averages
};

// Trains. Blocks until the last epoch is complete, or the training is stopped. When an early stop has ended the
// training, or all epochs are complete, it is only evaluated again, without a step; where a stop cuts that off,
// FitResult::last is empty.
//
// Throws kInvalidArgument for invalid options, for another graph, other classes or epochs of another length than in the
// checkpoint of train_dir, and when the number of classes differs from the outputs; kCorruptData for a damaged
// checkpoint; and what the training throws. Checkpoints of graphs with custom layers contain no graph: load_model()
// rejects them, but fit() continues from them.
FitResult fit(const FitOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
