// Training a graph in one call: epochs over a source, an evaluation behind each, checkpoints, an early end, and going
// on where an earlier call stopped.
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
// It is put together from a TowerTrainer and callbacks, which a program may use itself where it wants something
// else (docs/howto/library.md).
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
#include "trainyard/optim/optimizers/optimizer_choice.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/evaluation/metric.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/model/model.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct TowerTrainerOptions;

// Ends a training whose evaluations get no better.
struct EarlyStop {
  int64_t patience = 5;  // evaluations in a row that are not better than the best one so far, 1 or more
  double min_delta = 0;  // by how much a value must be better to count
};

// What is known when an epoch is complete.
struct FitEpoch {
  int64_t epoch = 0;                                                   // from 1
  int64_t global_step = 0;                                             // steps done
  double loss = 0;                                                     // of the last step, with the regularization
  double learning_rate = 0;                                            // of the last step
  std::optional<Evaluation> validation = std::nullopt;                 // where there is a validation source
  std::vector<std::pair<std::string, Evaluation>> more_validations{};  // by the sets' names
};

// A set that is evaluated as FitOptions::validation is, with the same loss and accuracies.
struct FitValidation {
  std::string name{};                              // "hard"; not "eval", "train", or one that is there twice
  std::shared_ptr<data::BatchSource> source{};     // that ends, with one replica
  std::vector<std::shared_ptr<Metric>> metrics{};  // of this set alone
};

struct FitOptions {
  nn::Graph graph{};                                // the network
  std::shared_ptr<data::BatchSource> train{};       // endless, with a batch for each replica
  std::shared_ptr<data::BatchSource> validation{};  // that ends, with one replica; null: nothing is evaluated
  // Further sets. Their values have the set's name in front: "hard/loss" in `best`, and as a phase in metrics.jsonl.
  std::vector<FitValidation> more_validations{};
  int64_t epochs = 1;           // of the whole training, those of earlier calls included
  int64_t steps_per_epoch = 0;  // 0: as many as the training source has batches

  // Checkpoints are saved behind each epoch, the newest 5 are kept, and, where there is a validation, the best one in
  // <train_dir>/best. metrics.jsonl stands beside them. Empty: nothing is written.
  std::string train_dir{};
  // Goes on from the newest checkpoint of train_dir, in mid-epoch where it was saved there: with the bits that a
  // training without a break has. false: throws where there is one.
  bool resume = true;
  std::optional<EarlyStop> early_stop = std::nullopt;  // what it has counted is saved and resumed
  // By which number evaluations are compared, for the best checkpoint and for early_stop: "loss", "top_1_accuracy",
  // "top_5_accuracy", "mean_class_accuracy", a result of `metrics`, or "<set>/<one of these>" of more_validations.
  // BestBy::lowest says whether low values are good, where the name does not tell.
  BestBy best = best_by(BestMetric::kLoss);
  std::vector<std::shared_ptr<Metric>> metrics{};  // measured in each evaluation, beside loss and accuracies

  optim::OptimizerChoice optimizer{};  // "tf_momentum" with its defaults
  double learning_rate = 0.01;
  // Returns the learning rate of each step of a training of so many: {return optim::cosine(0.1, steps);}. None: it is
  // learning_rate throughout.
  std::function<std::function<double(int64_t step)>(int64_t steps)> schedule{};
  // Keeps averaged weights, too. They are what is evaluated, by which `early_stop` and `best`
  // compare, and what FitResult::model, its file and load_model() have. An equal average (AverageKind::kEqual) whose
  // graph has batch norms gets their statistics measured anew at the end of each epoch, over 200 batches of `train` or
  // an epoch.
  std::optional<optim::WeightAverageOptions> average = std::nullopt;
  // Returns the mean loss, [], of the main output [N, ...] and the batch's "labels", in training and in evaluation.
  // None: softmax cross-entropy of logits [N, classes] and labels [N] int64.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& labels)> loss{};
  // Weights to begin with, a file that formats::open_tensor_file() reads. A head of another number of classes keeps its
  // initial values, and a line in the log says so. Looked at when a training begins, not where it goes on.
  std::string weights{};
  // Patterns of parameters that do not train (TowerTrainer::set_trainable), frozen when a training begins: a
  // resumed one has frozen what its checkpoint says. A pattern that names no parameter is kNotFound.
  std::vector<std::string> freeze{};

  std::string executor = "auto";                     // a name for nn::make_executor
  std::string variable_update = "parameter_server";  // a name of parallel::variable_updates()
  int replicas = 1;  // threads that share a step, each with a batch of its own; the mean of their gradients counts
  int intra_op_threads = 0;  // all replicas together; 0: the cores that there are
  uint64_t seed = 0;
  std::vector<std::shared_ptr<Callback>> callbacks{};
  std::function<void(const FitEpoch&)> on_epoch{};     // called behind each epoch, on the calling thread
  std::optional<core::StopToken> stop = std::nullopt;  // ends the training behind the step that runs, and saves it
  // Changes the trainer's options, which are made from these, for all that has no member here: mixed precision,
  // accelerators, hooks. It must not give it a tower of its own.
  std::function<void(TowerTrainerOptions&)> adjust{};

  // What the model says of itself. Where the training source, or the one that it is around, says it
  // (data/sources/described_source.h: a folder does), its classes and its input count in the place of an empty list and
  // of none. Where nothing says how images become input, the training runs, and the model takes tensors only:
  // save_model() refuses it, and so does predict().
  std::string name{};                  // empty: the graph's
  std::vector<std::string> classes{};  // by output
  std::optional<data::TransformOptions> input = std::nullopt;
  std::string transform = "imagenet";  // a name of data::transforms(); empty: the model is given tensors, not images

  void validate() const;  // throws kInvalidArgument
};

struct FitBest {
  double value = 0;         // of options.best.name
  int64_t global_step = 0;  // behind which it was measured
};

struct FitResult {
  int64_t epochs = 0;       // complete ones, over all calls
  int64_t global_step = 0;  // steps done, over all calls
  int64_t first_step = 0;   // at which this call began: 0, or where an earlier one had stopped
  double loss = 0;          // of the last step of this call, with the regularization; not a number without a step
  std::optional<Evaluation> last = std::nullopt;                   // the last evaluation of this call
  std::vector<std::pair<std::string, Evaluation>> last_of_more{};  // of each of more_validations, by name
  std::optional<FitBest> best = std::nullopt;                      // the best one of all calls
  std::string stop_reason{};             // why it ended before its last epoch; empty: it did not
  std::shared_ptr<const Model> model{};  // with the last weights, averaged ones where the training averages
};

// Trains. Blocks until the last epoch is complete, or the training is stopped. A training that an early stop ended
// stays ended, and one whose epochs are all complete is evaluated again; neither makes a step.
//
// Throws kInvalidArgument for options that cannot be, another graph or other classes than those of the checkpoint in
// train_dir, and a number of classes that is not that of the outputs; kCorruptData for a damaged checkpoint; and what
// the training throws. Checkpoints of graphs with custom layers hold no graph, so that load_model() does not take
// them; fit() goes on from them all the same.
FitResult fit(const FitOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
