#include "trainyard/nn/quantization/layerwise_run.h"

#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include <ATen/core/grad_mode.h>

#include "trainyard/nn/execution/quantized_numbers.h"

namespace trainyard::nn {

LayerwiseRun::LayerwiseRun(const Graph& graph, ParameterSet& parameters)
    : graph_(graph), context_{.mode = Mode::kInference, .frozen = true, .parameters = &parameters} {
  layers_.resize(graph.nodes.size());
  last_uses_.resize(graph.nodes.size());
  std::vector<int> last_user(graph.nodes.size(), -1);
  for (const Node& node : graph.nodes) {
    if (!node.inputs.empty()) layers_[static_cast<size_t>(node.id)] = std::make_unique<BoundLayer>(node, context_);
    for (int input : node.inputs) last_user[static_cast<size_t>(input)] = node.id;
  }
  for (const Node& node : graph.nodes) {
    const int user = last_user[static_cast<size_t>(node.id)];
    if (user >= 0 && node.id != graph.output()) last_uses_[static_cast<size_t>(user)].push_back(node.id);
  }
}

at::Tensor LayerwiseRun::run_node(const Node& node, std::span<const at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  return layers_[static_cast<size_t>(node.id)]->run(inputs, /*reuse_input=*/false, {});
}

std::vector<at::Tensor> LayerwiseRun::run(std::span<const at::Tensor> batches, const Visit& visit) {
  std::vector<std::vector<at::Tensor>> values(graph_.nodes.size());
  for (const Node& node : graph_.nodes) {
    std::vector<at::Tensor>& made = values[static_cast<size_t>(node.id)];
    for (size_t batch = 0; batch < batches.size(); ++batch) {
      if (node.inputs.empty()) {
        const at::Tensor images = batches[batch].detach().to(at::kCPU, at::kFloat);
        made.push_back(
            images.contiguous(images.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous));
        continue;
      }
      std::vector<at::Tensor> inputs;
      for (int input : node.inputs) inputs.push_back(values[static_cast<size_t>(input)][batch]);
      made.push_back(run_node(node, inputs));
    }
    if (visit) visit(node, made);
    for (int unused : last_uses_[static_cast<size_t>(node.id)]) values[static_cast<size_t>(unused)].clear();
  }
  return std::move(values[static_cast<size_t>(graph_.output())]);
}

void round_values(const Node& node, const Quantization& quantization, std::vector<at::Tensor>& values) {
  const auto scale = quantization.activations.find(node.name);
  if (scale == quantization.activations.end()) return;
  for (at::Tensor& value : values) value = fake_quantize(value, scale->second);
}

std::vector<at::Tensor> run_quantized(const Graph& graph, ParameterSet& parameters, const Quantization& quantization,
                                      std::span<const at::Tensor> batches) {
  LayerwiseRun network(graph, parameters);
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& batch : batches) {
    const auto round = [&](const Node& node, std::vector<at::Tensor>& values) {
      round_values(node, quantization, values);
    };
    outputs.push_back(network.run({&batch, 1}, round).front());
  }
  return outputs;
}

double decibels(double signal, double noise) {
  if (!std::isfinite(signal) || !std::isfinite(noise)) return std::numeric_limits<double>::quiet_NaN();
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

void SignalAndNoise::add(const at::Tensor& expected, const at::Tensor& actual) {
  const at::Tensor exact = expected.to(at::kDouble);
  signal += exact.square().sum().item<double>();
  noise += exact.sub(actual.to(at::kDouble)).square_().sum().item<double>();
}

}  // namespace trainyard::nn
