#include "trainyard/train/checkpoint/quantized_weights.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/nn/execution/quantized_numbers.h"
#include "trainyard/nn/graph/quantized_nodes.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {
namespace {

using core::Error, core::ErrorCode;
using formats::StoredTensor, formats::TensorFile, formats::TensorType;

constexpr const char* kQuantizationKey = "trainyard.quantization";
constexpr int64_t kQuantizationVersion = 1;
constexpr std::string_view kWeightScale = ".weight_scale";
constexpr std::string_view kActivationScale = ".activation_scale";
constexpr std::string_view kActivationZeroPoint = ".activation_zero_point";
constexpr float kLargestWeight = 127;

// The name without the suffix; empty: it has another end.
std::string_view without(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

bool is_scale(float value) {
  return value > 0 && std::isfinite(value) && std::isfinite(1 / value);
}

// Returns the layer's weight [out, ...], or null for a node that has no weights in 8 bits.
const nn::ParameterSpec* weight_of(const nn::Node& node) {
  const bool weighted = std::holds_alternative<nn::Convolution>(node.op) || std::holds_alternative<nn::Linear>(node.op);
  return weighted ? &node.parameters.at(0) : nullptr;
}

std::map<std::string_view, const nn::Node*> nodes_by_name(const nn::Graph& graph) {
  std::map<std::string_view, const nn::Node*> nodes;
  for (const nn::Node& node : graph.nodes) nodes.emplace(node.name, &node);
  return nodes;
}

std::set<std::string_view> variable_names(const nn::Graph& graph) {
  std::set<std::string_view> names;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& spec : node.parameters) names.insert(spec.name);
    for (const nn::BufferSpec& spec : node.buffers) names.insert(spec.name);
  }
  return names;
}

// Reads the scales of one file, and checks each of them.
class ScaleReader {
 public:
  ScaleReader(const TensorFile& file, const nn::Graph& graph)
      : file_(file), nodes_(nodes_by_name(graph)), variables_(variable_names(graph)) {}

  std::shared_ptr<const nn::Quantization> read() {
    auto quantization = std::make_shared<nn::Quantization>();
    const auto entry = file_.metadata().find(kQuantizationKey);
    for (const StoredTensor& tensor : file_.tensors()) {
      if (variables_.contains(tensor.name)) continue;
      if (const auto layer = without(tensor.name, kWeightScale); !layer.empty()) {
        quantization->weights[std::string(layer)] = weight_scales(tensor, layer);
      } else if (const auto node = without(tensor.name, kActivationScale); !node.empty()) {
        quantization->activations[std::string(node)] = activation_scale(tensor, node);
      } else if (const auto scaled = without(tensor.name, kActivationZeroPoint); !scaled.empty()) {
        required(std::string(scaled) + std::string(kActivationScale), tensor.name);
      }
    }
    require_scales_of_integers();
    const bool quantized = !quantization->weights.empty() || !quantization->activations.empty();
    if (entry == file_.metadata().end()) {
      if (!quantized) return nullptr;
      throw damaged("the file has scales of 8-bit integers, but does not say how many", "", kQuantizationKey, "none");
    }
    read_entry(entry->second, *quantization);
    return quantization;
  }

 private:
  Error damaged(std::string problem, std::string_view tensor, std::string expected = "",
                std::string actual = "") const {
    return {ErrorCode::kCorruptData,
            {.problem = std::move(problem),
             .where = formats::tensor_place(file_.path(), tensor),
             .expected = std::move(expected),
             .actual = std::move(actual),
             .remedy = "quantize the model again: trainyard quantize"}};
  }

  const StoredTensor& required(const std::string& name, const std::string& for_tensor) const {
    const StoredTensor* const found = file_.find(name);
    if (found == nullptr) throw damaged("a scale of 8-bit integers is missing", for_tensor, "tensor '" + name + "'");
    return *found;
  }

  const nn::Node& node(std::string_view name, const StoredTensor& tensor) const {
    const auto found = nodes_.find(name);
    if (found == nodes_.end()) throw damaged("the scale is of no node of the model's graph", tensor.name);
    return *found->second;
  }

  void require_form(const StoredTensor& tensor, TensorType type, const nn::Shape& shape) const {
    if (tensor.type == type && tensor.shape == shape) return;
    const StoredTensor expected{.type = type, .shape = shape};
    throw damaged("a quantized model's tensor has another form", tensor.name, formats::describe(expected),
                  formats::describe(tensor));
  }

  void require_scale(float value, const StoredTensor& tensor) const {
    if (is_scale(value)) return;
    throw damaged("the tensor holds a number that is no scale", tensor.name, "positive and finite",
                  fmt::format("{}", value));
  }

  std::vector<float> weight_scales(const StoredTensor& tensor, std::string_view layer) const {
    const nn::ParameterSpec* const weight = weight_of(node(layer, tensor));
    if (weight == nullptr) {
      throw damaged("the scales are of a node without weights in 8 bits", tensor.name,
                    "a convolution or a linear layer");
    }
    require_form(tensor, TensorType::kFloat32, {weight->shape[0]});
    require_form(required(weight->name, tensor.name), TensorType::kInt8, weight->shape);
    std::vector<float> scales = file_.read_floats(tensor);
    for (const float scale : scales) require_scale(scale, tensor);
    return scales;
  }

  nn::ActivationScale activation_scale(const StoredTensor& tensor, std::string_view name) const {
    node(name, tensor);
    const StoredTensor& zero = required(std::string(name) + std::string(kActivationZeroPoint), tensor.name);
    require_form(tensor, TensorType::kFloat32, {1});
    require_form(zero, TensorType::kUint8, {1});
    const float scale = file_.read_floats(tensor)[0];
    require_scale(scale, tensor);
    return {.scale = scale, .zero_point = static_cast<uint8_t>(file_.read_floats(zero)[0])};
  }

  // Throws for weights in 8 bits whose scales are missing.
  void require_scales_of_integers() const {
    for (const auto& [name, node] : nodes_) {
      const nn::ParameterSpec* const weight = weight_of(*node);
      const StoredTensor* const stored = weight == nullptr ? nullptr : file_.find(weight->name);
      if (stored == nullptr || stored->type != TensorType::kInt8) continue;
      required(std::string(name) + std::string(kWeightScale), stored->name);
    }
  }

  void read_entry(const std::string& text, nn::Quantization& quantization) const {
    const auto malformed = [&] {
      return damaged("what the file says of its scales is malformed", "", "what trainyard quantize writes",
                     text.substr(0, 200));
    };
    int64_t version = 0, weights = 0, activations = 0;
    try {
      const nlohmann::json json = nlohmann::json::parse(text, [&](int depth, nlohmann::json::parse_event_t, auto&) {
        if (depth > 4) throw malformed();
        return true;
      });
      version = json.at("version").get<int64_t>();
      weights = json.at("weights").get<int64_t>();
      activations = json.at("activations").get<int64_t>();
      quantization.in_float = json.at("in_float").get<std::map<std::string, std::string>>();
    } catch (const nlohmann::json::exception&) {
      throw malformed();
    }
    if (version < 1) throw malformed();
    if (version > kQuantizationVersion) {
      throw Error(ErrorCode::kUnsupported, {.problem = "the model was quantized by a later release",
                                            .where = file_.path(),
                                            .expected = fmt::format("version {}", kQuantizationVersion),
                                            .actual = fmt::format("version {}", version),
                                            .remedy = "use that release, or quantize the model again"});
    }
    const auto compare = [&](const char* what, int64_t expected, size_t found) {
      if (expected == static_cast<int64_t>(found)) return;
      throw damaged(fmt::format("scales of {} are missing, or there are too many", what), "",
                    fmt::format("{} of them", expected), fmt::format("{}", found));
    };
    compare("weights", weights, quantization.weights.size());
    compare("activations", activations, quantization.activations.size());
  }

  const TensorFile& file_;
  const std::map<std::string_view, const nn::Node*> nodes_;
  const std::set<std::string_view> variables_;
};

// The tensors of a file, with the memory that they lie in.
class FileTensors {
 public:
  template <typename T>
  void add(const std::string& name, TensorType type, std::vector<int64_t> shape, std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    memory_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back({.name = name, .type = type, .shape = std::move(shape), .bytes = memory_.back()});
  }
  const std::vector<formats::TypedTensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::vector<std::byte>> memory_;  // whose own memory does not move
  std::vector<formats::TypedTensor> tensors_;
};

}  // namespace

bool is_name_of_scale(std::string_view name) {
  return name.ends_with(kWeightScale) || name.ends_with(kActivationScale) || name.ends_with(kActivationZeroPoint);
}

void save_quantized_weights(const std::string& path, const nn::Graph& graph, const nn::ParameterSet& set,
                            const nn::Quantization& quantization, std::map<std::string, std::string> metadata) {
  static_cast<void>(nn::quantized_nodes(graph, quantization));
  std::map<std::string_view, const nn::Node*> layers;  // in 8 bits, by the name of their weight
  for (const nn::Node& node : graph.nodes) {
    if (quantization.weights.contains(node.name)) layers.emplace(weight_of(node)->name, &node);
  }
  FileTensors file;
  const auto add_floats = [&](const std::string& name, const at::Tensor& value) {
    const at::Tensor plain = value.cpu().to(at::kFloat).contiguous();
    file.add(name, TensorType::kFloat32, plain.sizes().vec(),
             std::span(plain.const_data_ptr<float>(), static_cast<size_t>(plain.numel())));
  };
  for (int i = 0; i < static_cast<int>(set.size()); ++i) {
    const nn::ParameterId id{i};
    const std::string& name = set.segment(id).spec.name;
    const auto found = layers.find(name);
    if (found == layers.end()) {
      add_floats(name, set.value(id));
      continue;
    }
    const nn::Node& node = *found->second;
    const auto layer = quantization.weights.find(node.name);
    const at::Tensor integers = nn::quantize_weights(node, set.value(id).cpu(), layer->second);
    file.add(name, TensorType::kInt8, integers.sizes().vec(),
             std::span(integers.const_data_ptr<int8_t>(), static_cast<size_t>(integers.numel())));
    file.add(layer->first + std::string(kWeightScale), TensorType::kFloat32, {std::ssize(layer->second)},
             std::span<const float>(layer->second));
  }
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) add_floats(set.buffer_spec(i).name, set.buffer(i));
  for (const auto& [name, activation] : quantization.activations) {
    file.add(name + std::string(kActivationScale), TensorType::kFloat32, {1}, std::span(&activation.scale, 1));
    file.add(name + std::string(kActivationZeroPoint), TensorType::kUint8, {1}, std::span(&activation.zero_point, 1));
  }
  metadata["format"] = "pt";
  metadata[kQuantizationKey] = nlohmann::ordered_json{
      {"version", kQuantizationVersion},
      {"weights", quantization.weights.size()},
      {"activations", quantization.activations.size()},
      {"in_float",
       quantization.in_float}}.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  formats::write_safetensors(path, file.tensors(), metadata);
}

bool holds_quantized_weights(const TensorFile& file) {
  const std::vector<StoredTensor>& tensors = file.tensors();
  return file.metadata().contains(kQuantizationKey) ||
         std::any_of(tensors.begin(), tensors.end(),
                     [](const StoredTensor& tensor) { return is_name_of_scale(tensor.name); });
}

std::shared_ptr<const nn::Quantization> read_quantization(const TensorFile& file, const nn::Graph& graph) {
  auto quantization = ScaleReader(file, graph).read();
  if (quantization == nullptr) return nullptr;
  try {
    static_cast<void>(nn::quantized_nodes(graph, *quantization));
  } catch (const Error& error) {  // which names no file
    core::ErrorDetail detail = error.detail();
    detail.where = fmt::format("{}, node '{}'", file.path(), detail.where);
    throw Error(error.code() == ErrorCode::kUnsupported ? error.code() : ErrorCode::kCorruptData, detail);
  }
  return quantization;
}

void load_quantized_weights(const TensorFile& file, const nn::Graph& graph, const nn::Quantization& quantization,
                            nn::ParameterSet& set, int64_t num_classes) {
  std::vector<StoredTensor> weights;
  for (const StoredTensor& tensor : file.tensors()) {
    if (!is_name_of_scale(tensor.name) || set.find(tensor.name) || set.find_buffer(tensor.name)) {
      weights.push_back(tensor);
    }
  }
  load_weights(file.with_tensors(std::move(weights)), set, num_classes);
  const at::NoGradGuard no_grad;
  for (const auto& [layer, scales] : quantization.weights) {
    const std::string& name = weight_of(graph.node(layer))->name;
    const at::Tensor plain = set.value(*set.find(name)).cpu().to(at::kFloat).contiguous();
    auto* const values = plain.mutable_data_ptr<float>();
    const size_t count = static_cast<size_t>(plain.numel()), row = scales.empty() ? 0 : count / scales.size();
    for (size_t i = 0; i < count; ++i) {
      const float integer = values[i];
      values[i] = integer * scales[i / row];
      if (std::abs(integer) <= kLargestWeight && std::isfinite(values[i])) continue;
      throw Error(ErrorCode::kCorruptData, {.problem = "a weight in 8 bits is out of range",
                                            .where = formats::tensor_place(file.path(), name),
                                            .expected = "-127..127, and finite with its scale",
                                            .actual = fmt::format("{} times {}", integer, scales[i / row]),
                                            .remedy = "quantize the model again: trainyard quantize"});
    }
    set.value(*set.find(name)).copy_(plain);
  }
  set.values_changed();
}

nn::TrainingScales read_training_scales(const core::StateReader& weights, const std::string& where) {
  nn::TrainingScales scales;
  for (const std::string& name : weights.names("")) {
    const std::string node = nn::scaled_node(name);
    if (node.empty() || name != nn::training_scale_name(node)) continue;
    const std::string zero_point = nn::training_zero_point_name(node);
    const auto number = [&](const std::string& entry) {
      const at::Tensor value = weights.has(entry) ? weights.tensor(entry) : at::Tensor();
      if (value.defined() && value.numel() == 1) return value.to(at::kDouble).item<double>();
      throw damaged_checkpoint("a scale of 8 bits is missing", fmt::format("{}, {}", where, entry), "one number",
                               value.defined() ? nn::to_string(value.sizes().vec()) : "no such tensor");
    };
    const double scale = number(name), zero = number(zero_point);
    try {
      scales[node] = nn::training_scale(node, scale, zero);
    } catch (const Error& error) {
      throw damaged_checkpoint(error.detail().problem, fmt::format("{}, {}", where, name), error.detail().expected,
                               error.detail().actual);
    }
  }
  return scales;
}

nn::QuantizedModel quantize_checkpoint(const nn::Graph& graph, const nn::ParameterSet& parameters,
                                       const nn::TrainingScales& scales, const std::string& where) try {
  return nn::quantize_by_scales(graph, parameters, scales);
} catch (const Error& error) {
  throw damaged_checkpoint(error.detail().problem, fmt::format("{}, {}", where, error.detail().where),
                           error.detail().expected, error.detail().actual);
}

Error quantized_weights_error(const TensorFile& file) {
  return {ErrorCode::kInvalidArgument,
          {.problem = "the file holds a model in 8-bit integers, which only predicts",
           .where = file.path(),
           .expected = "weights in floating point",
           .remedy = "take the checkpoint or the file that it was quantized from"}};
}

}  // namespace trainyard::train
