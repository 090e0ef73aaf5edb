// The operations of graphs: one struct per operation, with its formula and shapes. N is the batch, never part of a
// logical shape: an image is [C, H, W], a vector [F]. Executors implement them (nn/reference, nn/cpu, nn/cuda); the
// conformance suite compares the implementations.
//
// A new operation needs its struct here and in Op, its shape in shape_inference.cpp, its reference implementation in
// nn/reference, and one line in the conformance suite.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// The initializer of a parameter or buffer. It is a value, so that graphs can be built, printed and compared without
// tensors.
struct Initializer {
  enum class Kind {
    kConstant,           // value
    kNormal,             // mean 0, standard deviation `value`
    kTruncatedNormal,    // the same, redrawn outside two standard deviations
    kUniform,            // [-value, value)
    kVarianceScaling,    // TensorFlow's: truncated normal of variance value / fan, fan by `fan`, corrected for the
                         // truncation
    kHeNormal,           // PyTorch's kaiming_normal_: normal of variance 2 / fan, not truncated
    kHeUniform,          // PyTorch's kaiming_uniform_(a = sqrt(5)): uniform of bound 1 / sqrt(fan_in)
    kHeUniformIdentity,  // the same; of [out, in, kh, kw] the first min(out, in) filters each copy their own channel
                         // (PyTorch's dirac_): 1 in the middle, at [i, i, kh / 2, kw / 2], and 0 elsewhere
    kRelativePositions,  // for Attention: the index in its table of the bias of each pair of `value` x `value` pixels
    kFromModule,         // set by the custom layer that owns it
  };
  enum class Fan { kIn, kOut, kAverage };

  Kind kind = Kind::kConstant;
  double value = 0.0;
  Fan fan = Fan::kIn;

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::kConstant, 1.0}; }
  static Initializer constant(double value) { return {Kind::kConstant, value}; }
  static Initializer normal(double stddev) { return {Kind::kNormal, stddev}; }
  static Initializer truncated_normal(double stddev) { return {Kind::kTruncatedNormal, stddev}; }
  static Initializer uniform(double bound) { return {Kind::kUniform, bound}; }
  static Initializer variance_scaling(double scale = 1.0, Fan fan = Fan::kIn) {
    return {Kind::kVarianceScaling, scale, fan};
  }
  static Initializer he_normal(Fan fan = Fan::kOut) { return {Kind::kHeNormal, 2.0, fan}; }
  static Initializer he_uniform() { return {Kind::kHeUniform, 1.0}; }
  static Initializer he_uniform_identity() { return {Kind::kHeUniformIdentity, 1.0}; }

  static Initializer relative_positions(int64_t window) {
    return {Kind::kRelativePositions, static_cast<double>(window)};
  }

  bool operator==(const Initializer&) const = default;
};

struct Size2d {
  int64_t height = 1, width = 1;
  constexpr Size2d() = default;
  constexpr Size2d(int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Size2d(int64_t h, int64_t w) : height(h), width(w) {}
  bool operator==(const Size2d&) const = default;
};

// Pixels added around an image. kSame is TensorFlow's: output = ceil(input / stride), the odd pixel at the bottom
// right.
struct Padding {
  enum class Kind { kExplicit, kSame };
  Kind kind = Kind::kExplicit;
  int64_t top = 0, bottom = 0, left = 0, right = 0;

  static constexpr Padding valid() { return {}; }
  static constexpr Padding same() { return {Kind::kSame}; }
  static constexpr Padding all(int64_t pixels) { return {Kind::kExplicit, pixels, pixels, pixels, pixels}; }
  static constexpr Padding symmetric(int64_t vertical, int64_t horizontal) {
    return {Kind::kExplicit, vertical, vertical, horizontal, horizontal};
  }
  bool operator==(const Padding&) const = default;
};

// An input of the graph: images [C, H, W] in the normalization of the data pipeline, or another batch of floats.
struct Input {
  std::string name = "images";  // of the tensor, in Executor::run()
};

// [C, H, W] -> [out_channels, H', W']: y[o] = sum_i w[o, i] * x[i] (+ b[o]); cross-correlation, as all frameworks.
// Parameters: weight [out_channels, C / groups, kernel.height, kernel.width], bias [out_channels]. A linear layer at
// each pixel is a 1x1 convolution of linear form: its weight is [out_channels, C], as Linear's.
struct Convolution {
  enum class Form {
    kConvolution,
    kLinear,        // 1x1, without groups: the weight has two dimensions
    kJoinedLinear,  // the same, and parameters are "<node>_weight" and "<node>_bias" (torch.nn.MultiheadAttention's)
  };

  int64_t out_channels = 0;
  Size2d kernel{};
  Size2d stride{};
  Padding padding{};
  Size2d dilation{};
  int64_t groups = 1;
  bool bias = false;
  Initializer weight_init = Initializer::he_normal();
  Initializer bias_init{};
  Form form = Form::kConvolution;
};

// [C, H, W] -> [out_channels, H', W']: the gradient of a convolution with this weight, as a layer
// (torch.nn.ConvTranspose2d; "deconvolution"). y is zero (or b[o]), and each pixel of x adds to a window of it:
//   y[o, h * stride + kh * dilation - padding, ...] += w[i, o, kh, kw] * x[i, h, w]
// H' = (H - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, W' alike: padding cuts rows and
// columns off on both sides, output_padding, which is smaller than the stride or the dilation, adds some at the bottom
// and at the right.
// Parameters: weight [C, out_channels / groups, kernel.height, kernel.width], bias [out_channels]. The fan in of the
// weight's initializer is counted as torch.nn.init does, as that of the convolution.
struct TransposedConvolution {
  int64_t out_channels = 0;
  Size2d kernel{};
  Size2d stride{};
  Size2d padding = 0;
  Size2d output_padding = 0;
  Size2d dilation{};
  int64_t groups = 1;
  bool bias = false;
  Initializer weight_init = Initializer::he_normal();
  Initializer bias_init{};
};

// [C, H, W] -> [C, factor * H, factor * W].
// Nearest: y[c, h, w] = x[c, floor(h / factor), floor(w / factor)].
// Bilinear: with s = max((h + 0.5) / factor - 0.5, 0) and r = floor(s), y's row h is (1 - s + r) * row r + (s - r) *
// row min(r + 1, H - 1), columns alike (torch.nn.Upsample with align_corners=False).
struct Upsample {
  enum class Kind { kNearest, kBilinear };
  Kind kind = Kind::kNearest;
  int64_t factor = 2;
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias over (N, H, W) for each channel; biased variance. Training:
// batch statistics, and running = decay * running + (1 - decay) * batch, where the batch's variance is the unbiased one
// (count / (count - 1) times as large; 0 for a single value), as in PyTorch and TensorFlow 1, or, with
// biased_running_variance, the biased one that it is normalized with, as in Keras 3. Inference, and training when all
// its parameters are frozen (ParameterSet::set_trainable): running statistics, which do not change. Parameters: weight
// [C] (scale), bias [C] (shift); both outside weight decay. Buffers: running_mean [C], running_var [C].
struct BatchNorm {
  double epsilon = 1e-5;
  double decay = 0.9;
  bool scale = true;
  Initializer scale_init = Initializer::ones();
  bool biased_running_variance = false;
};

// Returns the factor of the batch's biased variance of `count` values in the update of the running variance.
[[nodiscard]] constexpr double running_variance_factor(const BatchNorm& op, double count) {
  if (op.biased_running_variance) return 1;
  return count > 1 ? count / (count - 1) : 0;
}

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias over the C channels of each pixel, or the elements of a
// vector [C]; biased variance (Ba, Kiros, Hinton, "Layer normalization", 2016). Parameters: weight [C], bias [C]; both
// outside weight decay.
struct LayerNorm {
  double epsilon = 1e-5;
};

// [C, H, W]: each channel times its own factor (Touvron et al., "Going deeper with image transformers", 2021). The
// parameter [C, 1, 1], outside weight decay, has the node's name.
struct LayerScale {
  Initializer init = Initializer::constant(1e-6);
};

// Elementwise, any shape.
struct Activation {
  enum class Function { kRelu, kRelu6, kSilu, kHardSwish, kHardSigmoid, kSigmoid, kGelu, kTanh };
  Function function = Function::kRelu;
};

// [C, H, W] -> [C, H', W']. Average: padding counts as zero if count_padding, else only real pixels are averaged.
// ceil_mode lets the last window hang over the edge if it starts inside the image or its leading padding.
struct Pool {
  enum class Kind { kMax, kAverage };
  Kind kind = Kind::kMax;
  Size2d kernel{};
  Size2d stride{};
  Padding padding{};
  bool ceil_mode = false;
  bool count_padding = false;
};

// [C, H, W] -> [C]: the mean of each channel.
struct GlobalAveragePool {};

// [C, H, W] -> [C, size]: the mean over rows floor(i * H / height) to ceil((i + 1) * H / height), columns alike;
// windows overlap where the extents do not divide, and repeat pixels where the image is the smaller one.
struct AdaptiveAveragePool {
  Size2d size{};
};

// [F] -> [out_features]: y = W x + b. Parameters: weight [out_features, F], bias [out_features].
struct Linear {
  int64_t out_features = 0;
  bool bias = true;
  Initializer weight_init = Initializer::he_uniform();
  Initializer bias_init{};
};

// [C, H, W] -> [C * H * W], channels outermost.
struct Flatten {};

// Elementwise sum of two or more inputs of one shape.
struct Add {};

// First input times the second: same shape, or [C, H, W] times [C] (squeeze-and-excitation).
struct Multiply {};

// Along channels (the first logical dimension); the others equal.
struct Concat {};

// [C, H, W] -> [before + C + after, H, W]: channels of zeros around the given ones (the parameter-free shortcut of
// CIFAR ResNets: He et al. 2015, option A).
struct ChannelPad {
  int64_t before = 0, after = 0;
};

// [C, H, W] -> [C, top + H + bottom, left + W + right]: zeros around the image; negative numbers cut its edges off.
struct SpatialPad {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

// [C, H, W] -> [count, H, W]: channels begin to begin + count.
struct ChannelSlice {
  int64_t begin = 0, count = 0;
};

// Channels as `groups` rows of C / groups, read by columns (Zhang et al., "ShuffleNet", 2018).
struct ChannelShuffle {
  int64_t groups = 2;
};

// Training: each element kept with probability 1 - drop and divided by it, from the stream (seed, step, micro-step,
// name, global sample index). Inference: the identity.
struct Dropout {
  double drop = 0.5;
};

// Training: each sample kept whole with probability 1 - drop and divided by it. Inference: the identity.
struct StochasticDepth {
  double drop = 0.0;
};

// Across channels, TensorFlow's: y = x / (bias + alpha * sum over 2 * radius + 1 channels of x^2)^beta.
struct LocalResponseNorm {
  int64_t radius = 4;
  double bias = 1.0, alpha = 1.0, beta = 0.5;
};

// Transformers. A sequence of T tokens is an image [C, T, 1].

// [C, H, W] -> [C, 1 + H * W, 1]: a learned token before the pixels, row by row (Dosovitskiy et al., "An image is worth
// 16x16 words", 2021). The parameter [1, 1, C], outside weight decay, has the node's name.
struct ClassToken {
  Initializer init{};
};

// [C, T, 1]: a learned vector is added to each token. The parameter [1, T, C], outside weight decay, has the node's
// name.
struct PositionEmbedding {
  Initializer init = Initializer::normal(0.02);
};

// [3 * C, H, W] -> [C, H, W]: scaled dot product attention of the pixels to each other (Vaswani et al., "Attention is
// all you need", 2017). The input is queries, keys and values, C channels each; head h has channels h * D to (h + 1) *
// D of each, D = C / heads:
//   y[i] = sum_j softmax_j(q[i] . k[j] / sqrt(D) + bias[i, j]) * v[j]
// Within windows of `window` x `window` pixels, which divide the image, where that is not 0 (Liu et al., "Swin
// transformer", 2021). The windows lie `shift` pixels down and to the right, around the edges; -100 is added between
// pixels that do not neighbour. A window as large as the image is not shifted. Its bias depends on the difference of
// two positions: parameter relative_position_bias_table [(2 * window - 1)^2, heads], outside weight decay; the buffer
// relative_position_index [window^4] says where in it, and is there for files of weights.
struct Attention {
  int64_t heads = 1;
  int64_t window = 0;  // 0: all pixels attend to all, without a bias
  int64_t shift = 0;
  int64_t queries =
      0;  // without windows: the number of first pixels, row by row, that have queries; y is [C, queries, 1]; 0: all
};

// [C, H, W] -> [4 * C, ceil(H / 2), ceil(W / 2)]: the channels of the four pixels of each 2x2 square, column by column:
// upper left, lower left, upper right, lower right; zeros beyond the edge (the patch merging of Liu et al.).
struct PatchMerge {};

// [C, H, W]: the channels of each pixel divided by their length, each then times its own factor (Liu, Rabinovich, Berg,
// "ParseNet", 2015, section 3.3; torchvision's SSD300):
//   y[c] = x[c] / max(sqrt(sum over C of x^2), epsilon) * weight[c]
// The parameter [C], outside weight decay, has the node's name.
struct L2Norm {
  double epsilon = 1e-12;
  Initializer init = Initializer::constant(20);
};

// Predictions for boxes as rows, a row for each box. The inputs are pairs of images of one size: `coordinates` numbers
// and the scores of `classes` classes for each of A boxes at each pixel, [A * coordinates, H, W] and [A * classes, H,
// W].
// -> [boxes of all pairs, coordinates + classes]; rows of the first pair come first, and within a pair
//   y[row(a, h, w), k] = x1[a * coordinates + k, h, w], behind them y[.., coordinates + c] = x2[a * classes + c, h, w]
// By box, all pixels of one box follow each other: row = (a * H + h) * W + w (tf_cnn_benchmarks' SSD300). By pixel, all
// boxes of one pixel: row = (h * W + w) * A + a (torchvision's).
struct BoxRows {
  enum class Order { kByBox, kByPixel };
  int64_t coordinates = 4;
  int64_t classes = 0;
  Order order = Order::kByBox;
};

// A layer that this library does not know: a CustomLayer of the program (nn/graph/custom_layer.h), or any
// torch::nn::Module (foreign_op() there). It maps one tensor [N, input...], or several, to one of
// [N, output...]. It trains and is saved; it cannot be exported, fused or planned.
struct Foreign {
  std::string description{};
  // Called when the node is added to a graph, to get the shape of its result, and once per executor, on the thread that
  // builds it.
  std::function<std::shared_ptr<class CustomLayer>()> make{};
};

using Op = std::variant<Input, Convolution, BatchNorm, Activation, Pool, GlobalAveragePool, AdaptiveAveragePool, Linear,
                        Flatten, Add, Multiply, Concat, ChannelPad, SpatialPad, ChannelSlice, ChannelShuffle, Dropout,
                        StochasticDepth, LocalResponseNorm, LayerNorm, LayerScale, ClassToken, PositionEmbedding,
                        Attention, PatchMerge, TransposedConvolution, Upsample, L2Norm, BoxRows, Foreign>;

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
