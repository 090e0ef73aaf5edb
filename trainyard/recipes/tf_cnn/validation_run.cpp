#include "trainyard/recipes/tf_cnn/validation_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/recipes/tf_cnn/output/step_lines.h"

namespace trainyard::recipes {

ValidationRun::ValidationRun(const PreparedRun& run, nn::ParameterSet& parameters, int64_t display_every, Print print,
                             std::function<void(int64_t, int64_t)> progress, const core::StopToken& stop)
    : batches_(run.plan.num_eval_batches),
      display_every_(std::max<int64_t>(1, display_every)),
      shows_top_5_(run.shows_top_5()),
      print_(std::move(print)),
      progress_(std::move(progress)),
      source_(make_source(run, data::Subset::kValidation)),
      evaluator_({.graph = run.graph,
                  .executor = run.device.executor,
                  .dtype = run.device.dtype,
                  .kernels = run.device.kernels,
                  .stops = [stop] { return stop.stop_requested(); }},
                 parameters) {}

train::Evaluation ValidationRun::run() {
  core::settle_team();
  source_->seek({});
  train::Evaluation all{.shows_top_5 = shows_top_5_};
  for (int64_t done = 0; done < batches_;) {
    if (progress_) progress_(done, batches_);
    const int64_t count = std::min(display_every_, batches_ - done);
    const train::Evaluation part = evaluator_.run(*source_, count);
    all.samples += part.samples;
    all.not_finite += part.not_finite;
    all.seconds += part.seconds;
    all.input_seconds += part.input_seconds;
    // Running means over samples.
    const double weight = static_cast<double>(part.samples) / static_cast<double>(all.samples);
    all.loss += weight * (part.loss - all.loss);
    all.top_1 += weight * (part.top_1 - all.top_1);
    all.top_5 += weight * (part.top_5 - all.top_5);
    all.classes.resize(part.classes.size());
    for (size_t i = 0; i < part.classes.size(); ++i) {
      all.classes[i].right += part.classes[i].right;
      all.classes[i].total += part.classes[i].total;
    }
    done += count;
    if (count == display_every_) {
      print_(evaluation_step_line(done, static_cast<double>(part.samples) / part.seconds));
    }
  }
  if (source_->bad_samples() > 0) {
    core::log::warning("{} bad samples in the evaluation's data; {} images were evaluated", source_->bad_samples(),
                       all.samples);
  }
  if (all.not_finite > 0 || !std::isfinite(all.loss)) {
    core::log::warning(
        "the evaluation's loss is {}: the model's outputs for {} of {} images are not finite, which counts "
        "as wrong",
        std::isnan(all.loss) ? "NaN" : fmt::format("{}", all.loss), all.not_finite, all.samples);
  }
  return all;
}

}  // namespace trainyard::recipes
