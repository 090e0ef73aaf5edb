#include "trainyard/train/session/resume.h"

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/nn/quantization/quantization_aware.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/shared_checkpoint.h"

namespace trainyard::train {
namespace {

// Throws kInvalidArgument where a quantization-aware training lacks the scale of a layer that a flag has added to it
// since (nn/graph/training_options.h).
void refuse_added_layer(const CheckpointMismatch& mismatch, const std::string& path) {
  for (const std::string& name : mismatch.missing()) {
    const std::string layer = nn::scaled_node(name);
    for (const std::string flag : {"dropout", "stochastic_depth"}) {
      if (!layer.ends_with("." + flag)) continue;
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = fmt::format("the training with --qat was begun without --{}", flag),
                         .where = path,
                         .expected = "the layers that it has scales of 8 bits for",
                         .actual = layer,
                         .remedy = fmt::format("leave --{} out, or begin another run from it: --weights", flag)});
    }
  }
}

CheckpointInfo load_named(core::Stateful& state, const ResumeOptions& options) {
  CheckpointInfo found = find_checkpoint(options.checkpoint);
  try {
    load_checkpoint(found, &options.identity, state);
  } catch (const CheckpointMismatch& mismatch) {
    refuse_added_layer(mismatch, found.path);
    throw;
  }
  core::log::info("continuing from {}", found.path);
  return found;
}

}  // namespace

std::optional<CheckpointInfo> resume_run(core::Stateful& state, const ResumeOptions& options) {
  if (!options.checkpoint.empty()) return load_named(state, options);
  core::local_file_system().make_directories(options.directory);
  CheckpointStore store(options.directory);
  std::string optimizer, path;  // of the checkpoint
  const auto look = [&](const CheckpointInfo& found, const CheckpointFacts& facts) {
    if (options.check) options.check(found, facts);
    path = found.path;
    optimizer = facts.optimizer;
  };
  const auto differs = [&] {
    return !options.optimizer.empty() && !optimizer.empty() && optimizer != options.optimizer;
  };
  try {
    std::optional<CheckpointInfo> newest =
        resume_newest_checkpoint(store, &options.identity, state, options.damaged, look);
    if (newest) core::log::info("continuing from {}", newest->path);
    if (differs()) {
      core::log::warning("the optimizer was {}, and this run continues with {}: what {} keeps of earlier steps is lost",
                         optimizer, options.optimizer, optimizer);
    }
    return newest;
  } catch (const CheckpointMismatch& mismatch) {
    refuse_added_layer(mismatch, path);
    if (mismatch.missing().empty() || !differs()) throw;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the optimizer was another one, which does not keep what this one needs",
                       .where = path,
                       .expected = "--optimizer=" + optimizer + ", as it was",
                       .actual = "--optimizer=" + options.optimizer,
                       .remedy = "continue with " + optimizer + ", or begin another run: " + options.another_run});
  }
}

std::optional<CheckpointInfo> resume_together(parallel::ProcessGroup* ranks, core::Stateful& state,
                                              const ResumeOptions& options) {
  const auto resume_own = [&]() -> std::optional<CheckpointInfo> {
    if (options.directory.empty() && options.checkpoint.empty()) return std::nullopt;
    return resume_run(state, options);
  };
  return ranks == nullptr ? resume_own() : load_shared(*ranks, state, resume_own);
}

}  // namespace trainyard::train
