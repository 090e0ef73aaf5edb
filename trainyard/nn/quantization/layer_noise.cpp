#include <algorithm>
#include <limits>
#include <map>

#include <ATen/core/grad_mode.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/quantized_numbers.h"
#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/quantization/calibration_images.h"
#include "trainyard/nn/quantization/layerwise_run.h"
#include "trainyard/nn/quantization/quantized_model.h"

namespace trainyard::nn {
namespace {

constexpr int64_t kImagesAtATime = 8;  // all values of as many images are in memory

class NoiseMeter {
 public:
  explicit NoiseMeter(const QuantizedModel& model)
      : model_(model),
        units_(fuse(model.graph, /*frozen=*/true, {}, model.quantization.get())),
        exact_(model.graph, *model.float_parameters),
        rounded_(model.graph, *model.parameters),
        all_(units_.size()),
        own_(units_.size()) {}

  void add(const at::Tensor& images) {
    std::vector<at::Tensor> exact(model_.graph.nodes.size()), rounded(exact.size());
    exact_.run({&images, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
      exact[static_cast<size_t>(node.id)] = values.front();
    });
    rounded_.run({&images, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
      round_values(node, *model_.quantization, values);
      rounded[static_cast<size_t>(node.id)] = values.front();
    });
    for (size_t i = 0; i < units_.size(); ++i) {
      const auto tail = static_cast<size_t>(units_[i].tail());
      all_[i].add(exact[tail], rounded[tail]);
      if (in_8_bits(units_[i])) own_[i].add(exact[tail], alone(units_[i], exact));
    }
  }

  std::vector<LayerNoise> result() const {
    std::vector<LayerNoise> noises;
    for (size_t i = 0; i < units_.size(); ++i) {
      const bool rounds = in_8_bits(units_[i]);
      noises.push_back({.name = node(units_[i].head()).name,
                        .in_8_bits = rounds,
                        .signal_to_noise = all_[i].decibels(),
                        .own_signal_to_noise = rounds ? own_[i].decibels() : std::numeric_limits<double>::quiet_NaN()});
    }
    return noises;
  }

 private:
  const Node& node(int id) const { return model_.graph.nodes[static_cast<size_t>(id)]; }

  bool in_8_bits(const Unit& unit) const {
    return model_.quantization->weights.contains(node(unit.head()).name) ||
           model_.quantization->activations.contains(node(unit.tail()).name);
  }

  // Runs the unit with rounded weights on rounded values of the float network, and rounds its output.
  at::Tensor alone(const Unit& unit, const std::vector<at::Tensor>& exact) {
    std::map<int, at::Tensor> made;
    const auto input = [&](int id) {
      const auto inside = made.find(id);
      if (inside != made.end()) return inside->second;
      std::vector<at::Tensor> value = {exact[static_cast<size_t>(id)]};
      round_values(node(id), *model_.quantization, value);
      return value.front();
    };
    for (int id : unit.nodes) {
      std::vector<at::Tensor> inputs;
      for (int one : node(id).inputs) inputs.push_back(input(one));
      std::vector<at::Tensor> value = {rounded_.run_node(node(id), inputs)};
      round_values(node(id), *model_.quantization, value);
      made[id] = value.front();
    }
    return made.at(unit.tail());
  }

  const QuantizedModel& model_;
  const std::vector<Unit> units_;
  LayerwiseRun exact_, rounded_;
  std::vector<SignalAndNoise> all_, own_;  // by unit
};

}  // namespace

std::vector<LayerNoise> layer_noise(const QuantizedModel& model, std::span<const at::Tensor> batches) {
  if (model.float_parameters == nullptr || model.parameters == nullptr || model.quantization == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the noise of a quantized network is measured against its float network",
                       .where = model.graph.name,
                       .expected = "a result of nn::quantize()",
                       .actual = "a model without its float weights",
                       .remedy = "quantize the float model again"});
  }
  const at::NoGradGuard no_grad;
  NoiseMeter meter(model);
  for (const at::Tensor& batch : checked_batches(model.graph, batches)) {
    for (const at::Tensor& images : batch.split(kImagesAtATime)) meter.add(images);
  }
  return meter.result();
}

}  // namespace trainyard::nn
