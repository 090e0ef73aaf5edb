// A prepared run: its options are checked against the machine, devices are open, other processes are connected, data
// and checkpoints are examined, and everything that depends on them is decided.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_run.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/saved_choices.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

class ControllerLink;

// The caller's custom parts. Null: those of the options.
struct OwnParts {
  std::shared_ptr<const BenchmarkDataset> dataset;
  std::shared_ptr<BenchmarkModel> model;
};

struct PreparedRun {
  TfCnnOptions options;
  OwnParts own;
  // Description of own.model, or of an unregistered model whose graph is in the checkpoint or file; else null.
  std::shared_ptr<const models::ModelInfo> own_info;
  SavedChoices saved;  // defaults from the model that is evaluated, continued or started from
  InputSettings input;
  train::OpenDevices device;
  ThreadSettings threads;
  std::string dataset_label;                 // display name of the data set: "cats_and_dogs", "imagenet (synthetic)"
  const models::ModelInfo* model = nullptr;  // from the registry, or own_info
  nn::Graph graph;
  // The scales of what computes in 8 bits in an evaluation; null: all in float.
  std::shared_ptr<const nn::Quantization> quantization;
  std::vector<nn::Graph> other_sizes;     // the same network for the images of other epochs
  std::optional<train::Teacher> teacher;  // of a training
  int64_t num_classes = 0;                // outputs of the model
  ClassNames classes;                     // of the training data, or of the evaluated checkpoint
  int64_t class_count = 0;                // of the training data, with names or without; 0: none
  // Checkpoint to evaluate, for whose classes the data were opened. Null when none existed yet.
  std::shared_ptr<const OpenedModel> checkpoint;
  // Class names in the training's records; an evaluation compares its own with them.
  std::shared_ptr<data::LabelTexts> label_texts;
  std::shared_ptr<ControllerLink> controller;  // of a worker of distributed_all_reduce that has one; else null
  int replicas = 1;
  int64_t batch_size = 0, eval_batch_size = 0;                       // a device
  std::shared_ptr<const data::Dataset> train_data, validation_data;  // null: synthetic, or not needed
  // The label of each training sample, for classes that are weighted or balanced; else null.
  std::shared_ptr<const std::vector<int64_t>> train_labels;
  int64_t train_examples = 0, validation_examples = 0;  // of an epoch
  train::StepPlan plan;
  bool eval_exact = false;
  std::shared_ptr<ComplianceRun> compliance;  // on the chief, when MLPerf's lines are requested; else null

  RunMode mode() const { return options.mode; }
  // Returns whether batches are made without data.
  bool synthetic() const { return own.dataset == nullptr && input.synthetic(); }
  // Returns whether an image of the data has any number of labels.
  bool label_sets() const {
    const data::Dataset* const data = train_data ? train_data.get() : validation_data.get();
    return data != nullptr && data->has_label_sets();
  }
  bool own_dialect() const { return options.dialect == Dialect::kTrainyard; }
  const std::string& train_dir() const { return options.saving.train_dir; }
  // Returns true for distributed_all_reduce, in which tf_cnn_benchmarks has one session over all workers: steps are
  // shown with the images and the loss of all processes.
  bool single_session() const { return options.device.variable_update == "distributed_all_reduce"; }
  // Returns how many replicas all processes have together.
  int total_replicas() const { return replicas * device.ranks(); }
  // Returns whether processes share the images of an evaluation. With custom parts that make the images or use the
  // outputs, each process evaluates all.
  bool shares_evaluation() const {
    return device.processes != nullptr && own.dataset == nullptr && own.model == nullptr;
  }
  // Returns whether evaluations count what they predict. The outputs of a custom model may be no logits.
  bool explains_evaluation() const {
    return own.model == nullptr && !label_sets() && (own_dialect() || options.explains_on_request());
  }
  // Returns the number of devices of an evaluation: each uses batches of eval_batch_size. One GPU processes those of
  // all.
  int eval_replicas() const { return device.accelerators.empty() ? replicas : 1; }
  // Returns whether parameters are updated.
  bool trains() const { return mode() == RunMode::kTraining || mode() == RunMode::kTrainingAndEvaluation; }
  // Returns the batches of a device in a step: micro-steps are parts of an update.
  int micro_steps() const { return trains() ? options.micro_steps : 1; }
  // Returns the images per step, over all devices and micro-steps of this process.
  int64_t global_batch_size() const { return batch_size * replicas * micro_steps(); }
  // Returns the same over all processes, from which epochs are computed.
  int64_t examples_per_step() const { return global_batch_size() * device.ranks(); }
  // Returns true when the global step counts the steps of each worker of parameter servers. In our dialect it does so
  // only where workers run at their own pace: else a step of all is one.
  bool counts_all_workers() const { return own_pace() || (device.servers != nullptr && !own_dialect()); }
  // Returns the images by which one step of the global step moves the training, from which epochs and rates follow.
  int64_t examples_per_global_step() const { return counts_all_workers() ? global_batch_size() : examples_per_step(); }
  // Returns whether workers run at their own pace, and a parameter server counts their steps.
  bool own_pace() const { return device.servers != nullptr && !options.device.cluster.cross_replica_sync; }
  // Returns whether this process prints lines: the chief, and each worker that has parameter servers.
  bool prints() const { return device.is_chief() || device.servers != nullptr; }
  // Returns false with five classes or fewer, where top-5 is always right. tf_cnn_benchmarks shows it anyway.
  bool shows_top_5() const { return !own_dialect() || num_classes > 5; }
};

// Validates the options, opens devices and data, and logs the line on the device. Throws what these throw, and
// kInvalidArgument when the options do not fit the data, or the classes of training (or of the checkpoint) and
// validation do not fit each other; with several processes, also when they differ.
PreparedRun prepare(const TfCnnOptions& options, const OwnParts& own = {});

// Returns the model's graph for these options.
nn::Graph build_graph(const PreparedRun& run, models::ModelOptions options);

// Opens the data of the mode and decides what depends on them: the number of classes, the graph, the plan. In an
// evaluation, for the classes and the image size of run.checkpoint. A part of prepare(), called again when an
// evaluation finds another checkpoint.
void open_data(PreparedRun& run);

// Decides run.input again, for the images of run.saved. An evaluation calls it when it finds another checkpoint.
void settle_images(PreparedRun& run);

// Returns the size of the images: the requested one; else that of the model that is evaluated, continued or started
// from; else the model's own.
nn::Size2d choose_image_size(const PreparedRun& run);

// Returns how run.checkpoint is opened, or the newest one after it.
TrainedModelOptions evaluated_model(const PreparedRun& run);
// Opens the checkpoint; null when there is none yet. With several processes rank 0 reads it for all.
std::shared_ptr<const OpenedModel> open_evaluated_model(const PreparedRun& run);

// The part of the images that a process uses when several work together.
enum class Share { kOwn, kAll };
// Returns the input of training or of evaluation; an exact evaluation ends after one pass.
std::shared_ptr<data::BatchSource> make_source(const PreparedRun& run, data::Subset subset, Share share = Share::kOwn);

}  // namespace trainyard::frontends
