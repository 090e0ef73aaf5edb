// NASNet-A for CIFAR-10 and, mobile and large, for ImageNet, as TensorFlow's slim has them. Zoph, Vasudevan, Shlens,
// Le, "Learning transferable architectures for scalable image recognition", 2018.
//
// tf_cnn_benchmarks builds them outside of their own argument scopes, so that its convolutions get a bias and a ReLU
// that the network does not have; here is the network. Paths are dropped with their final probability from the start.

#include <array>
#include <optional>
#include <vector>

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::nasnet {
namespace {

using Value = nn::GraphBuilder::Value;

struct NasnetConfig {
  std::string name;
  int64_t filters = 0;
  int cells = 0;
  int64_t stem_filters = 0;
  bool imagenet = true;         // two reduction cells in the stem
  bool skip_reduction = false;  // cells after a reduction look at what was before it
  double drop_path = 0;         // of the last cell
  double dropout = 0;           // in front of the classifier
  nn::BatchNorm norm;
};

enum class Kind { kSeparable, kAverage, kMax, kNone };
struct Operation {
  Kind kind;
  int64_t kernel;
  size_t input;  // 0: the cell's input, 1: the one before it, then sums in their order
};
// Sums of pairs of operations, and from which states on a cell gives its states out.
struct CellPlan {
  std::array<Operation, 10> operations;
  size_t first_output;
};

constexpr Kind kSep = Kind::kSeparable, kAvg = Kind::kAverage, kMax = Kind::kMax, kNone = Kind::kNone;
constexpr CellPlan kNormal{{{{kSep, 5, 0},
                             {kSep, 3, 1},
                             {kSep, 5, 1},
                             {kSep, 3, 1},
                             {kAvg, 3, 0},
                             {kNone, 1, 1},
                             {kAvg, 3, 1},
                             {kAvg, 3, 1},
                             {kSep, 3, 0},
                             {kNone, 1, 0}}},
                           1};
constexpr CellPlan kReduction{{{{kSep, 5, 0},
                                {kSep, 7, 1},
                                {kMax, 3, 0},
                                {kSep, 7, 1},
                                {kAvg, 3, 0},
                                {kSep, 5, 1},
                                {kNone, 1, 3},
                                {kAvg, 3, 2},
                                {kSep, 3, 2},
                                {kMax, 3, 0}}},
                              3};

class Nasnet {
 public:
  Nasnet(const NasnetConfig& config, const ModelOptions& options)
      : config_(config),
        drop_path_(options.stochastic_depth.value_or(config.drop_path)),
        b_({.image = options.image_shape(), .name = config.name, .batch_norm = config.norm}),
        all_cells_(config.cells + 2 + (config.imagenet ? 2 : 0)) {}

  nn::Graph build(int64_t classes) {
    std::vector<Value> outputs = config_.imagenet ? imagenet_stem() : cifar_stem();
    Value x = outputs.back();
    int64_t filters = config_.filters;
    for (int i = 0; i < config_.cells; ++i) {
      std::optional<Value> before = one_before(outputs);
      if (i == config_.cells / 3 || i == 2 * config_.cells / 3) {
        filters *= 2;
        x = cell(fmt::format("reduction_cell_{}", i == config_.cells / 3 ? 0 : 1), kReduction, x, before, filters, 2);
        outputs.push_back(x);
        if (!config_.skip_reduction) before = one_before(outputs);
      }
      x = cell(fmt::format("cell_{}", i), kNormal, x, before, filters, 1);
      outputs.push_back(x);
    }
    x = b_.global_average_pool("global_pool", b_.activation("relu", x));
    if (config_.dropout > 0) x = b_.dropout("dropout", x, config_.dropout);
    return b_.build(append_linear(b_, "fc", x, classes, false));
  }

 private:
  static std::optional<Value> one_before(const std::vector<Value>& outputs) {
    if (outputs.size() < 2) return std::nullopt;
    return outputs[outputs.size() - 2];
  }

  std::vector<Value> imagenet_stem() {
    nn::Convolution op = convolution(config_.stem_filters, 1, 2);
    op.kernel = 3;
    op.padding = nn::Padding::valid();
    std::vector<Value> outputs{norm_convolution("conv0", b_.input(), op)};
    for (int i = 0; i < 2; ++i) {
      outputs.push_back(cell(fmt::format("cell_stem_{}", i), kReduction, outputs.back(), one_before(outputs),
                             config_.filters * (i + 1) / 4, 2));
    }
    return outputs;
  }
  std::vector<Value> cifar_stem() {
    return {norm_convolution("l1_stem_3x3", b_.input(), convolution(config_.stem_filters, 3))};
  }

  // Variance 2 / fan out, as slim's initializer for these networks.
  static nn::Convolution convolution(int64_t channels, int64_t kernel, int64_t stride = 1) {
    nn::Convolution op = benchmark_convolution(channels, kernel, stride);
    op.weight_init = nn::Initializer::variance_scaling(2.0, nn::Initializer::Fan::kOut);
    return op;
  }
  Value norm_convolution(const std::string& name, Value x, const nn::Convolution& op) {
    return b_.batch_norm(name + ".bn", b_.convolution(name, x, op));
  }
  Value relu_convolution(const std::string& name, Value x, int64_t channels, int64_t stride = 1) {
    return norm_convolution(name, b_.activation(name + ".relu", x), convolution(channels, 1, stride));
  }

  // Twice ReLU, depthwise and pointwise convolution and norm.
  Value separable(const std::string& prefix, Value x, int64_t filters, int64_t kernel, int64_t stride) {
    for (int i = 1; i <= 2; ++i) {
      const std::string name = fmt::format("{}.separable_{}", prefix, i);
      const int64_t channels = b_.shape(x)[0];
      nn::Convolution depthwise = convolution(channels, kernel, i == 1 ? stride : 1);
      depthwise.groups = channels;
      // TensorFlow counts a depthwise kernel's outputs for each input channel: kernel^2, which is our fan in.
      depthwise.weight_init.fan = nn::Initializer::Fan::kIn;
      x = b_.convolution(name + ".depthwise", b_.activation(name + ".relu", x), depthwise);
      x = norm_convolution(name + ".pointwise", x, convolution(filters, 1));
    }
    return x;
  }

  // Half the size without losing pixels: every second one, and those right below them.
  Value factorized_reduction(const std::string& prefix, Value x, int64_t filters) {
    const nn::Pool every_second{.kernel = 1, .stride = 2};
    const Value first = b_.average_pool(prefix + ".path1_pool", x, every_second);
    const Value shifted = b_.spatial_pad(prefix + ".path2_shift", x, {.top = -1, .bottom = 1, .left = -1, .right = 1});
    const Value second = b_.average_pool(prefix + ".path2_pool", shifted, every_second);
    x = b_.concat(prefix + ".concat", {b_.convolution(prefix + ".path1_conv", first, convolution(filters / 2, 1)),
                                       b_.convolution(prefix + ".path2_conv", second, convolution(filters / 2, 1))});
    return b_.batch_norm(prefix + ".bn", x);
  }

  // The input before the cell's, in the size and channels of the cell.
  Value matched(const std::string& prefix, Value before, Value x, int64_t filters) {
    const nn::Shape &past = b_.shape(before), &now = b_.shape(x);
    if (past[1] != now[1] || past[2] != now[2]) {
      return factorized_reduction(prefix, b_.activation(prefix + ".relu", before), filters);
    }
    return past[0] == filters ? before : relu_convolution(prefix, before, filters);
  }

  Value operate(const std::string& prefix, Value x, const Operation& operation, int64_t filters, int64_t stride,
                double drop) {
    const int64_t channels = b_.shape(x)[0];
    if (operation.kind == Kind::kNone) {
      return stride > 1 || channels != filters ? relu_convolution(prefix + ".1x1", x, filters, stride) : x;
    }
    if (operation.kind == Kind::kSeparable) {
      x = separable(prefix, x, filters, operation.kernel, stride);
    } else {
      const nn::Pool pool{.kernel = operation.kernel, .stride = stride, .padding = nn::Padding::same()};
      x = operation.kind == Kind::kMax ? b_.max_pool(prefix + ".pool", x, pool)
                                       : b_.average_pool(prefix + ".pool", x, pool);
      if (channels != filters) x = norm_convolution(prefix + ".1x1", x, convolution(filters, 1));
    }
    return drop > 0 ? b_.stochastic_depth(prefix + ".drop_path", x, drop) : x;
  }

  Value cell(const std::string& name, const CellPlan& plan, Value x, std::optional<Value> before, int64_t filters,
             int64_t stride) {
    const double drop = drop_path_ * ++cells_built_ / all_cells_;
    std::vector<Value> states{relu_convolution(name + ".begin", x, filters),
                              before ? matched(name + ".before", *before, x, filters) : x};
    for (size_t i = 0; i < plan.operations.size(); i += 2) {
      const auto side = [&](const char* which, const Operation& operation) {
        return operate(fmt::format("{}.comb_iter_{}.{}", name, i / 2, which), states[operation.input], operation,
                       filters, operation.input < 2 ? stride : 1, drop);
      };
      const Value left = side("left", plan.operations[i]), right = side("right", plan.operations[i + 1]);
      states.push_back(b_.add(fmt::format("{}.comb_iter_{}.combine", name, i / 2), {left, right}));
    }
    // Only the input before a network's first cell can have other channels.
    if (plan.first_output == 1 && b_.shape(states[1])[0] != filters) {
      states[1] = norm_convolution(name + ".reduction_1", states[1], convolution(filters, 1));
    }
    return b_.concat(name + ".output", {states.begin() + static_cast<std::ptrdiff_t>(plan.first_output), states.end()});
  }

  const NasnetConfig& config_;
  double drop_path_;
  nn::GraphBuilder b_;
  int all_cells_, cells_built_ = 0;
};

ModelInfo nasnet(const NasnetConfig& config, DatasetFamily family, int64_t image_size, int64_t batch_size,
                 double learning_rate) {
  return {
      .name = config.name,
      .family = family,
      .equals = "tf_cnn_benchmarks " + config.name,
      .image_size = image_size,
      .default_batch_size = batch_size,
      .schedule = {.learning_rate = learning_rate},
      .build = [config](const ModelOptions& options) { return Nasnet(config, options).build(options.num_classes); }};
}

const nn::BatchNorm kImagenetNorm{.epsilon = 1e-3, .decay = 0.9997};

const ModelRegistration kMobile(
    nasnet({.name = "nasnet", .filters = 44, .cells = 12, .stem_filters = 32, .dropout = 0.5, .norm = kImagenetNorm},
           DatasetFamily::kImagenet, 224, 32, 0.005));
const ModelRegistration kLarge(nasnet({.name = "nasnetlarge",
                                       .filters = 168,
                                       .cells = 18,
                                       .stem_filters = 96,
                                       .skip_reduction = true,
                                       .drop_path = 0.3,
                                       .dropout = 0.5,
                                       .norm = kImagenetNorm},
                                      DatasetFamily::kImagenet, 331, 16, 0.005));
const ModelRegistration kCifar(
    nasnet({.name = "nasnet", .filters = 32, .cells = 18, .stem_filters = 96, .imagenet = false, .drop_path = 0.4},
           DatasetFamily::kCifar10, 32, 32, 0.025));

}  // namespace
}  // namespace trainyard::models::tf_cnn::nasnet
