#include "trainyard/frontends/tf_cnn/freezing.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/nn/execution/patch_whitening.h"
#include "trainyard/nn/graph/training_options.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/train/callbacks/freeze_schedule.h"

namespace trainyard::frontends {
namespace {

// Returns the pattern, or what stands for all layers but the last one.
std::vector<std::string> patterns_of(const std::string& pattern, const nn::Graph& graph) {
  if (pattern != kBackbone) return {pattern};
  const std::vector<std::string> head = head_parameters(graph);
  std::vector<std::string> names;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) {
      if (std::find(head.begin(), head.end(), parameter.name) == head.end()) names.push_back(parameter.name);
    }
  }
  return names;
}

std::vector<train::FreezePeriod> periods_of(const PreparedRun& run) {
  std::vector<train::FreezePeriod> periods;
  for (const std::string& pattern : run.options.freeze.patterns) {
    periods.push_back({.patterns = patterns_of(pattern, run.graph)});
  }
  if (run.options.whiten_images > 0) periods.push_back({.patterns = {nn::PatchWhitening(run.graph).weight()}});
  const double per_epoch = batches_per_epoch(run);
  for (const FreezeEpochs& asked : run.options.freeze.epochs) {
    train::FreezePeriod period{.patterns = patterns_of(asked.pattern, run.graph)};
    period.begin = optim::whole_steps(per_epoch, asked.begin);
    // A part of an epoch that is shorter than a step is one.
    if (asked.end) period.end = std::max<int64_t>(1, optim::whole_steps(per_epoch, *asked.end));
    periods.push_back(std::move(period));
  }
  return periods;
}

bool is_endless(const train::FreezePeriod& period) {
  return period.end == train::FreezePeriod().end;
}

std::string description_of(const FreezeOptions& asked, bool whitens) {
  std::vector<std::string> parts = asked.patterns;
  if (whitens) parts.emplace_back("the first convolution's weight");
  for (const FreezeEpochs& each : asked.epochs) {
    parts.push_back(each.end ? fmt::format("{} until epoch {:g}", each.pattern, *each.end)
                             : fmt::format("{} after epoch {:g}", each.pattern, each.begin));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<std::string> head_parameters(const nn::Graph& graph) {
  std::vector<std::string> names;
  const auto add_layer_of = [&](const nn::GraphOutput& output) {
    const nn::Node* const last = nn::last_layer(graph, output);
    if (last == nullptr) return;
    for (const nn::ParameterSpec& parameter : last->parameters) names.push_back(parameter.name);
  };
  for (const nn::GraphOutput& output : graph.outputs) {
    const nn::Node& node = graph.nodes[static_cast<size_t>(output.node)];
    if (!std::holds_alternative<nn::BoxRows>(node.op)) {
      add_layer_of(output);
      continue;
    }
    // A detector joins what many layers predict.
    for (const int input : node.inputs) add_layer_of({.node = input});
  }
  return names;
}

void check_freezing(const PreparedRun& run, train::TowerTrainer& trainer) {
  if (run.options.freeze.empty() && run.options.whiten_images == 0) return;
  const std::vector<train::FreezePeriod> periods = periods_of(run);
  for (const train::FreezePeriod& period : periods) {
    for (const std::string& pattern : period.patterns) trainer.set_trainable(pattern, false);
  }
  // The step at which a run continues is not known yet: there, what is frozen from the first step to the last counts.
  const auto existing = run.options.saving.existing_run.value_or(train::ExistingRun::kKeep);
  const bool begins_new = existing != train::ExistingRun::kKeep;
  trainer.set_trainable("*", true);
  for (const train::FreezePeriod& period : periods) {
    if (!period.contains(0) || (!begins_new && !is_endless(period))) continue;
    for (const std::string& pattern : period.patterns) trainer.set_trainable(pattern, false);
  }
  const bool trains_nothing = trainer.frozen_parameters().size() == trainer.parameters().segments().size();
  trainer.set_trainable("*", true);
  if (!trains_nothing) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "there is nothing to train: all parameters are frozen",
                     .where = description_of(run.options.freeze, run.options.whiten_images > 0),
                     .remedy = "leave some out of --freeze, --freeze_until or --freeze_after"});
}

void freeze_parameters(const PreparedRun& run, train::TowerTrainer& trainer) {
  const FreezeOptions& asked = run.options.freeze;
  const std::vector<std::string> before = trainer.frozen_parameters();
  const bool whitens = run.options.whiten_images > 0;
  if (asked.empty() && before.empty() && !whitens) return;
  const auto schedule = std::make_shared<train::FreezeSchedule>(periods_of(run));
  // A checkpoint holds what was frozen in the step before it.
  const int64_t step = trainer.global_step();
  schedule->apply(trainer, std::max<int64_t>(step - 1, 0));
  const std::vector<std::string> same_step = trainer.frozen_parameters();
  schedule->apply(trainer, step);
  const std::vector<std::string> now = trainer.frozen_parameters();
  const size_t all = trainer.parameters().segments().size();
  if (!before.empty() && before != same_step) {
    core::log::warning(
        "the checkpoint's run had frozen {} parameters, this one freezes {} of {}: --freeze, --freeze_until and "
        "--freeze_after count",
        before.size(), now.size(), all);
  } else {
    core::log::info("{} of {} parameters are frozen: {}", now.size(), all, description_of(asked, whitens));
  }
  if (!asked.epochs.empty()) trainer.add(schedule);
}

}  // namespace trainyard::frontends
