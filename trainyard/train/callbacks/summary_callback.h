// Writes the values of training to the trainer's monitors every so many steps: learning rate, loss, images/s and the
// parts of a step's time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {
class LocalSteps;
class TimeShares;
}  // namespace trainyard::train

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The histograms that are written in addition to the values: of the gradients that replica 0's optimizer has used,
// without its weight decay, and of the updated parameters.
enum class SummaryHistograms {
  kNone,
  kLogGradients,  // "log_gradients": log |g| of every gradient that is not zero
  kAll,           // also "<name>/gradients" and "<name>" for each parameter
};

struct SummaryOptions {
  int64_t every_steps = 0;  // when (local step + 1) is a multiple, warm-up included; 0: off
  // Selects steps by the number of steps done over all runs. Empty: every_steps decides.
  std::function<bool(int64_t global_step)> due{};
  int64_t batch_size = 0;          // images a step, over all workers
  int64_t examples_per_epoch = 0;  // for the epoch of each row; 0: the trainer's epoch
  int64_t warmup_steps = 0;
  // The values of a row, in this order. They are read when a summary is written: {"learning_rate", ...}, {"total_loss",
  // ...}, {"loss_scale", ...}.
  std::vector<std::pair<std::string, std::function<double(const StepView&)>>> values{};
  // Images that go with a row, in the form that monitors accept (Images): {"input", [N, 3, H, W]}. Undefined ones are
  // left out.
  std::vector<std::pair<std::string, std::function<at::Tensor(const StepView&)>>> pictures{};
  // Requires a trainer whose steps have gradients.
  SummaryHistograms histograms = SummaryHistograms::kNone;
  std::function<double()> wall_clock{};  // seconds since the Unix epoch; default: the system's clock

  void validate() const;  // throws kInvalidArgument
};

// Writes summaries. The values are followed by images_per_second, and by input_share, compute_share,
// communication_share, waiting_share (the part of communication that was waiting for others) and update_share of the
// steps since the last summary. Shares are fractions of 1; on an accelerator only the first two exist.
class SummaryCallback : public Callback {
 public:
  explicit SummaryCallback(SummaryOptions options);

  std::string name() const override { return "summary"; }
  bool chief_only() const override { return true; }

  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_train(Trainer& trainer) override;

 private:
  void write_pictures(Trainer& trainer, const StepView& view, double wall_time) const;
  void write_histograms(Trainer& trainer, const StepView& view, double wall_time) const;

  SummaryOptions options_;
  std::shared_ptr<LocalSteps> local_steps_;
  std::shared_ptr<TimeShares> times_;
};

// Returns seconds since the Unix epoch.
[[nodiscard]] double system_wall_clock();
// Returns the passes over the data at a global step.
[[nodiscard]] double epoch_of(const Trainer& trainer, int64_t batch_size, int64_t examples_per_epoch);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
