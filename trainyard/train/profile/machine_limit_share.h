// Computes the share of the machine's limit that a run reaches: the model's FLOP/s as a part of the rate that
// `trainyard doctor --limits` measured (core/machine/machine_limits.h).
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::train {

// Returns the FLOPs of one image by definition: the graph's forward_flops(), and when it trains twice that for the
// gradients of inputs and of weights.
double image_flops(const nn::Graph& graph, bool trains);

// How much of the machine a run uses: image_flops() times images per second.
struct ComputeRate {
  double model_flops = 0;
  double limit_flops = 0;     // limit of the machine (core::MachineLimits); 0: not measured
  bool limit_is_low = false;  // the limit was measured while other programs ran
};

// Computes the rate of images that pass through the graph, backward too when it trains. Reads the limit that was saved
// for this machine, in the precision of the devices; accelerators have none.
ComputeRate compute_rate(const nn::Graph& graph, bool trains, const OpenDevices& devices, double images_per_second);

// Returns "120.5 GFLOP/s of the model, 48 % of the machine's limit"; empty for a model without flops.
std::string compute_rate_text(const ComputeRate& rate);

// Logs one line for runs that end without a summary, or nothing when nothing is known.
void log_compute_rate(const ComputeRate& rate);

}  // namespace trainyard::train
