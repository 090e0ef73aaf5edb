#include "trainyard/recipes/validation_run.h"

#include <algorithm>
#include <utility>

#include "trainyard/core/log.h"
#include "trainyard/core/thread.h"
#include "trainyard/train/step_lines.h"

namespace trainyard::recipes {
namespace {

int64_t batches_of(const BenchmarkSettings& settings) {
  const int64_t batch = settings.eval_batch_size * settings.replicas;
  return settings.eval_exact ? (settings.validation_examples + batch - 1) / batch : settings.plan.num_eval_batches;
}

}  // namespace

ValidationRun::ValidationRun(const BenchmarkSettings& settings, nn::ParameterSet& parameters, int64_t display_every,
                             train::Print print)
    : batches_(batches_of(settings)),
      display_every_(std::max<int64_t>(1, display_every)),
      print_(std::move(print)),
      source_(make_source(settings, data::Subset::kValidation)),
      evaluator_({.graph = settings.graph,
                  .executor = settings.executor,
                  .dtype = settings.dtype,
                  .kernels = settings.kernels},
                 parameters) {}

train::Evaluation ValidationRun::run() {
  core::settle_team();
  source_->seek({});
  train::Evaluation all;
  for (int64_t done = 0; done < batches_;) {
    const int64_t count = std::min(display_every_, batches_ - done);
    const train::Evaluation part = evaluator_.run(*source_, count);
    all.samples += part.samples;
    all.seconds += part.seconds;
    all.input_seconds += part.input_seconds;
    // Running means over samples.
    const double weight = static_cast<double>(part.samples) / static_cast<double>(all.samples);
    all.loss += weight * (part.loss - all.loss);
    all.top_1 += weight * (part.top_1 - all.top_1);
    all.top_5 += weight * (part.top_5 - all.top_5);
    done += count;
    if (count == display_every_) {
      print_(train::evaluation_step_line(done, static_cast<double>(part.samples) / part.seconds));
    }
  }
  if (source_->bad_samples() > 0) {
    core::log::warning("{} bad samples in the evaluation's data; {} images were evaluated", source_->bad_samples(),
                       all.samples);
  }
  return all;
}

}  // namespace trainyard::recipes
