#include "trainyard/frontends/tf_cnn/mlperf/model_lines.h"

#include <cctype>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/frontends/tf_cnn/output/step_lines.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kBlock = "bottleneck_block";
constexpr std::string_view kShortcut = "downsample";

// Returns "layer1.0." of "layer1.0.conv1", and nothing for a node outside of blocks.
std::string_view block_of(std::string_view name) {
  constexpr std::string_view kLayer = "layer";
  if (!name.starts_with(kLayer)) return {};
  size_t end = kLayer.size();
  for (int part = 0; part < 2; ++part) {
    const size_t begin = end;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end == begin || end == name.size() || name[end] != '.') return {};
    ++end;
  }
  return name.substr(0, end);
}

// MLPerf's name of what a weight begins with: TensorFlow's variance scaling is a truncated normal.
std::string_view initializer_name(const nn::Initializer& initializer) {
  using Kind = nn::Initializer::Kind;
  switch (initializer.kind) {
    case Kind::kTruncatedNormal:
    case Kind::kVarianceScaling:
      return "truncated_normal";
    case Kind::kNormal:
    case Kind::kHeNormal:
      return "normal";
    case Kind::kUniform:
    case Kind::kHeUniform:
    case Kind::kHeUniformIdentity:
      return "uniform";
    case Kind::kConstant:
      return "constant";
    case Kind::kRelativePositions:
    case Kind::kFromModule:
      break;
  }
  return "other";
}

class ModelLines {
 public:
  ModelLines(const ComplianceLog& log, const nn::Graph& graph, const ModelLinesOptions& options)
      : log_(log), graph_(graph), options_(options) {}

  void write() {
    log_.write("model_hp_initial_shape", fmt::format("[{}]", extents(graph_.input_shape())));
    std::string_view block;
    const nn::Node* before = &graph_.nodes.front();
    for (const nn::Node& node : graph_.nodes) {
      const std::string_view now = block_of(node.name);
      if (now != block) {
        if (!block.empty()) end_block(*before);
        if (!now.empty()) begin_block(node);
        block = now;
      }
      std::visit([&](const auto& op) { write_layer(node, op); }, node.op);
      before = &node;
    }
    if (!block.empty()) end_block(*before);
    log_.write("model_hp_final_shape", fmt::format("[{}]", extents(graph_.output_shape())));
  }

 private:
  std::string extents(nn::Shape shape) const {
    if (options_.channels_last && shape.size() == 3) shape = {shape[1], shape[2], shape[0]};
    return fmt::format("{}", fmt::join(shape, ", "));
  }
  const nn::Shape& input_of(const nn::Node& node) const {
    return graph_.nodes[static_cast<size_t>(node.inputs.front())].shape;
  }
  std::string in_and_out(const nn::Node& node) const {
    return json_text(fmt::format("({}) -> ({})", extents(input_of(node)), extents(node.shape)));
  }

  void begin_block(const nn::Node& first) const {
    log_.write("model_hp_block_type", json_text(kBlock));
    log_.write("model_hp_begin_block", fmt::format("{{\"block_type\": \"{}\"}}", kBlock));
    log_.write("model_hp_resnet_topology", json_text(fmt::format(" Block Input: ({})", extents(input_of(first)))));
  }
  void end_block(const nn::Node& last) const {
    log_.write("model_hp_end_block", json_text(fmt::format(" Block Output: ({})", extents(last.shape))));
  }

  template <typename Op>
  void write_layer(const nn::Node&, const Op&) const {}

  void write_layer(const nn::Node& node, const nn::Convolution& op) const {
    log_.write("model_hp_conv2d_fixed_padding", in_and_out(node));
    log_.write("model_hp_conv2d_fixed_padding",
               fmt::format(R"({{"stride": {}, "filters": {}, "initializer": "{}", "use_bias": {}}})", op.stride.height,
                           op.out_channels, initializer_name(op.weight_init), json_boolean(op.bias)));
    if (node.name.substr(block_of(node.name).size()).starts_with(kShortcut)) {
      log_.write("model_hp_projection_shortcut", in_and_out(node));
    }
  }
  void write_layer(const nn::Node& node, const nn::BatchNorm& op) const {
    const std::string shape = json_text(fmt::format("({})", extents(node.shape)));
    log_.write("model_hp_batch_norm",
               fmt::format(R"({{"shape": {}, "momentum": {}, "epsilon": {}, "center": true, "scale": {}, )", shape,
                           python_number(op.decay), python_number(op.epsilon), json_boolean(op.scale)) +
                   fmt::format(R"("training": {}}})", json_boolean(options_.training)));
  }
  void write_layer(const nn::Node&, const nn::Activation& op) const {
    if (op.function == nn::Activation::Function::kRelu) log_.write("model_hp_relu");
  }
  void write_layer(const nn::Node& node, const nn::Pool& op) const {
    if (op.kind == nn::Pool::Kind::kMax) log_.write("model_hp_initial_max_pool", in_and_out(node));
  }
  void write_layer(const nn::Node&, const nn::Linear& op) const {
    log_.write("model_hp_dense", fmt::format("{}", op.out_features));
  }
  // The word is MLPerf's.
  void write_layer(const nn::Node&, const nn::Add&) const { log_.write("model_hp_shorcut_add"); }

  const ComplianceLog& log_;
  const nn::Graph& graph_;
  const ModelLinesOptions options_;
};

}  // namespace

void write_model_lines(const ComplianceLog& log, const nn::Graph& graph, const ModelLinesOptions& options) {
  ModelLines(log, graph, options).write();
}

}  // namespace trainyard::frontends
