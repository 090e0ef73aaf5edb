#include "trainyard/nn/quantization/quantization_aware_executor.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <ATen/TensorOperators.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/nn/graph/quantized_nodes.h"
#include "trainyard/nn/quantization/fold_batch_norms.h"
#include "trainyard/nn/quantization/quantization_aware.h"
#include "trainyard/nn/quantization/quantization_sites.h"
#include "trainyard/nn/quantization/straight_through.h"
#include "trainyard/nn/quantization/weights_of.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn {
namespace {

[[noreturn]] void refuse(const std::string& where, std::string problem, std::string expected, std::string actual,
                         std::string remedy) {
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = std::move(problem),
                                                    .where = where,
                                                    .expected = std::move(expected),
                                                    .actual = std::move(actual),
                                                    .remedy = std::move(remedy)});
}

void check_context(const Graph& graph, const BuildContext& context) {
  if (context.device.type() != at::kCPU || (context.dtype != at::kFloat && context.dtype != at::kDouble)) {
    refuse(graph.name, "quantization-aware training computes in float on a CPU", "cpu, float32",
           context.device.str() + ", " + c10::toString(context.dtype), "pass --device=cpu, and no --use_bf16");
  }
  if (context.quantization != nullptr) {
    refuse(graph.name, "a network with scales of its own is not trained", "a network in float", "8-bit integers",
           "run it by another executor");
  }
}

// Shapes a number a channel for a product with a weight [out, ...].
at::Tensor by_channel(const at::Tensor& values, const at::Tensor& weight) {
  std::vector<int64_t> shape(static_cast<size_t>(weight.dim()), 1);
  shape[0] = -1;
  return values.view(shape);
}

at::Tensor run_weighted(const Node& node, const reference::LayerCall& call) {
  const auto* const convolution = std::get_if<Convolution>(&node.op);
  return convolution != nullptr ? reference::run(*convolution, call) : reference::run(std::get<Linear>(node.op), call);
}

}  // namespace

QuantizationAwareExecutor::QuantizationAwareExecutor(const Graph& graph, const BuildContext& context)
    : ReferenceExecutor(graph, context), sites_(graph.nodes.size()) {
  check_context(graph, context);
  find_sites_of_graph();
}

void QuantizationAwareExecutor::find_sites_of_graph() {
  const FoldedGraph folded = fold_graph(graph());
  std::vector<int> users(graph().nodes.size());
  for (const Node& node : graph().nodes) {
    for (int input : node.inputs) ++users[static_cast<size_t>(input)];
  }
  for (const auto& [convolution, norm] : folded.norm_of) {
    const Node& one = graph().node(folded.given.nodes[static_cast<size_t>(convolution)].name);
    const Node& other = graph().node(folded.given.nodes[static_cast<size_t>(norm)].name);
    if (users[static_cast<size_t>(one.id)] != 1) {
      refuse(one.name, "an output for training alone reads a convolution before its batch norm",
             "an output behind the batch norm", std::to_string(users[static_cast<size_t>(one.id)]) + " readers",
             "train the network without its auxiliary outputs");
    }
    site(one.id).norm = other.id;
    site(other.id).convolution = one.id;
  }
  const QuantizationSites sites = find_sites(folded.graph);
  for (const Node& node : folded.graph.nodes) {
    const auto id = static_cast<size_t>(node.id);
    const Node& own = graph().node(node.name);
    site(own.id).rounds_weight = sites.layers[id];
    if (sites.range_of[id] < 0) continue;
    // The value of a folded convolution is what its batch norm gives.
    Site& value = site(site(own.id).norm >= 0 ? site(own.id).norm : own.id);
    value.scale_buffer = context().buffer({training_scale_name(node.name), {1}, Initializer::zeros()});
    value.zero_buffer = context().buffer({training_zero_point_name(node.name), {1}, Initializer::zeros()});
  }
}

void QuantizationAwareExecutor::begin_run() {
  const ParameterSet& set = *context().parameters;
  bool any = false;
  for (const Node& node : graph().nodes) {
    Site& one = site(node.id);
    one.scale.reset();
    if (one.scale_buffer < 0) continue;
    const ActivationScale scale = training_scale(node.name, set.buffer(one.scale_buffer).item<double>(),
                                                 set.buffer(one.zero_buffer).item<double>());
    if (scale.scale > 0) one.scale = scale;
    any = any || one.scale.has_value();
  }
  if (any) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the network has no scales of 8 bits to be trained with",
                     .where = graph().name,
                     .expected = "those of find_training_scales(), or of a checkpoint of --qat",
                     .actual = "none",
                     .remedy = "find them before the first step"});
}

void QuantizationAwareExecutor::enter_input(const Node& input, at::Tensor& value) {
  round_output(input, value);
}

void QuantizationAwareExecutor::round_output(const Node& node, at::Tensor& value) {
  const std::optional<ActivationScale>& scale = site(node.id).scale;
  if (!scale) return;
  // What moves numbers of 8 bits moves them exactly. Dropout makes others of them, which are in training alone.
  if (!node.inputs.empty() && keeps_scale(node.op) && site(node.inputs[0]).scale) return;
  value = round_straight_through(value, *scale);
}

at::Tensor QuantizationAwareExecutor::rounded(const Node& layer, const at::Tensor& weight) {
  const Site& one = site(layer.id);
  const bool rounds = one.rounds_weight && site(layer.inputs[0]).scale.has_value();
  return rounds ? round_weights_straight_through(weight) : weight;
}

at::Tensor QuantizationAwareExecutor::run_layer(const Node& node, std::span<const at::Tensor> inputs,
                                                const StepRandom& random) {
  return layer(node.id).run_as(
      [&](const reference::LayerCall& call) {
        std::vector<at::Tensor> variables(call.variables.begin(), call.variables.end());
        variables[0] = rounded(node, variables[0]);
        reference::LayerCall with_rounded = call;
        with_rounded.variables = variables;
        return run_weighted(node, with_rounded);
      },
      inputs, random);
}

at::Tensor QuantizationAwareExecutor::run_folded(const Node& convolution, const Node& norm,
                                                 std::span<const at::Tensor> inputs, const StepRandom& random) {
  const auto& op = std::get<BatchNorm>(norm.op);
  return layer(norm.id).run_as(
      [&](const reference::LayerCall& of_norm) {
        // As fold_batch_norms() computes them.
        at::Tensor factor = (of_norm.buffers[1].to(at::kDouble) + op.epsilon).rsqrt();
        if (op.scale) factor = factor * of_norm.variables[0].to(at::kDouble);
        const at::Tensor shift = of_norm.variables[op.scale ? 1 : 0].to(at::kDouble);
        const at::Tensor mean = of_norm.buffers[0].to(at::kDouble);
        return layer(convolution.id)
            .run_as(
                [&](const reference::LayerCall& call) {
                  const at::Tensor& given = call.variables[0];
                  const at::Tensor weight = (given.to(at::kDouble) * by_channel(factor, given)).to(given.scalar_type());
                  const at::Tensor bias = call.variables.size() > 1 ? call.variables[1].to(at::kDouble) - mean : -mean;
                  const std::vector<at::Tensor> variables{rounded(convolution, weight),
                                                          (bias * factor + shift).to(given.scalar_type())};
                  reference::LayerCall folded = call;
                  folded.variables = variables;
                  return run_weighted(convolution, folded);
                },
                inputs, random);
      },
      inputs, random);
}

at::Tensor QuantizationAwareExecutor::compute(const Node& node, std::span<const at::Tensor> inputs,
                                              bool /*reuse_input*/, const StepRandom& random) {
  const Site& one = site(node.id);
  if (one.norm >= 0) return inputs[0];  // for the batch norm, which computes both
  at::Tensor value;
  if (one.convolution >= 0) {
    value = run_folded(graph().nodes[static_cast<size_t>(one.convolution)], node, inputs, random);
  } else if (one.rounds_weight) {
    value = run_layer(node, inputs, random);
  } else if (const auto* const norm = std::get_if<BatchNorm>(&node.op)) {
    value = layer(node.id).run_as(
        [&](const reference::LayerCall& call) {
          reference::LayerCall constant = call;
          constant.training = false;
          return reference::run(*norm, constant);
        },
        inputs, random);
  } else {
    value = layer(node.id).run(inputs, /*reuse_input=*/false, random);
  }
  round_output(node, value);
  return value;
}

namespace {
const core::Registration<ExecutorFactory> kQuantizationAwareExecutor(
    executors(), kQuantizationAware, [](const Graph& graph, const BuildContext& context) {
      return std::make_unique<QuantizationAwareExecutor>(graph, context);
    });
}  // namespace

}  // namespace trainyard::nn
