#include "trainyard/train/profile/machine_limit_share.h"

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/machine/machine_limits.h"

namespace trainyard::train {

double image_flops(const nn::Graph& graph, bool trains) {
  return (trains ? 3 : 1) * static_cast<double>(graph.forward_flops());
}

ComputeRate compute_rate(const nn::Graph& graph, bool trains, const OpenDevices& devices, double images_per_second) {
  ComputeRate rate;
  rate.model_flops = image_flops(graph, trains) * images_per_second;
  // What was measured is the CPU.
  const auto limits = core::load_machine_limits();
  if (limits && devices.accelerators.empty()) {
    rate.limit_flops = limits->flops(devices.dtype == at::kBFloat16);
    rate.limit_is_low = limits->measured_on_busy_machine();
  }
  return rate;
}

std::string compute_rate_text(const ComputeRate& rate) {
  if (rate.model_flops <= 0) return {};
  const std::string model = fmt::format("{:.1f} GFLOP/s of the model", 1e-9 * rate.model_flops);
  if (rate.limit_flops <= 0) return model + " (trainyard doctor --limits measures what the machine can do)";
  return fmt::format("{}, {:.0f} % of the machine's limit{}", model, 100 * rate.model_flops / rate.limit_flops,
                     rate.limit_is_low ? ", which was measured on a busy machine" : "");
}

void log_compute_rate(const ComputeRate& rate) {
  const std::string text = compute_rate_text(rate);
  if (!text.empty()) core::log::info("compute: {}", text);
}

}  // namespace trainyard::train
