#include "trainyard/train/checkpoint/tensorflow_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/tf_cnn/variable_names.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/checkpoint_finite.h"
#include "trainyard/train/checkpoint/name_list.h"

namespace trainyard::train {
namespace {

using models::BenchmarkVariable, models::VariableLayout;

// What TensorFlow's optimizers and averages keep behind the name of a variable.
constexpr std::string_view kSlots[] = {"Momentum",  "Adam",       "Adam_1",        "RMSProp",
                                       "RMSProp_1", "Adagrad",    "Adadelta",      "Ftrl",
                                       "Ftrl_1",    "Adadelta_1", "LARSOptimizer", "ExponentialMovingAverage"};
// Variables of a whole training there, in whichever scope.
constexpr std::string_view kOfTraining[] = {"global_step", "loss_scale", "loss_scale_normal_steps", "beta1_power",
                                            "beta2_power"};

// Returns the tensor with the axes that ours has. Another number of axes stays, and does not fit then.
formats::StoredTensor in_our_layout(formats::StoredTensor tensor, VariableLayout layout) {
  const auto permute = [&tensor](std::initializer_list<size_t> axes) {
    if (tensor.shape.size() != axes.size()) return;
    std::vector<int64_t> shape, strides;
    for (const size_t axis : axes) {
      shape.push_back(tensor.shape[axis]);
      strides.push_back(tensor.strides[axis]);
    }
    tensor.shape = std::move(shape);
    tensor.strides = std::move(strides);
  };
  if (layout == VariableLayout::kKernel) permute({3, 2, 0, 1});
  if (layout == VariableLayout::kMatrix) permute({1, 0});
  return tensor;
}

// Returns "v0/" for "v0/cg/conv0/biases": the scope of a replica; empty for other names.
std::string_view replica_scope(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos || !name.starts_with('v')) return {};
  const std::string_view digits = name.substr(1, slash - 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::all_of(digits.begin(), digits.end(), is_digit) ? name.substr(0, slash + 1) : std::string_view();
}

// Replica 0 of several is in v0, a single one in v.
std::string first_replica(const formats::TensorFile& file) {
  const bool numbered = std::any_of(file.tensors().begin(), file.tensors().end(),
                                    [](const auto& tensor) { return replica_scope(tensor.name) == "v0/"; });
  return numbered ? "v0/" : "v/";
}

bool is_of_training(std::string_view name) {
  return std::any_of(std::begin(kOfTraining), std::end(kOfTraining),
                     [&](std::string_view kept) { return name == kept || name.ends_with("/" + std::string(kept)); });
}

bool is_slot(std::string_view name, const std::set<std::string, std::less<>>& variables) {
  const size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || !variables.contains(name.substr(0, slash))) return false;
  return std::find(std::begin(kSlots), std::end(kSlots), name.substr(slash + 1)) != std::end(kSlots);
}

bool pads_pooling_otherwise(const nn::Graph& graph) {
  const nn::Graph theirs = models::as_in_tf_cnn_benchmarks(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto* const pool = std::get_if<nn::Pool>(&graph.nodes[i].op);
    if (pool != nullptr && pool->padding != std::get<nn::Pool>(theirs.nodes[i].op).padding) return true;
  }
  return false;
}

// Returns the beginnings of names in published weights of the network that `graph` has no parameters for: those of
// auxiliary classifiers. None for a network of the caller's own.
std::vector<std::string> auxiliary_beyond(const nn::Graph& graph) {
  std::vector<std::string> beginnings;
  try {
    beginnings = models::find_model(graph.name, models::first_dataset_with(graph.name)).auxiliary;
  } catch (const core::Error&) {
    return {};
  }
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) {
      std::erase_if(beginnings, [&](const std::string& beginning) { return parameter.name.starts_with(beginning); });
    }
  }
  return beginnings;
}

formats::TensorFile without_auxiliary(const formats::TensorFile& file, const nn::Graph& graph) {
  const std::vector<std::string> beginnings = auxiliary_beyond(graph);
  std::vector<formats::StoredTensor> tensors = file.tensors();
  const size_t left_out = std::erase_if(tensors, [&](const formats::StoredTensor& tensor) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](const std::string& beginning) { return tensor.name.starts_with(beginning); });
  });
  if (left_out == 0) return file;
  core::log::info("{}: {} tensors are left out, those of auxiliary classifiers ({}*)", file.path(), left_out,
                  fmt::join(beginnings, "*, "));
  return file.with_tensors(std::move(tensors));
}

core::Error other_model(const formats::TensorFile& file, const nn::Graph& graph,
                        const std::vector<std::string>& missing, const std::vector<std::string>& unexpected) {
  std::string where = file.path();
  if (!missing.empty()) where += "; missing in the checkpoint: " + first_names(missing);
  if (!unexpected.empty()) where += "; only in the checkpoint: " + first_names(unexpected);
  return {core::ErrorCode::kInvalidArgument,
          {.problem = fmt::format("the checkpoint of TensorFlow is not of {} of tf_cnn_benchmarks", graph.name),
           .where = std::move(where),
           .remedy = "pass the --model that it belongs to; `trainyard models` names them"}};
}

}  // namespace

formats::TensorFile named_for_graph(const formats::TensorFile& file, const nn::Graph& graph) {
  if (file.format() != formats::TensorFileFormat::kTensorFlow) return without_auxiliary(file, graph);
  const std::string scope = first_replica(file);
  std::set<std::string, std::less<>> variables, names;
  for (const formats::StoredTensor& tensor : file.tensors()) names.insert(tensor.name);
  std::vector<std::string> missing, unexpected;
  std::vector<formats::StoredTensor> tensors;
  for (const BenchmarkVariable& variable : models::benchmark_variables(graph)) {
    const std::string name = scope + "cg/" + variable.variable;
    variables.insert(name);
    const formats::StoredTensor* const stored = file.find(name);
    if (stored == nullptr) {
      missing.push_back(name);
      continue;
    }
    tensors.push_back(in_our_layout(*stored, variable.layout));
    tensors.back().name = variable.parameter;
  }
  for (const formats::StoredTensor& tensor : file.tensors()) {
    const std::string_view replica = replica_scope(tensor.name);
    const bool is_copy = !replica.empty() && replica != scope;
    // What an optimizer keeps for a variable that is listed is not.
    const bool known = variables.contains(tensor.name) || is_slot(tensor.name, names);
    if (!known && !is_copy && !is_of_training(tensor.name)) unexpected.push_back(tensor.name);
  }
  if (!missing.empty() || !unexpected.empty()) throw other_model(file, graph, missing, unexpected);
  if (const std::vector<std::string> flat = models::layers_of_flattened_images(graph); !flat.empty()) {
    core::log::warning(
        "{}: the weights of {} are taken as of a training with --data_format=NCHW: the checkpoint does not say in "
        "which "
        "order it flattened the image",
        file.path(), fmt::join(flat, ", "));
  }
  if (pads_pooling_otherwise(graph)) {
    core::log::warning(
        "{}: the first pooling of {} is padded on all sides here, and at the bottom and right in tf_cnn_benchmarks; a "
        "training adapts to it, an evaluation of these weights pads as there",
        file.path(), graph.name);
  }
  return file.with_tensors(std::move(tensors));
}

namespace {

// What an optimizer of tf_cnn_benchmarks keeps behind the name of a variable, and ours behind that of a parameter.
struct OptimizerSlots {
  std::string_view optimizer;  // in optim::optimizers()
  std::vector<std::pair<std::string_view, std::string_view>> slots;
  bool counts_updates = false;
};

// Returns the parameter that is declared last, whose segment of a ParameterSet is the first.
std::string last_parameter(const nn::Graph& graph) {
  std::string name;
  for (const nn::Node& node : graph.nodes) {
    if (!node.parameters.empty()) name = node.parameters.back().name;
  }
  return name;
}

const std::vector<OptimizerSlots>& known_optimizers() {
  static const std::vector<OptimizerSlots> known = {
      {"tf_nesterov", {{"Momentum", "momentum"}}},
      {"tf_rmsprop", {{"RMSProp", "mean_square"}, {"RMSProp_1", "momentum"}}},
      {"tf_adam", {{"Adam", "mean"}, {"Adam_1", "mean_square"}}, true},
      {"sgd", {}},
  };
  return known;
}

}  // namespace

TensorFlowTraining::TensorFlowTraining(const formats::TensorFile& file, const nn::Graph& graph) : file_(file) {
  if (file.format() != formats::TensorFileFormat::kTensorFlow) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a training of another program is continued from a checkpoint of TensorFlow alone",
                       .where = file.path(),
                       .remedy = "name such a checkpoint, or start a training from the weights with --weights"});
  }
  const formats::TensorFile named = named_for_graph(file, graph);
  for (const formats::StoredTensor& tensor : named.tensors()) {
    entries_.push_back({"model/" + tensor.name, tensor});
  }
  if (const auto step = file.metadata().find("global_step"); step != file.metadata().end()) {
    global_step_ = std::stoll(step->second);
  }
  const std::string scope = first_replica(file) + "cg/";
  std::set<std::string, std::less<>> parameters;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) parameters.insert(parameter.name);
  }
  std::vector<BenchmarkVariable> trained;
  for (BenchmarkVariable& variable : models::benchmark_variables(graph)) {
    if (parameters.contains(variable.parameter)) trained.push_back(std::move(variable));
  }
  for (const OptimizerSlots& known : known_optimizers()) {
    std::vector<std::string> missing;
    std::vector<Entry> found;
    for (const BenchmarkVariable& variable : trained) {
      for (const auto& [theirs, ours] : known.slots) {
        const std::string name = fmt::format("{}{}/{}", scope, variable.variable, theirs);
        const formats::StoredTensor* const stored = file.find(name);
        if (stored == nullptr) {
          missing.push_back(name);
        } else {
          found.push_back(
              {fmt::format("optimizer/{}.{}", variable.parameter, ours), in_our_layout(*stored, variable.layout)});
        }
      }
    }
    if (found.empty() && !known.slots.empty()) continue;
    if (!missing.empty()) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = fmt::format("the state of the optimizer ({}) is not complete", known.optimizer),
                         .where = fmt::format("{}; missing in the checkpoint: {}", file.path(), first_names(missing))});
    }
    optimizer_ = known.optimizer;
    entries_.insert(entries_.end(), found.begin(), found.end());
    if (known.counts_updates) counted_parameter_ = last_parameter(graph);
    break;
  }
}

void TensorFlowTraining::save(core::StateWriter& writer) const {
  for (const Entry& entry : entries_) {
    std::vector<float> values = file_.read_floats(entry.stored);
    writer.tensor(entry.name, at::from_blob(values.data(), entry.stored.shape));
  }
  if (!counted_parameter_.empty()) {
    // The updates, and a product that Nadam alone has.
    std::vector<double> count = {static_cast<double>(global_step_), 1};
    writer.tensor(fmt::format("optimizer/{}.update_count", counted_parameter_),
                  at::from_blob(count.data(), {2}, at::kDouble));
  }
  save_optimizer(optimizer_, writer);
  writer.integer("trainer/global_step", global_step_);
  writer.integer("trainer/epoch", 1);
  writer.integer("trainer/step_in_epoch", 0);
  writer.integer("input/epoch", 0);
  writer.integer("input/offset", 0);
}

void TensorFlowTraining::load(const core::StateReader& /*reader*/) {
  throw core::Error(core::ErrorCode::kInternal, "a training of TensorFlow is for saving only");
}

int64_t load_tensorflow_backbone(const std::string& path, const nn::Graph& graph, nn::ParameterSet& set) {
  const formats::TensorFile file = formats::open_tensorflow_checkpoint(path).tensors;
  std::vector<std::string> missing;
  std::vector<std::pair<at::Tensor, formats::StoredTensor>> pairs;
  for (const BenchmarkVariable& variable : models::official_backbone_variables(graph)) {
    const auto parameter = set.find(variable.parameter);
    const auto buffer = parameter ? std::nullopt : set.find_buffer(variable.parameter);
    if (!parameter && !buffer) continue;
    const at::Tensor value = parameter ? set.value(*parameter) : set.buffer(*buffer);
    const formats::StoredTensor* const stored = file.find(variable.variable);
    if (stored == nullptr) {
      missing.push_back(variable.variable);
      continue;
    }
    formats::StoredTensor ours = in_our_layout(*stored, variable.layout);
    if (value.sizes() != at::IntArrayRef(ours.shape)) {
      missing.push_back(fmt::format("{} of {}", variable.variable, fmt::join(value.sizes(), " x ")));
    }
    pairs.emplace_back(value, std::move(ours));
  }
  if (!missing.empty() || pairs.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = pairs.empty() && missing.empty() ? "the model has no ResNet-34 to load"
                                                                   : "this is no checkpoint of the backbone",
                       .where = file.path() + (missing.empty() ? "" : "; missing there: " + first_names(missing)),
                       .expected = "TensorFlow's official ResNet-34: conv2d/kernel, batch_normalization/gamma, ...",
                       .remedy = "check --model and --backbone_model_path"});
  }
  const at::NoGradGuard no_grad;
  for (auto& [value, stored] : pairs) {
    std::vector<float> numbers = file.read_floats(stored);
    if (const int64_t count = count_non_finite(at::kFloat, std::as_bytes(std::span(numbers))); count > 0) {
      throw core::Error(core::ErrorCode::kCorruptData, {.problem = "weights hold NaN or infinity",
                                                        .where = formats::tensor_place(file.path(), stored.name),
                                                        .expected = "finite values",
                                                        .actual = fmt::format("{} others", count)});
    }
    value.copy_(at::from_blob(numbers.data(), stored.shape));
  }
  set.values_changed();
  return static_cast<int64_t>(pairs.size());
}

}  // namespace trainyard::train
