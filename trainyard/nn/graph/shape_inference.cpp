#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

// One overload of infer() an operation; `node` gets shape, parameters and buffers.
class Inference {
 public:
  Inference(Node& node, const std::vector<Shape>& inputs) : node_(node), inputs_(inputs) {}

  void infer(const Input&) { throw fail("an input's shape is given, not inferred from others"); }

  void infer(const Convolution& op) {
    const Shape& x = image();
    require(op.out_channels > 0, "out_channels is not positive");
    require(op.groups > 0 && x[0] % op.groups == 0 && op.out_channels % op.groups == 0,
            fmt::format("{} groups do not divide {} channels in and {} out", op.groups, x[0], op.out_channels));
    check_window(op.kernel, op.stride, op.padding, op.dilation);
    const Padding padding = resolve_padding(op.padding, {x[1], x[2]}, op.kernel, op.stride, op.dilation);
    node_.shape = {op.out_channels,
                   extent(x[1], op.kernel.height, op.stride.height, op.dilation.height, padding.top, padding.bottom),
                   extent(x[2], op.kernel.width, op.stride.width, op.dilation.width, padding.left, padding.right)};
    const bool linear = op.form != Convolution::Form::kConvolution;
    require(!linear || (op.kernel == Size2d{1} && op.groups == 1), "only 1x1 without groups has a linear form");
    const std::string prefix = node_.name + (op.form == Convolution::Form::kJoinedLinear ? "_" : ".");
    const Shape weight = linear ? Shape{op.out_channels, x[0]}
                                : Shape{op.out_channels, x[0] / op.groups, op.kernel.height, op.kernel.width};
    named(prefix + "weight", weight, op.weight_init, true);
    if (op.bias) named(prefix + "bias", {op.out_channels}, op.bias_init, true);
  }

  void infer(const BatchNorm& op) {
    const Shape& x = image();
    require(op.epsilon > 0, "epsilon is not positive");
    require(op.decay >= 0 && op.decay <= 1, "decay is not in [0, 1]");
    node_.shape = x;
    if (op.scale) parameter("weight", {x[0]}, op.scale_init, false);
    parameter("bias", {x[0]}, Initializer::zeros(), false);
    buffer("running_mean", {x[0]}, Initializer::zeros());
    buffer("running_var", {x[0]}, Initializer::ones());
  }

  void infer(const Activation&) { node_.shape = only(); }

  void infer(const Pool& op) {
    const Shape& x = image();
    check_window(op.kernel, op.stride, op.padding, {});
    const Padding padding = resolve_padding(op.padding, {x[1], x[2]}, op.kernel, op.stride);
    require(std::max(padding.top, padding.bottom) < op.kernel.height &&
                std::max(padding.left, padding.right) < op.kernel.width,
            "padding is not smaller than the kernel");
    node_.shape = {x[0], pooled(x[1], op.kernel.height, op.stride.height, padding.top, padding.bottom, op.ceil_mode),
                   pooled(x[2], op.kernel.width, op.stride.width, padding.left, padding.right, op.ceil_mode)};
  }

  void infer(const GlobalAveragePool&) { node_.shape = {image()[0]}; }

  void infer(const AdaptiveAveragePool& op) {
    require(op.size.height > 0 && op.size.width > 0, "size is not positive");
    node_.shape = {image()[0], op.size.height, op.size.width};
  }

  void infer(const Linear& op) {
    const Shape& x = only();
    require(x.size() == 1, fmt::format("needs a vector [F], got {}: flatten or pool it first", to_string(x)));
    require(op.out_features > 0, "out_features is not positive");
    node_.shape = {op.out_features};
    parameter("weight", {op.out_features, x[0]}, op.weight_init, true);
    if (op.bias) parameter("bias", {op.out_features}, op.bias_init, true);
  }

  void infer(const Flatten&) {
    const Shape& x = only();
    node_.shape = {std::accumulate(x.begin(), x.end(), int64_t{1}, std::multiplies<>())};
  }

  void infer(const Add&) {
    require(inputs_.size() >= 2, "needs two inputs or more");
    for (const Shape& x : inputs_) require_same(x, inputs_[0]);
    node_.shape = inputs_[0];
  }

  void infer(const Multiply&) {
    require(inputs_.size() == 2, "needs two inputs");
    const bool scales_channels = inputs_[0].size() == 3 && inputs_[1] == Shape{inputs_[0][0]};
    if (!scales_channels) require_same(inputs_[1], inputs_[0]);
    node_.shape = inputs_[0];
  }

  void infer(const Concat&) {
    require(inputs_.size() >= 2, "needs two inputs or more");
    Shape sum = inputs_[0];
    for (size_t i = 1; i < inputs_.size(); ++i) {
      Shape expected = inputs_[0];
      if (!inputs_[i].empty()) expected[0] = inputs_[i][0];
      require_same(inputs_[i], expected);
      sum[0] += inputs_[i][0];
    }
    node_.shape = std::move(sum);
  }

  void infer(const ChannelPad& op) {
    require(op.before >= 0 && op.after >= 0, "padding is negative");
    node_.shape = image();
    node_.shape[0] += op.before + op.after;
  }

  void infer(const SpatialPad& op) {
    const Shape& x = image();
    node_.shape = {x[0], op.top + x[1] + op.bottom, op.left + x[2] + op.right};
    require(node_.shape[1] > 0 && node_.shape[2] > 0 && std::min(op.top, op.bottom) > -x[1] &&
                std::min(op.left, op.right) > -x[2],
            fmt::format("nothing is left of an image of {}x{}", x[1], x[2]));
  }

  void infer(const ChannelSlice& op) {
    const int64_t channels = image()[0];
    require(op.begin >= 0 && op.count > 0 && op.begin + op.count <= channels,
            fmt::format("{} channels from {} are not within {}", op.count, op.begin, channels));
    node_.shape = image();
    node_.shape[0] = op.count;
  }

  void infer(const ChannelShuffle& op) {
    require(op.groups > 0 && image()[0] % op.groups == 0,
            fmt::format("{} groups do not divide {} channels", op.groups, image()[0]));
    node_.shape = image();
  }

  void infer(const Dropout& op) { dropping(op.drop); }
  void infer(const StochasticDepth& op) { dropping(op.drop); }

  void infer(const LocalResponseNorm& op) {
    require(op.radius >= 0, "radius is negative");
    node_.shape = image();
  }

  void infer(const LayerNorm& op) {
    const Shape& x = only();
    require(x.size() == 1 || x.size() == 3, fmt::format("needs a vector or an image, got {}", to_string(x)));
    require(op.epsilon > 0, "epsilon is not positive");
    node_.shape = x;
    parameter("weight", {x[0]}, Initializer::ones(), false);
    parameter("bias", {x[0]}, Initializer::zeros(), false);
  }

  void infer(const LayerScale& op) {
    node_.shape = image();
    named(node_.name, {node_.shape[0], 1, 1}, op.init, false);
  }

  void infer(const ClassToken& op) {
    const Shape& x = image();
    node_.shape = {x[0], 1 + x[1] * x[2], 1};
    named(node_.name, {1, 1, x[0]}, op.init, false);
  }

  void infer(const PositionEmbedding& op) {
    const Shape& x = image();
    require(x[2] == 1, fmt::format("needs tokens [C, T, 1], got {}", to_string(x)));
    node_.shape = x;
    named(node_.name, {1, x[1], x[0]}, op.init, false);
  }

  void infer(const Attention& op) {
    const Shape& x = image();
    require(op.heads > 0 && x[0] % (3 * op.heads) == 0,
            fmt::format("{} channels are not queries, keys and values of {} heads", x[0], op.heads));
    require(op.window >= 0 && op.shift >= 0 && op.shift <= op.window, "window or shift is out of range");
    require(op.queries >= 0 && op.queries <= (op.window > 0 ? 0 : x[1] * x[2]),
            fmt::format("{} queries of {} pixels, or in windows", op.queries, x[1] * x[2]));
    node_.shape = {x[0] / 3, x[1], x[2]};
    if (op.queries > 0) node_.shape = {x[0] / 3, op.queries, 1};
    if (op.window == 0) return;
    require(x[1] % op.window == 0 && x[2] % op.window == 0,
            fmt::format("windows of {0}x{0} do not divide an image of {1}x{2}", op.window, x[1], x[2]));
    const int64_t differences = 2 * op.window - 1, pixels = op.window * op.window;
    parameter("relative_position_bias_table", {differences * differences, op.heads}, Initializer::normal(0.02), false);
    buffer("relative_position_index", {pixels * pixels}, Initializer::relative_positions(op.window));
  }

  void infer(const PatchMerge&) {
    const Shape& x = image();
    node_.shape = {4 * x[0], (x[1] + 1) / 2, (x[2] + 1) / 2};
  }

  void infer(const TransposedConvolution& op) {
    const Shape& x = image();
    require(op.out_channels > 0, "out_channels is not positive");
    require(op.groups > 0 && x[0] % op.groups == 0 && op.out_channels % op.groups == 0,
            fmt::format("{} groups do not divide {} channels in and {} out", op.groups, x[0], op.out_channels));
    check_window(op.kernel, op.stride, Padding::symmetric(op.padding.height, op.padding.width), op.dilation);
    const auto widened = [&](int64_t in, int64_t Size2d::*side) {
      const int64_t extra = op.output_padding.*side, stride = op.stride.*side, dilation = op.dilation.*side;
      require(extra >= 0 && extra < std::max(stride, dilation),
              fmt::format("output_padding {} is not smaller than stride {} or dilation {}", extra, stride, dilation));
      return (in - 1) * stride - 2 * op.padding.*side + dilation * (op.kernel.*side - 1) + extra + 1;
    };
    node_.shape = {op.out_channels, widened(x[1], &Size2d::height), widened(x[2], &Size2d::width)};
    require(node_.shape[1] > 0 && node_.shape[2] > 0,
            fmt::format("padding leaves nothing of an image of {}x{}", x[1], x[2]));
    parameter("weight", {x[0], op.out_channels / op.groups, op.kernel.height, op.kernel.width}, op.weight_init, true);
    if (op.bias) parameter("bias", {op.out_channels}, op.bias_init, true);
  }

  void infer(const Upsample& op) {
    const Shape& x = image();
    require(op.factor > 0, "factor is not positive");
    node_.shape = {x[0], op.factor * x[1], op.factor * x[2]};
  }

  void infer(const L2Norm& op) {
    require(op.epsilon > 0, "epsilon is not positive");
    node_.shape = image();
    named(node_.name, {node_.shape[0]}, op.init, false);
  }

  void infer(const BoxRows& op) {
    require(op.coordinates > 0 && op.classes > 0, "coordinates and classes are not positive");
    require(!inputs_.empty() && inputs_.size() % 2 == 0, "needs pairs of inputs: coordinates and scores");
    int64_t rows = 0;
    for (size_t i = 0; i < inputs_.size(); i += 2) {
      const Shape& x = inputs_[i];
      require(x.size() == 3 && x[0] % op.coordinates == 0,
              fmt::format("needs images [boxes * {}, H, W] of coordinates, got {}", op.coordinates, to_string(x)));
      const int64_t boxes = x[0] / op.coordinates;
      require_same(inputs_[i + 1], {boxes * op.classes, x[1], x[2]});
      rows += boxes * x[1] * x[2];
    }
    node_.shape = {rows, op.coordinates + op.classes};
  }

  void infer(const Foreign& op) {
    require(static_cast<bool>(op.make), "has no layer: custom_layer() and foreign_op() make one");
    std::shared_ptr<CustomLayer> layer;
    of_program([&] { layer = op.make(); });
    require(layer != nullptr, "has a function that returns no layer");
    const size_t count = layer->input_count().value_or(inputs_.size());
    require(inputs_.size() == count,
            fmt::format("its layer takes {} inputs, the node has {}; override input_count() where that is wrong", count,
                        inputs_.size()));
    require(!inputs_.empty(), "needs an input, which says how many samples there are");
    of_program([&] { node_.shape = layer->output_shape(inputs_); });
    require(std::ranges::all_of(node_.shape, [](int64_t extent) { return extent > 0; }),
            fmt::format("its layer's output_shape() is {}", to_string(node_.shape)));
  }

 private:
  core::Error fail(std::string problem) const {
    return {core::ErrorCode::kInvalidArgument,
            {.problem = std::move(problem), .where = fmt::format("{} '{}'", node_.kind(), node_.name)}};
  }
  void require(bool condition, const std::string& problem) const {
    if (!condition) throw fail(problem);
  }
  void require_same(const Shape& actual, const Shape& expected) const {
    if (actual == expected) return;
    core::ErrorDetail detail = fail("inputs have different shapes").detail();
    detail.expected = to_string(expected);
    detail.actual = to_string(actual);
    throw core::Error(core::ErrorCode::kInvalidArgument, std::move(detail));
  }

  // Calls what the program has brought along, and says of which node its errors are.
  void of_program(const std::function<void()>& call) const {
    try {
      call();
    } catch (const core::Error& error) {
      throw error.in(fail("").detail().where);
    } catch (const std::exception& error) {
      std::vector<std::string> shapes;
      for (const Shape& shape : inputs_) shapes.push_back(to_string(shape));
      core::ErrorDetail detail =
          fail(fmt::format("its layer's constructor or output_shape() threw '{}'", error.what())).detail();
      detail.actual = fmt::format("inputs {}", fmt::join(shapes, ", "));
      throw core::Error(core::ErrorCode::kInvalidArgument, std::move(detail));
    }
  }

  const Shape& only() const {
    require(inputs_.size() == 1, "needs one input");
    return inputs_[0];
  }
  const Shape& image() const {
    require(only().size() == 3, fmt::format("needs an image [C, H, W], got {}", to_string(only())));
    return inputs_[0];
  }

  void check_window(Size2d kernel, Size2d stride, const Padding& padding, Size2d dilation) const {
    require(kernel.height > 0 && kernel.width > 0, "kernel is not positive");
    require(stride.height > 0 && stride.width > 0, "stride is not positive");
    require(dilation.height > 0 && dilation.width > 0, "dilation is not positive");
    require(padding.top >= 0 && padding.bottom >= 0 && padding.left >= 0 && padding.right >= 0, "padding is negative");
  }
  int64_t extent(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after) const {
    const int64_t reach = dilation * (kernel - 1) + 1;
    require(
        in + before + after >= reach,
        fmt::format("the kernel reaches over {} pixels of an image of {} with padding", reach, in + before + after));
    return (in + before + after - reach) / stride + 1;
  }
  int64_t pooled(int64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after, bool ceil_mode) const {
    const int64_t floor = extent(in, kernel, stride, 1, before, after);
    // One window more if it starts inside the image or its leading padding and has anything left to see.
    const bool rest = (in + before + after - kernel) % stride != 0;
    return ceil_mode && rest && floor * stride < in + before ? floor + 1 : floor;
  }

  void dropping(double drop) {
    require(drop >= 0 && drop < 1, "drop is not in [0, 1)");
    node_.shape = only();
  }

  void named(std::string name, Shape shape, const Initializer& init, bool decay) {
    node_.parameters.push_back({.name = std::move(name), .shape = std::move(shape), .init = init, .decay = decay});
  }
  void parameter(std::string_view suffix, Shape shape, const Initializer& init, bool decay) {
    named(fmt::format("{}.{}", node_.name, suffix), std::move(shape), init, decay);
  }
  void buffer(std::string_view suffix, Shape shape, const Initializer& init) {
    node_.buffers.push_back(
        {.name = fmt::format("{}.{}", node_.name, suffix), .shape = std::move(shape), .init = init});
  }

  Node& node_;
  const std::vector<Shape>& inputs_;
};

}  // namespace

void infer_node(Node& node, const std::vector<Shape>& inputs) {
  Inference inference(node, inputs);
  std::visit([&](const auto& op) { inference.infer(op); }, node.op);
}

Padding resolve_padding(const Padding& padding, Size2d image, Size2d kernel, Size2d stride, Size2d dilation) {
  if (padding.kind == Padding::Kind::kExplicit) return padding;
  const auto total = [](int64_t in, int64_t k, int64_t s, int64_t d) {
    const int64_t out = (in + s - 1) / s;
    return std::max<int64_t>((out - 1) * s + d * (k - 1) + 1 - in, 0);
  };
  const int64_t vertical = total(image.height, kernel.height, stride.height, dilation.height);
  const int64_t horizontal = total(image.width, kernel.width, stride.width, dilation.width);
  return {Padding::Kind::kExplicit, vertical / 2, vertical - vertical / 2, horizontal / 2, horizontal - horizontal / 2};
}

}  // namespace trainyard::nn
