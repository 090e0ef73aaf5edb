#include "trainyard/train/fit/fit.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/sources/combined_source.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/fit/fit_run.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {
namespace {

[[noreturn]] void refuse_option(std::string problem, const std::string& where, std::string expected, std::string actual,
                                std::string remedy = "") {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                                        .where = "FitOptions::" + where,
                                                        .expected = std::move(expected),
                                                        .actual = std::move(actual),
                                                        .remedy = std::move(remedy)});
}

void require_count(const char* where, int64_t least, int64_t actual) {
  if (actual >= least) return;
  refuse_option("a number is out of range", where, "at least " + std::to_string(least), std::to_string(actual));
}

void check_replicas(const std::string& where, const data::BatchSource& source, int replicas) {
  if (source.replicas() == replicas) return;
  refuse_option("a source has batches for another number of replicas", where, std::to_string(replicas),
                std::to_string(source.replicas()), "give the source's options as many replicas");
}

void check_metrics(const std::string& where, const std::vector<std::shared_ptr<Metric>>& metrics) {
  if (std::any_of(metrics.begin(), metrics.end(), [](const auto& each) { return each == nullptr; })) {
    refuse_option("a metric is null", where, "", "");
  }
}

// Throws where a result of a metric has the name of another number of an evaluation: monitors refuse that, but only
// when an epoch is done. With a loss of one's own the labels alone tell whether accuracies are among the numbers.
void check_names(const std::string& where, const std::vector<std::shared_ptr<Metric>>& metrics, bool own_loss) {
  std::set<std::string> names{"global_step", "epoch", "wall_time", "phase", "loss", "examples_per_second"};
  if (!own_loss) {
    names.emplace("top_1_accuracy");
    names.emplace("top_5_accuracy");
  }
  for (const auto& metric : metrics) {
    for (const auto& [name, value] : metric->results()) {
      if (names.insert(name).second) continue;
      refuse_option("two numbers of an evaluation have the same name", where, "a name that no other has",
                    fmt::format("'{}'", name),
                    "leave out the metric that measures what fit() measures itself, or give its result another name");
    }
  }
}

// Returns whether a source is known to have no end. One of a class that derives from FunctionSource or GeneratorSource
// may have an end of its own, in a next() that it overrides.
bool has_no_end(const data::BatchSource& source) {
  if (typeid(source) == typeid(data::FunctionSource)) return true;
  if (const auto* const tensors = dynamic_cast<const data::TensorSource*>(&source)) return tensors->repeats();
  const auto* const generator = dynamic_cast<const data::GeneratorSource*>(&source);
  if (generator != nullptr && typeid(source) == typeid(data::GeneratorSource)) return generator->repeats();
  // These may end with the first of their sources that ends.
  const auto* const combined = dynamic_cast<const data::CombinedSource*>(&source);
  if (combined == nullptr) return false;
  for (size_t i = 0; i < combined->size(); ++i) {
    if (!has_no_end(combined->part(i))) return false;
  }
  return true;
}

// Throws for sources that are known to have no end: their evaluation would have none, behind an epoch of training.
void check_end(const std::string& where, const data::BatchSource& source) {
  const std::string problem = "the validation is a source that has no end";
  const auto* const tensors = dynamic_cast<const data::TensorSource*>(&source);
  if (tensors != nullptr && tensors->repeats()) {
    refuse_option(problem, where, "TensorSourceOptions{.repeat = false}", ".repeat = true");
  }
  // Not one that derives from it, whose next() may end.
  if (typeid(source) == typeid(data::FunctionSource)) {
    refuse_option(problem, where, "a source that ends", "a FunctionSource",
                  "take a TensorSource or a GeneratorSource with .repeat = false");
  }
  if (!has_no_end(source)) return;
  const bool is_generator = dynamic_cast<const data::GeneratorSource*>(&source) != nullptr;
  refuse_option(problem, where, is_generator ? "GeneratorSourceOptions{.repeat = false}" : "a source that ends",
                is_generator ? ".repeat = true" : "a combination of sources of which none ends",
                is_generator ? "" : "make one of them with .repeat = false");
}

// Throws where the source is none of validation images, or numbers its classes in another way than the training.
void check_validation(const std::string& where, const data::BatchSource& train,
                      const std::shared_ptr<data::BatchSource>& source) {
  if (source == nullptr) refuse_option("there is no source to evaluate", where, "", "");
  check_replicas(where, *source, 1);
  check_end(where, *source);
  const std::optional<data::SourceDescription> said = data::description_of(*source);
  if (!said) return;
  if (said->training) {
    refuse_option("the validation is a source of training images, which has no end", where,
                  "FolderOptions{.training = false}", ".training = true");
  }
  const auto* const folder = data::find_source<data::FolderSource>(train);
  const auto* const other = data::find_source<data::FolderSource>(*source);
  if (folder != nullptr && other != nullptr && folder->shares_images_with(*other)) {
    refuse_option("the validation has images of the training, of which a score says nothing about other images", where,
                  "images that are not trained on", "the same folder",
                  "open the folder with .part = FolderPart::kTraining, and with FolderPart::kValidation");
  }
  const std::optional<data::SourceDescription> trained = data::description_of(train);
  if (trained && trained->classes != said->classes) {
    refuse_option("the validation numbers its classes in another way than the training", where,
                  data::quoted_classes(trained->classes), data::quoted_classes(said->classes),
                  "open it with .classes = train->classes()");
  }
}

// Throws where evaluations cannot be compared by FitOptions::best, so that no epoch is trained in vain.
void check_best(const FitOptions& options) {
  const auto add_values = [](const std::string& set, const std::vector<std::shared_ptr<Metric>>& metrics,
                             std::vector<std::string>& names) {
    std::vector<std::string> own = names_of_values(Evaluation());
    for (const auto& metric : metrics) {
      for (const auto& [name, value] : metric->results()) own.push_back(name);
    }
    for (const std::string& name : own) names.push_back(set.empty() ? name : full_name(set, name));
  };
  std::vector<std::string> names;
  add_values("", options.metrics, names);
  for (const FitValidation& each : options.more_validations) add_values(each.name, each.metrics, names);
  if (std::find(names.begin(), names.end(), options.best.name) == names.end()) {
    const std::string nearest = core::nearest_name(options.best.name, names);
    refuse_option("evaluations have no number of this name to be compared by", "best",
                  fmt::format("one of {}", fmt::join(names, ", ")), fmt::format("'{}'", options.best.name),
                  nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest));
  }
  static_cast<void>(lowest_is_best(options.best));
}

}  // namespace

void FitOptions::validate() const {
  if (graph.nodes.empty() || graph.outputs.empty()) refuse_option("there is no graph to train", "graph", "", "");
  if (train == nullptr) refuse_option("there is no source to train on", "train", "", "");
  require_count("epochs", 1, epochs);
  require_count("steps_per_epoch", 0, steps_per_epoch);
  require_count("devices.replicas", 1, devices.replicas);
  require_count("intra_op_threads", 0, intra_op_threads);
  check_replicas("train", *train, devices.replicas * devices.ranks());
  if (devices.ranks() > 1 && (variable_update == "asynchronous" || variable_update == "independent")) {
    refuse_option("replicas of several processes do not exchange gradients so", "variable_update",
                  "one whose replicas share each step, such as the default", variable_update);
  }
  if (std::any_of(callbacks.begin(), callbacks.end(), [](const auto& each) { return each == nullptr; })) {
    refuse_option("a callback is null", "callbacks", "", "");
  }
  check_metrics("metrics", metrics);
  if (average) average->validate();
  if (validation == nullptr) {
    const char* const without_use = early_stop                  ? "early_stop"
                                    : !metrics.empty()          ? "metrics"
                                    : !more_validations.empty() ? "more_validations"
                                                                : nullptr;
    if (without_use != nullptr)
      refuse_option("nothing is evaluated that it is for", without_use, "a validation", "none");
    return;
  }
  check_validation("validation", *train, validation);
  check_names("metrics", metrics, static_cast<bool>(loss));
  std::set<std::string> names{"", "train", "eval"};
  for (const FitValidation& each : more_validations) {
    if (!names.insert(each.name).second) {
      refuse_option("a validation set has no name of its own", "more_validations", "a name beside train and eval",
                    fmt::format("'{}'", each.name));
    }
    check_validation("more_validations, '" + each.name + "'", *train, each.source);
    check_metrics("more_validations, '" + each.name + "'", each.metrics);
    check_names("more_validations, '" + each.name + "'", each.metrics, static_cast<bool>(loss));
  }
  check_best(*this);
  if (!early_stop) return;
  require_count("early_stop.patience", 1, early_stop->patience);
  if (!(early_stop->min_delta >= 0)) {
    refuse_option("a number is out of range", "early_stop.min_delta", "0 or more",
                  std::to_string(early_stop->min_delta));
  }
}

FitResult fit(const FitOptions& options) {
  options.validate();
  if (options.devices.processes == nullptr) {
    parallel::refuse_copies("train alone");
    return FitRun(options).run();
  }
  std::optional<FitResult> result;
  parallel::report_what_fails(*options.devices.processes, [&] { result = FitRun(options).run(); });
  return *std::move(result);
}

}  // namespace trainyard::train
