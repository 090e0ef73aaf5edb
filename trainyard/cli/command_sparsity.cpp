#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/model/sparsity_report.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/models/flags.h"
#include "trainyard/optim/flags.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/masked_state.h"
#include "trainyard/train/session/run_directory.h"
#include "trainyard/train/session/run_lock.h"

namespace trainyard::cli {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::string_view kWeightsFile = ".safetensors";

void declare(core::FlagTable& table) {
  table.text("model", std::nullopt, "the model; unset: the one that the checkpoint or file names").group("Model");
  table.text("data_name", std::nullopt, "the data set; unset: the checkpoint's, imagenet for a file of weights")
      .group("Model");
  table.integer("num_classes", 0, "of a file of weights; 0: the data set's")
      .bounds(0, models::kMostClasses)
      .group("Model");
  table.boolean("prune", false, "make the weights 2:4 and write them into --output").group("Sparsity");
  optim::declare_pruning_flags(table);
  table.boolean("verify", false, "fail unless all weights that can be sparse, and are not excluded, are 2:4")
      .group("Sparsity");
  table
      .text("output", std::nullopt,
            "of --prune: a file, NAME.safetensors; or, for a checkpoint, a new train directory, whose checkpoint a "
            "training goes on from")
      .group("Output");
  table.boolean("json", false, "a JSON object instead of text").group("Output");
}

void require_no_run(const std::string& directory) {
  if (!train::holds_run(directory)) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "--output holds a run already", .where = directory, .remedy = "name a new directory"});
}

// Refuses, before anything is computed, what cannot be written and what would replace something that was saved.
void check_output(const std::string& output, const frontends::OpenedModel& opened) {
  core::FileSystem& files = core::local_file_system();
  if (output.ends_with(kWeightsFile)) {
    require_no_folder("output", output);
    if (!is_same_file(output, opened.checkpoint.path)) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--output is the file that is pruned",
                                              .where = output,
                                              .remedy = "name another file: what pruning takes away is lost in it"});
  }
  if (opened.reader == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a file of weights is pruned into a file of weights",
                                              .where = "--output",
                                              .expected = "NAME.safetensors",
                                              .actual = output});
  }
  if (files.exists(output) && !files.info(output).is_directory) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "--output is a file", .expected = "a new directory, or NAME.safetensors", .actual = output});
  }
  formats::refuse_tensorflow_checkpoint(output);
  require_no_run(output);
}

std::string write(const std::string& output, const frontends::OpenedModel& opened,
                  const frontends::TrainedModel& trained) {
  if (output.ends_with(kWeightsFile)) {
    train::save_weights(output, *trained.parameters, frontends::metadata_of(trained));
    return output;
  }
  core::local_file_system().make_directories(output);
  const core::LockFile lock(core::join_path(output, train::kRunLock));
  require_no_run(output);  // once more, now that all parts of its path are there
  train::CheckpointStore store(output, /*max_to_keep=*/0);
  return store
      .save(opened.checkpoint.global_step, opened.identity, train::MaskedState(*opened.reader, *trained.parameters))
      .path;
}

}  // namespace

int run_sparsity(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare(table);
  const auto parsed = parse_command(
      {"sparsity", "2:4 sparsity of a checkpoint or a file of weights: verifies, reports, prunes", "CHECKPOINT"}, table,
      arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  if (parsed->positional.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "trainyard sparsity takes one checkpoint, train directory or file of weights",
                 .actual = fmt::format("{} of them", parsed->positional.size())});
  }
  const std::string output = values.text("output");
  const bool prunes = values.boolean("prune");
  if (prunes == output.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = prunes ? "--output is missing" : "--output is of --prune",
                                              .remedy = "pass both, or neither"});
  }
  const frontends::TrainedModelOptions options{.path = parsed->positional[0],
                                               .model = values.text("model"),
                                               .dataset = values.text("data_name"),
                                               .num_classes = values.integer("num_classes")};
  const optim::SparsityOptions sparsity = optim::read_pruning_flags(values);
  const frontends::OpenedModel opened = frontends::open_model(options);
  if (prunes) check_output(output, opened);
  const frontends::TrainedModel trained = frontends::load_trained_model(opened, options);
  const auto layers = optim::sparse_layers(trained.executor->graph(), sparsity.exclude);
  const std::vector<optim::LayerSparsity> report =
      prunes ? optim::prune(*trained.parameters, layers, sparsity.algorithm)
             : optim::measure_sparsity(*trained.parameters, layers, sparsity.algorithm);
  const std::string written = prunes ? write(output, opened, trained) : "";
  console.out << (values.boolean("json") ? frontends::sparsity_json(report, trained, sparsity.algorithm)
                                         : frontends::sparsity_table(report));
  if (!written.empty()) core::log::info("wrote {}", written);
  if (!values.boolean("verify") || frontends::count_sparsity(report).all()) return kSuccess;
  const frontends::SparsityCounts counts = frontends::count_sparsity(report);
  core::log::error("{}: {} of {} weights that can be sparse are not 2:4", options.path,
                   counts.weights - counts.two_of_four, counts.weights);
  return kFailure;
}

}  // namespace trainyard::cli
