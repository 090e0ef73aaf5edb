#include "trainyard/frontends/tf_cnn/compute_rate.h"

#include "trainyard/core/base/log.h"
#include "trainyard/core/machine/machine_limits.h"

namespace trainyard::frontends {

train::ComputeRate compute_rate(const PreparedRun& run, double images_per_second) {
  const int passes = run.mode() == RunMode::kForwardOnly ? 1 : 3;
  train::ComputeRate rate;
  if (!run.other_sizes.empty()) return rate;  // images of several sizes cost differently
  rate.model_flops = passes * static_cast<double>(run.graph.forward_flops()) * images_per_second;
  // What was measured is the CPU.
  const auto limits = core::load_machine_limits();
  if (limits && run.device.accelerators.empty()) {
    rate.limit_flops = limits->flops(run.device.dtype == at::kBFloat16);
    rate.limit_is_low = limits->measured_on_busy_machine();
  }
  return rate;
}

void log_compute_rate(const train::ComputeRate& rate) {
  const std::string text = train::compute_rate_text(rate);
  if (!text.empty()) core::log::info("compute: {}", text);
}

}  // namespace trainyard::frontends
