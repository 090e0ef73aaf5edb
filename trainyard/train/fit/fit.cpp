#include "trainyard/train/fit/fit.h"

#include <algorithm>
#include <optional>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/train/fit/fit_run.h"

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

void check_replicas(const char* where, const data::BatchSource& source, int replicas) {
  if (source.replicas() == replicas) return;
  refuse_option("a source has batches for another number of replicas", where, std::to_string(replicas),
                std::to_string(source.replicas()), "give the source's options as many replicas");
}

}  // namespace

void FitOptions::validate() const {
  if (graph.nodes.empty() || graph.outputs.empty()) refuse_option("there is no graph to train", "graph", "", "");
  if (train == nullptr) refuse_option("there is no source to train on", "train", "", "");
  require_count("epochs", 1, epochs);
  require_count("steps_per_epoch", 0, steps_per_epoch);
  require_count("replicas", 1, replicas);
  require_count("intra_op_threads", 0, intra_op_threads);
  check_replicas("train", *train, replicas);
  if (best.name != "loss" && best.name != "top_1_accuracy") {
    refuse_option("evaluations cannot be compared by this", "best", "loss or top_1_accuracy", best.name);
  }
  if (std::any_of(callbacks.begin(), callbacks.end(), [](const auto& each) { return each == nullptr; })) {
    refuse_option("a callback is null", "callbacks", "", "");
  }
  if (std::any_of(metrics.begin(), metrics.end(), [](const auto& each) { return each == nullptr; })) {
    refuse_option("a metric is null", "metrics", "", "");
  }
  if (validation == nullptr) {
    if (early_stop)
      refuse_option("nothing is evaluated that could end the training", "early_stop", "a validation", "none");
    if (!metrics.empty())
      refuse_option("nothing is evaluated that metrics could measure", "metrics", "a validation", "none");
    return;
  }
  check_replicas("validation", *validation, 1);
  if (early_stop) {
    require_count("early_stop.patience", 1, early_stop->patience);
    if (!(early_stop->min_delta >= 0)) {
      refuse_option("a number is out of range", "early_stop.min_delta", "0 or more",
                    std::to_string(early_stop->min_delta));
    }
  }
  const auto* const folder = dynamic_cast<const data::FolderSource*>(train.get());
  const auto* const other = dynamic_cast<const data::FolderSource*>(validation.get());
  if (other != nullptr && other->training()) {
    refuse_option("the validation is a source of training images, which has no end", "validation",
                  "FolderOptions{.training = false}", ".training = true");
  }
  if (folder != nullptr && other != nullptr && folder->shares_images_with(*other)) {
    refuse_option("the validation has images of the training, of which a score says nothing about other images",
                  "validation", "images that are not trained on", "the same folder",
                  "open the folder with .part = FolderPart::kTraining, and with FolderPart::kValidation");
  }
  if (folder != nullptr && other != nullptr && folder->classes() != other->classes()) {
    refuse_option("the validation numbers its classes in another way than the training", "validation",
                  data::quoted_classes(folder->classes()), data::quoted_classes(other->classes()),
                  "open it with .classes = train->classes()");
  }
}

FitResult fit(const FitOptions& options) {
  options.validate();
  std::optional<core::LockFile> lock;
  if (!options.train_dir.empty()) {
    core::local_file_system().make_directories(options.train_dir);
    lock.emplace(core::join_path(options.train_dir, "run.lock"));
  }
  return FitRun(options).run();
}

}  // namespace trainyard::train
