// The flags of door 1 as the rooms' option structs: the only place that reads flags. What a flag means is decided here,
// what it does is decided there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/recipes/class_names.h"
#include "trainyard/recipes/device_settings.h"
#include "trainyard/recipes/dialect.h"
#include "trainyard/recipes/input_settings.h"
#include "trainyard/recipes/thread_settings.h"
#include "trainyard/train/loop/single_cost_trainer.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::recipes {

enum class BenchmarkMode { kTraining, kEvaluation, kTrainingAndEvaluation, kForwardOnly };
std::string_view benchmark_mode_name(BenchmarkMode mode);  // upstream's: "training", "training + evaluation", ...

struct BenchmarkSettings : InputSettings {
  Dialect dialect = Dialect::kTfCnnBenchmarks;
  BenchmarkMode mode = BenchmarkMode::kTraining;
  std::string dataset_label;  // the data set's name for people: "cats_and_dogs", "imagenet (synthetic)"
  const models::ModelInfo* model = nullptr;
  nn::Graph graph;
  std::string executor;               // what runs it: a name of nn::executors()
  at::ScalarType dtype = at::kFloat;  // of activations
  nn::KernelOptions kernels;
  DeviceSettings device;
  int64_t num_classes = 0;  // outputs of the model
  ClassNames classes;       // of the training data, or of the checkpoint that is evaluated
  int64_t class_count = 0;  // of the training data, with names or without; 0: there are none
  // What the checkpoint that is evaluated said when the data were opened. None: there was no checkpoint.
  std::optional<SavedClasses> saved_classes;
  // What the training's records call their classes; an evaluation compares its own with it.
  std::shared_ptr<data::LabelTexts> label_texts;
  int replicas = 1, micro_steps = 1;
  int64_t batch_size = 0, eval_batch_size = 0;                       // a device
  std::shared_ptr<const data::Dataset> train_data, validation_data;  // null: synthetic, or not needed
  int64_t train_examples = 0, validation_examples = 0;               // of an epoch
  train::StepPlan plan;
  bool eval_exact = false;
  ThreadSettings threads;
  std::string train_dir, eval_dir;  // empty: nothing is written
  std::string weights;              // a file to start from, or to evaluate; empty: none

  // Images a step, over all devices and micro-steps of this process.
  int64_t global_batch_size() const { return batch_size * replicas * micro_steps; }
  // The same, over all processes: what an epoch is counted in.
  int64_t examples_per_step() const { return global_batch_size() * device.ranks(); }
  // Returns false where five guesses are always right: with five classes or fewer. tf_cnn_benchmarks shows them anyway.
  bool shows_top_5() const { return dialect == Dialect::kTfCnnBenchmarks || num_classes > 5; }
};

// Opens the data that the mode needs and decides what depends on them: the number of classes, the graph, the plan.
// Throws kInvalidArgument where the classes of training (or of the checkpoint) and validation do not fit each other.
void open_data(const core::FlagValues& values, BenchmarkSettings& settings);

// Validates everything that can be known before data is read, in upstream's order. Opens the device; logs the line on
// it and the warnings of warned flags.
BenchmarkSettings read_benchmark_settings(const core::FlagValues& values, Dialect dialect);

// The input of training or of evaluation; an exact evaluation ends after one pass.
std::shared_ptr<data::BatchSource> make_source(const BenchmarkSettings& settings, data::Subset subset);

train::StepPlan make_step_plan(const core::FlagValues& values, const BenchmarkSettings& settings);

// Learning rate by flags, else by the model (spec 3.5). Steps are global steps.
optim::LearningRate make_learning_rate(const core::FlagValues& values, const BenchmarkSettings& settings);

// What loads the file of --weights, and says so when its head is another model's; none without one.
std::function<void(nn::ParameterSet&)> make_start(const BenchmarkSettings& settings);

train::SingleCostOptions make_trainer_options(const core::FlagValues& values, const BenchmarkSettings& settings);

}  // namespace trainyard::recipes
