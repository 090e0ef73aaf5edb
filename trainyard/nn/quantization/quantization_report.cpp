#include <fmt/format.h>

#include "trainyard/nn/quantization/quantized_model.h"

namespace trainyard::nn {

std::string to_text(const QuantizationReport& report) {
  std::string text =
      fmt::format("{} calibration image{}, methods compared on {}{}\n", report.calibration_images,
                  report.calibration_images == 1 ? "" : "s", report.held_out_are_calibration_images ? "the same" : "",
                  report.held_out_are_calibration_images ? "" : fmt::format("{} others", report.held_out_images));
  for (const std::string& warning : report.warnings) text += "warning: " + warning + "\n";
  text += "signal to noise of the logits (dB):\n";
  for (size_t i = 0; i < report.trials.size(); ++i) {
    const QuantizationTrial& trial = report.trials[i];
    text += fmt::format("  {:6.2f}  {}{}\n", trial.signal_to_noise, trial.name, i == report.chosen ? "  (chosen)" : "");
  }
  text += fmt::format("{} layers multiply 8-bit integers\n", report.layers_in_8_bits.size());
  // Many nodes for few reasons.
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [node, why] : report.in_float) by_reason[why].push_back(node);
  for (const auto& [why, nodes] : by_reason) {
    constexpr size_t kNamed = 3;
    std::string names;
    for (size_t i = 0; i < nodes.size() && i < kNamed; ++i) names += (i == 0 ? "" : ", ") + nodes[i];
    if (nodes.size() > kNamed) names += fmt::format(" and {} more", nodes.size() - kNamed);
    text += fmt::format("in float: {} ({})\n", names, why);
  }
  return text;
}

}  // namespace trainyard::nn
