#include <set>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

void check_set(const InferenceSet& set) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = problem, .where = fmt::format("validation set '{}'", set.name)});
  };
  if (set.name.empty() || set.name == "train") refuse("a validation set needs a name that is not \"train\"");
  if (!set.source || set.metrics.empty()) refuse("a validation set needs a source and metrics");
  std::set<std::string> names;
  for (const auto& metric : set.metrics) {
    for (const auto& [name, value] : metric->results()) {
      if (!names.insert(name).second) refuse(fmt::format("two metrics give '{}'", name));
    }
  }
}

}  // namespace

InferenceRunner::InferenceRunner(std::shared_ptr<Evaluator> evaluator, std::vector<InferenceSet> sets,
                                 InferenceOptions options)
    : evaluator_(std::move(evaluator)), sets_(std::move(sets)), options_(std::move(options)) {
  if (!evaluator_ || sets_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "an inference runner needs an evaluator and validation sets");
  }
  std::set<std::string> names;
  for (const InferenceSet& set : sets_) {
    check_set(set);
    if (!names.insert(set.name).second) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("two validation sets are named '{}'", set.name));
    }
    for (const char c : "_" + set.name) name_ += c == '/' ? '.' : c;
  }
  if (!options_.wall_clock) options_.wall_clock = system_wall_clock;
}

void InferenceRunner::trigger(Trainer& trainer) {
  if (options_.before) options_.before();
  for (const InferenceSet& set : sets_) {
    set.source->seek({});
    try {
      evaluator_->measure(*set.source, set.metrics, set.batches, options_.ranks);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCancelled) throw error.in(fmt::format("validation set '{}'", set.name));
      return;  // a part of an evaluation is none
    }
    Scalars scalars{.global_step = trainer.global_step(),
                    .epoch = epoch_of(trainer, 0, 0),
                    .wall_time = options_.wall_clock(),
                    .phase = set.name};
    Texts texts{.global_step = scalars.global_step, .wall_time = scalars.wall_time};
    for (const auto& metric : set.metrics) {
      for (auto& result : metric->results()) scalars.values.push_back(std::move(result));
      if (const auto text = metric->text()) {
        texts.values.emplace_back(full_name(set.name, text->first), text->second);
      }
    }
    if (!scalars.values.empty()) trainer.monitors().write(scalars);
    if (!texts.values.empty()) trainer.monitors().write_texts(texts);
  }
  trainer.monitors().flush();
}

}  // namespace trainyard::train
