#include "trainyard/frontends/tf_cnn/own_model.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"

namespace trainyard::frontends {
namespace {

constexpr std::string_view kTensorResult = "tensor:";

// Sets which parameters decay.
void apply_decay_filter(const BenchmarkModel& model, nn::Graph& graph) {
  std::vector<std::string> decaying;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) {
      if (parameter.decay) decaying.push_back(parameter.name);
    }
  }
  std::vector<std::string> kept = model.filter_l2_loss_vars(decaying);
  for (const std::string& name : kept) {
    if (std::find(decaying.begin(), decaying.end(), name) != decaying.end()) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "filter_l2_loss_vars() returned a name that it was not given",
                       .where = model.name(),
                       .expected = fmt::format("some of {}", fmt::join(decaying, ", ")),
                       .actual = name});
  }
  for (nn::Node& node : graph.nodes) {
    for (nn::ParameterSpec& parameter : node.parameters) {
      parameter.decay = parameter.decay && std::find(kept.begin(), kept.end(), parameter.name) != kept.end();
    }
  }
}

}  // namespace

nn::Size2d image_size_of(const BenchmarkModel& model) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : model.get_input_shapes(data::Subset::kTrain)) {
    if (name == "images" && shape.size() == 3) return {shape[1], shape[2]};
    names.push_back(fmt::format("{} {}", name, nn::to_string(shape)));
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "get_input_shapes() says nothing of the images",
                     .where = model.name(),
                     .expected = "images [channels, height, width]",
                     .actual = names.empty() ? "no shapes" : fmt::format("{}", fmt::join(names, ", "))});
}

models::ModelInfo info_of(const BenchmarkModel& model) {
  models::ModelInfo info{.name = model.name(),
                         .image_size = image_size_of(model).height,
                         .default_batch_size = model.get_batch_size(),
                         .schedule = model.get_learning_rate()};
  info.build = [&model](const models::ModelOptions& options) {
    nn::Graph graph = model.build_network(options);
    apply_decay_filter(model, graph);
    return graph;
  };
  return info;
}

void ResultCollector::clear() {
  samples_ = 0;
  sums_.clear();
  tensors_.clear();
}

void ResultCollector::add(const at::Tensor& logits, const at::Tensor& labels) {
  const int64_t count = labels.size(0);
  for (const auto& [name, tensor] : model_.accuracy_function(logits, labels)) {
    if (name.starts_with(kTensorResult)) {
      tensors_[name].push_back(tensor.cpu());
    } else {
      sums_[name] += static_cast<double>(count) * tensor.item<double>();
    }
  }
  samples_ += count;
}

EvaluationResults ResultCollector::results() const {
  EvaluationResults results;
  for (const auto& [name, sum] : sums_) results.numbers[name] = sum / static_cast<double>(samples_);
  for (const auto& [name, parts] : tensors_) results.tensors.set(name, at::cat(parts));
  return results;
}

}  // namespace trainyard::frontends
