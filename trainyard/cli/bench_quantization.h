// `trainyard bench quantization`: what computing in 8 bits costs each layer of a trained model, and which time it
// takes.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/nn/quantization/quantized_model.h"

namespace trainyard::cli {

void declare_bench_quantization_flags(core::FlagTable& table);

// A layer, with what is computed together with it.
struct QuantizedLayer {
  nn::LayerNoise noise{};
  double time_share = 0;   // part of the time of all layers
  std::string in_float{};  // why it stays in float; empty: it computes in 8 bits, or no reason is known
};

struct QuantizationBenchReport {
  std::string model{}, method{};  // method: the trial that was chosen
  double signal_to_noise = 0;     // of the logits, in dB
  int64_t images = 0;             // that noise was measured on
  int64_t batch_size = 0;
  double images_per_second = 0;
  std::vector<QuantizedLayer> layers{};  // in the order of the graph
};

// Quantizes the model that the flags name on training images, measures the noise of each layer on further ones where
// there are some, and times the quantized network on random images. Throws what `trainyard quantize` throws.
QuantizationBenchReport bench_quantization(const core::FlagValues& values, const std::string& path);

// Returns the table of the layers, with a line break at the end.
std::string quantization_bench_text(const QuantizationBenchReport& report);
// Returns a JSON object with the same, decibels that are not finite as null.
std::string quantization_bench_json(const QuantizationBenchReport& report);
// Returns an SVG picture: decibels by the place of the layer, with the noise of all before it and alone.
std::string quantization_bench_svg(const QuantizationBenchReport& report);

}  // namespace trainyard::cli
