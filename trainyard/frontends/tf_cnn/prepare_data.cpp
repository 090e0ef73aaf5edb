// The data of a run and what follows from them: which classes there are, and how many outputs the model has.
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/sample_labels.h"
#include "trainyard/frontends/model/other_sizes.h"
#include "trainyard/frontends/model/teacher.h"
#include "trainyard/frontends/tf_cnn/fine_tuning.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/frontends/tf_cnn/trainer_defaults.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kTraining = "the training images";

// What --num_classes means where it is not given: as many as the data name; of all of ImageNet's and CIFAR-10's
// classes, as tf_cnn_benchmarks counts them, in its dialect and where labels have no names.
int64_t default_num_classes(const PreparedRun& run, size_t names) {
  if (run.own.dataset != nullptr) return run.own.dataset->num_classes();
  const models::DatasetInfo& info = models::find_dataset(run.input.dataset);
  if (info.family == models::DatasetFamily::kCoco) return info.benchmark_classes;  // the background is a class there
  const bool whole = static_cast<int64_t>(names) == info.num_classes;
  if (names == 0 || (whole && !run.own_dialect())) return info.benchmark_classes;
  return static_cast<int64_t>(names);
}

int64_t read_num_classes(const PreparedRun& run, size_t names) {
  const auto given = run.options.num_classes;
  const bool continues = run.own_dialect() && run.saved.continues && run.saved.model == run.model->name;
  if (!given && continues && std::cmp_less_equal(names, run.saved.num_classes)) return run.saved.num_classes;
  if (!given) return default_num_classes(run, names);
  const int64_t more = *given - static_cast<int64_t>(names);
  if (names > 0 && more > 0 && *given != models::find_dataset(run.input.dataset).benchmark_classes) {
    core::log::info("--num_classes={} with {} classes: {} of the outputs {} never a label", *given, names, more,
                    more == 1 ? "is" : "are");
  }
  return *given;
}

ClassNames classes_of(const data::Dataset& dataset, const PreparedRun& run) {
  return class_names_of(dataset, models::find_dataset(run.input.dataset), run.num_classes);
}

// Throws unless the labels of the validation images are outputs of the model in the way of run.classes, or, where
// `origin` names no classes, can be.
void check_validation(const PreparedRun& run, const std::string& origin) {
  const data::Dataset& data = *run.validation_data;
  const ClassNames now = classes_of(data, run);
  const std::string where = "the validation images of " + run.input.data_dir;
  if (!run.classes.names.empty()) {
    check_same_classes({run.classes, origin, std::ssize(run.classes.names)}, {now, where, class_count_of(data)},
                       "use validation images of the training's classes and in its form");
    return;
  }
  // CIFAR-10's and shapes' own names are equivalent to their numbers.
  const models::DatasetInfo& info = models::find_dataset(run.input.dataset);
  const bool own = info.name != "imagenet" && std::ssize(now.names) == info.num_classes;
  if (now.names.empty() || own || origin.empty()) return;
  if (const int64_t outputs = run.num_classes - now.first_output; std::ssize(now.names) != outputs) {
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

// A model of one label an image cannot be measured on sets of labels, nor the other way round.
void check_label_kind(const PreparedRun& run, const OpenedModel* saved) {
  const bool says =
      saved != nullptr && (saved->reader != nullptr || !saved->classes.names.empty() || saved->label_sets);
  if (!says || saved->label_sets == run.label_sets()) return;
  const auto labels = [](bool sets) { return sets ? "any number of labels an image" : "one label an image"; };
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the data have another kind of labels than those that the model was trained on",
                     .where = run.input.data_dir,
                     .expected = labels(saved->label_sets),
                     .actual = labels(run.label_sets()),
                     .remedy = saved->label_sets ? "pass a table of its labels as --labels_csv"
                                                 : "evaluate on images of one label each"});
}

bool weights_classes(const PreparedRun& run) {
  return run.options.loss.class_weights != "none";
}

void open_for_training(PreparedRun& run) {
  run.validation_data.reset();
  if (!run.input.synthetic()) run.train_data = open_dataset(run.input, data::Subset::kTrain);
  settle_fine_tuning(run);
  const data::Dataset* const data = run.train_data.get();
  const LearningTask& task = task_of(run);
  task.check_options(run);
  // The best checkpoint is that of the measure that the task's evaluations have, which also ends a training early.
  if (std::string& best = run.options.saving.keep_best; best == "top_1") best = task.best_metric();
  if (std::string& metric = run.options.early_stop_metric;
      run.options.early_stop && (metric == "top_1" || (metric.empty() && run.options.saving.keep_best == "none"))) {
    metric = task.best_metric();
  }
  run.num_classes = read_num_classes(run, data == nullptr ? 0 : data->label_names().size());
  if (data == nullptr) {
    if (weights_classes(run)) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "--class_weights has no images to count", .remedy = "pass --data_dir, too"});
    }
    return settle_evaluations(run);
  }
  if (!run.train_labels && (run.input.balanced_sampling || weights_classes(run))) {
    run.train_labels = std::make_shared<const std::vector<int64_t>>(data::sample_labels(*data));
  }
  run.classes = classes_of(*data, run);
  run.class_count = class_count_of(*data);
  if (run.input.dataset == "imagenet" && !run.classes.names.empty()) {
    run.label_texts->set_names(run.classes.names, run.classes.first_output, kTraining);
  }
  settle_evaluations(run);
  if (run.mode() != RunMode::kTrainingAndEvaluation) return;
  if (run.validation_data == nullptr) {
    run.validation_data =
        open_dataset(run.input, data::Subset::kValidation, {run.classes.names, kTraining, run.input.on_unknown_class});
  }
  check_validation(run, kTraining);
}

// The classes are the checkpoint's; of a model that names none, those of the training images, if there are any.
void open_for_evaluation(PreparedRun& run) {
  const OpenedModel* const opened = run.checkpoint.get();
  // A file of weights need not say for how many classes it is.
  const OpenedModel* const saved = opened != nullptr && opened->identity.num_classes > 0 ? opened : nullptr;
  run.classes = {};
  // Nothing is known of a future checkpoint, so nothing is compared.
  const std::string origin = saved != nullptr ? saved->checkpoint.path : run.options.weights;
  data::KnownClasses known{.origin = origin, .on_unknown = run.input.on_unknown_class};
  if (saved != nullptr) {
    run.classes = saved->classes;
    known.names = saved->classes.names;
    run.label_texts->load(saved->label_texts, "the training of " + origin);
  }
  if (known.names.empty() && !run.input.synthetic()) {
    known.names = data::training_class_names(run.input.dataset, dataset_options(run.input, data::Subset::kTrain));
    known.origin = kTraining;
  }
  if (!run.input.synthetic()) run.validation_data = open_dataset(run.input, data::Subset::kValidation, known);
  const bool of_checkpoint = saved != nullptr && !run.options.num_classes;
  run.num_classes = of_checkpoint
                        ? saved->identity.num_classes
                        : read_num_classes(run, run.input.synthetic() ? 0 : run.validation_data->label_names().size());
  if (run.input.synthetic()) return;
  check_label_kind(run, saved);
  task_of(run).check_options(run);
  check_validation(run, origin);
  if (run.input.dataset == "imagenet" && !run.classes.names.empty()) {
    run.label_texts->set_names(run.classes.names, run.classes.first_output, origin);
  }
}

}  // namespace

void open_data(PreparedRun& run) {
  run.label_texts = std::make_shared<data::LabelTexts>();
  if (run.mode() == RunMode::kEvaluation) {
    open_for_evaluation(run);
  } else {
    open_for_training(run);
  }
  const nn::Size2d size = choose_image_size(run);
  run.input.transform.height = size.height;
  run.input.transform.width = size.width;
  run.input.transform.validate();
  const auto graph_of = [&run](nn::Size2d of) {
    return build_graph(run, {.num_classes = run.num_classes,
                             .image_size = of,
                             .auxiliary_heads = run.options.auxiliary_heads,
                             .stochastic_depth = run.options.stochastic_depth,
                             .dropout = run.options.dropout,
                             .batch_norm_decay = run.options.batch_norm_decay});
  };
  run.graph = graph_of(size);
  run.other_sizes.clear();
  run.teacher.reset();
  if (run.trains()) {
    run.other_sizes = graphs_of_other_sizes(run.graph, run.input.epoch_sizes, graph_of);
    if (const TeacherOptions& asked = run.options.distillation; !asked.from.empty()) {
      run.teacher = open_teacher(asked.from, asked.model,
                                 {.dataset = run.input.dataset,
                                  .num_classes = run.num_classes,
                                  .classes = run.classes,
                                  .class_count = run.class_count,
                                  .image_size = size,
                                  .epoch_sizes = run.input.epoch_sizes,
                                  .normalization = run.input.transform.normalization});
    }
  }
  // An epoch of what is there; of synthetic images, as many as the data set has.
  const auto examples = [&run](const std::shared_ptr<const data::Dataset>& opened, data::Subset subset) {
    if (run.own.dataset != nullptr) return run.own.dataset->num_examples_per_epoch(subset);
    if (opened) return opened->size();
    const models::DatasetInfo& info = models::find_dataset(run.input.dataset);
    return subset == data::Subset::kTrain ? info.train_examples : info.validation_examples;
  };
  run.train_examples = examples(run.train_data, data::Subset::kTrain);
  run.validation_examples = examples(run.validation_data, data::Subset::kValidation);
  run.plan = make_step_plan(run);
  // An evaluation that waits for checkpoints may open the data again much later.
  if (run.input.files) run.input.files->invalidate();
}

}  // namespace trainyard::frontends
