// The data of a run and what follows from them: which classes there are, and how many outputs the model has.
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/dataset_choice.h"

namespace trainyard::recipes {
namespace {

constexpr const char* kTraining = "the training images";

// What --num_classes means where it is not given: as many as the data name; of all of ImageNet's and CIFAR-10's
// classes, as tf_cnn_benchmarks counts them, in its dialect and where labels have no names.
int64_t default_num_classes(const BenchmarkSettings& settings, size_t names) {
  const models::DatasetInfo& info = models::find_dataset(settings.dataset);
  const bool whole = static_cast<int64_t>(names) == info.num_classes;
  if (names == 0 || (whole && settings.dialect == Dialect::kTfCnnBenchmarks)) return info.benchmark_classes;
  return static_cast<int64_t>(names);
}

int64_t read_num_classes(const core::FlagValues& values, const BenchmarkSettings& settings, size_t names) {
  const auto given = values.optional_integer("num_classes");
  if (!given) return default_num_classes(settings, names);
  const int64_t more = *given - static_cast<int64_t>(names);
  if (names > 0 && more > 0 && *given != models::find_dataset(settings.dataset).benchmark_classes) {
    core::log::info("--num_classes={} with {} classes: {} of the outputs {} never a label", *given, names, more,
                    more == 1 ? "is" : "are");
  }
  return *given;
}

ClassNames classes_of(const data::Dataset& dataset, const BenchmarkSettings& settings) {
  return class_names_of(dataset, models::find_dataset(settings.dataset), settings.num_classes);
}

int64_t count_of(const data::Dataset& dataset) {
  const std::vector<std::string> names = dataset.label_names();
  return names.empty() ? dataset.label_count() - dataset.first_label() : std::ssize(names);
}

// Throws unless the labels of the validation images are outputs of the model in the way of settings.classes, or, where
// `origin` names no classes, can be.
void check_validation(const BenchmarkSettings& settings, const std::string& origin) {
  const data::Dataset& data = *settings.validation_data;
  const ClassNames now = classes_of(data, settings);
  const std::string where = "the validation images of " + settings.data_dir;
  if (!settings.classes.names.empty()) {
    check_same_classes({settings.classes, origin, std::ssize(settings.classes.names)}, {now, where, count_of(data)},
                       "use validation images of the training's classes and in its form");
    return;
  }
  // CIFAR-10's and shapes' own names stand for their numbers.
  const models::DatasetInfo& info = models::find_dataset(settings.dataset);
  const bool own = info.name != "imagenet" && std::ssize(now.names) == info.num_classes;
  if (now.names.empty() || own || origin.empty()) return;
  if (const int64_t outputs = settings.num_classes - now.first_output; std::ssize(now.names) != outputs) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "which class is which output is not known: " + origin + " names no classes",
         .where = where,
         .expected = fmt::format("{} classes, as the model has outputs", outputs),
         .actual = fmt::format("{}: {}", now.names.size(), data::quoted_classes(now.names)),
         .remedy = "give a --data_dir with a folder of each class, or evaluate a checkpoint that was trained on them"});
  }
  core::log::info("{} names no classes: those of {} are taken to be its outputs in their order", origin, where);
}

void open_for_training(const core::FlagValues& values, BenchmarkSettings& settings) {
  if (!settings.synthetic()) settings.train_data = open_dataset(settings, data::Subset::kTrain);
  const data::Dataset* const data = settings.train_data.get();
  settings.num_classes = read_num_classes(values, settings, data == nullptr ? 0 : data->label_names().size());
  if (data == nullptr) return;
  settings.classes = classes_of(*data, settings);
  settings.class_count = count_of(*data);
  if (settings.dataset == "imagenet" && !settings.classes.names.empty()) {
    settings.label_texts->set_names(settings.classes.names, settings.classes.first_output, kTraining);
  }
  if (settings.mode != BenchmarkMode::kTrainingAndEvaluation) return;
  settings.validation_data =
      open_dataset(settings, data::Subset::kValidation, {settings.classes.names, kTraining, settings.on_unknown_class});
  check_validation(settings, kTraining);
}

// The classes are the checkpoint's; of a model that names none, those of the training images, if there are any.
void open_for_evaluation(const core::FlagValues& values, BenchmarkSettings& settings) {
  const std::string path = settings.weights.empty() ? settings.train_dir : settings.weights;
  settings.saved_classes = read_saved_classes(path, damaged_checkpoints(values, false));
  const auto& saved = settings.saved_classes;
  // Of a checkpoint that is still to come nothing is known, and nothing is compared.
  const std::string origin = saved ? saved->checkpoint.path : settings.weights;
  data::KnownClasses known{.origin = origin, .on_unknown = settings.on_unknown_class};
  if (saved) {
    settings.classes = saved->classes;
    known.names = saved->classes.names;
    settings.label_texts->load(saved->label_texts, "the training of " + origin);
  }
  if (known.names.empty() && !settings.synthetic()) {
    known.names = data::training_class_names(
        settings.dataset, {.directory = settings.data_dir, .index_directory = settings.data_index_dir});
    known.origin = kTraining;
  }
  if (!settings.synthetic()) settings.validation_data = open_dataset(settings, data::Subset::kValidation, known);
  const bool of_checkpoint = saved && !values.optional_integer("num_classes");
  settings.num_classes =
      of_checkpoint ? saved->identity.num_classes
                    : read_num_classes(values, settings,
                                       settings.synthetic() ? 0 : settings.validation_data->label_names().size());
  if (settings.synthetic()) return;
  check_validation(settings, origin);
  if (settings.dataset == "imagenet" && !settings.classes.names.empty()) {
    settings.label_texts->set_names(settings.classes.names, settings.classes.first_output, origin);
  }
}

}  // namespace

void open_data(const core::FlagValues& values, BenchmarkSettings& settings) {
  settings.label_texts = std::make_shared<data::LabelTexts>();
  if (settings.mode == BenchmarkMode::kEvaluation) {
    open_for_evaluation(values, settings);
  } else {
    open_for_training(values, settings);
  }
  settings.graph = models::build_model(settings.model->name, settings.dataset, {.num_classes = settings.num_classes});
  // An epoch of what is there; of synthetic images, as many as the data set has.
  const models::DatasetInfo& info = models::find_dataset(settings.dataset);
  settings.train_examples = settings.train_data ? settings.train_data->size() : info.train_examples;
  settings.validation_examples = settings.validation_data ? settings.validation_data->size() : info.validation_examples;
  settings.plan = make_step_plan(values, settings);
}

}  // namespace trainyard::recipes
