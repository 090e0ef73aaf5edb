#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn {
namespace {

using Value = GraphBuilder::Value;
using Function = Activation::Function;

// The convolution with its padding as a layer of its own.
Value convolution_of_padded(GraphBuilder& b, const std::string& name, Value x, Convolution op) {
  const Shape image = b.shape(x);
  const Padding padding = resolve_padding(op.padding, {image[1], image[2]}, op.kernel, op.stride, op.dilation);
  op.padding = Padding::valid();
  return b.convolution(
      name,
      b.spatial_pad(name + ".padding", x,
                    {.top = padding.top, .bottom = padding.bottom, .left = padding.left, .right = padding.right}),
      op);
}

LayerCase convolution(std::string name, Shape image, Convolution op) {
  op.weight_init = Initializer::normal(0.5);
  op.bias_init = Initializer::normal(0.5);
  return {.name = std::move(name),
          .image = std::move(image),
          .build = [op](GraphBuilder& b, Value x) { return b.convolution("layer", x, op); },
          .padded = [op](GraphBuilder& b, Value x) { return convolution_of_padded(b, "layer", x, op); }};
}

// Padding cuts rows and columns off: as a layer of its own, it gives them a gradient of zero.
LayerCase transposed(std::string name, Shape image, TransposedConvolution op) {
  op.weight_init = Initializer::normal(0.5);
  op.bias_init = Initializer::normal(0.5);
  return {.name = std::move(name),
          .image = std::move(image),
          .build = [op](GraphBuilder& b, Value x) { return b.transposed_convolution("layer", x, op); },
          .padded =
              [op](GraphBuilder& b, Value x) {
                TransposedConvolution whole = op;
                whole.padding = 0;
                const int64_t rows = -op.padding.height, columns = -op.padding.width;
                return b.spatial_pad("layer.padding", b.transposed_convolution("layer", x, whole),
                                     {.top = rows, .bottom = rows, .left = columns, .right = columns});
              }};
}

LayerCase upsample(std::string name, Shape image, Upsample op) {
  return {std::move(name), std::move(image), [op](GraphBuilder& b, Value x) { return b.upsample("layer", x, op); }};
}

// Two maps of different sizes, for each 2 and 3 boxes of 17 classes; the second pair has other readers, too.
Value box_rows(GraphBuilder& b, Value x, BoxRows::Order order) {
  const auto slice = [&](const std::string& name, Value from, int64_t begin, int64_t count) {
    return b.channel_slice(name, from, {.begin = begin, .count = count});
  };
  const Value y = b.average_pool("pool", x, {.kernel = 2});
  const Value coordinates = b.activation("tanh", slice("coordinates", y, 1, 9), Function::kTanh);
  const Value scores = slice("scores", y, 3, 51);
  const Value more = b.add("sum", {scores, scores});
  return b.box_rows("layer", {slice("first", x, 0, 6), slice("second", x, 8, 34), coordinates, more},
                    {.coordinates = 3, .classes = 17, .order = order});
}

LayerCase norm(std::string name, Shape image, BatchNorm op) {
  op.scale_init = Initializer::uniform(2);
  return {std::move(name), std::move(image), [op](GraphBuilder& b, Value x) { return b.batch_norm("layer", x, op); }};
}

LayerCase activation(std::string name, Function function) {
  return {std::move(name),
          {3, 5, 7},
          [function](GraphBuilder& b, Value x) { return b.activation("layer", x, function); },
          8};
}

LayerCase pool(std::string name, Shape image, Pool op) {
  return {std::move(name), std::move(image), [op](GraphBuilder& b, Value x) {
            return op.kind == Pool::Kind::kMax ? b.max_pool("layer", x, op) : b.average_pool("layer", x, op);
          }};
}

LayerCase other(std::string name, Shape image, std::function<Value(GraphBuilder&, Value)> build) {
  return {std::move(name), std::move(image), std::move(build)};
}

// Outputs of batch norms that a convolution and an addition read: with an activation, behind an addition with one, and
// behind an addition without one.
Value maps_with_two_readers(GraphBuilder& b, Value x) {
  const auto normed = [&](const std::string& name, Value input) {
    return b.batch_norm(name + "/norm", b.convolution(name, input, {.out_channels = 8, .kernel = 1}));
  };
  Value y = b.activation("stem/relu", normed("stem", x));
  y = b.activation("first/relu", b.add("first/add", {normed("first", y), y}));
  y = b.add("second/add", {normed("second", y), y});
  return b.activation("third/relu", b.add("third/add", {normed("third", y), y}));
}

// Convolution, norm, ReLU and a shortcut around them: joins, values used twice, results that may be overwritten.
template <typename Convolve>
Value residual_block_of(GraphBuilder& b, Value x, const Convolve& convolve) {
  const Convolution op{.out_channels = b.shape(x)[0], .kernel = 3, .padding = Padding::all(1)};
  Value y = b.activation("relu1", b.batch_norm("norm1", convolve(b, "conv1", x, op)));
  y = b.batch_norm("norm2", convolve(b, "conv2", y, op));
  return b.activation("relu2", b.add("add", {y, x}));
}
Value residual_block(GraphBuilder& b, Value x) {
  return residual_block_of(b, x,
                           [](GraphBuilder& builder, const std::string& name, Value input, const Convolution& op) {
                             return builder.convolution(name, input, op);
                           });
}
Value residual_block_of_padded(GraphBuilder& b, Value x) {
  return residual_block_of(b, x, convolution_of_padded);
}

// A residual that is known to be not finite, because a convolution before it has looked, when the norm behind it says
// what bounds its outputs. The last convolution takes its ReLU, which turns NaN into 0, where it believes the bound.
Value norm_of_measured_residual(GraphBuilder& b, Value x) {
  const auto convolve = [&](const char* name, Value from) {
    return b.convolution(name, from, {.out_channels = b.shape(x)[0], .kernel = 1});
  };
  const Value first = b.activation("first_relu", convolve("first", x));
  const Value norm = b.batch_norm("norm", convolve("second", first));
  const Value sum = b.activation("sum_relu", b.add("sum", {norm, x}));
  return b.activation("relu", convolve("layer", sum));
}

// What networks without norms are made of: a convolution that takes the ReLU behind it.
LayerCase convolution_relu(std::string name, Shape image, Convolution op, Function function = Function::kRelu) {
  LayerCase layer = convolution(std::move(name), std::move(image), op);
  layer.sixteen_bits = false;  // rounding moves some inputs of ReLU to the other side of zero
  for (LayerCase::Build* build : {&layer.build, &layer.padded}) {
    *build = [inner = *build, function](GraphBuilder& b, Value x) {
      return b.activation("after", inner(b, x), function);
    };
  }
  return layer;
}

// Infinity times weights above zero is infinity, in all channels: NaN in pad lanes between the two shows.
LayerCase convolutions_in_a_row() {
  const auto convolve = [](auto& b, const char* name, Value x, int64_t channels) {
    return b.convolution(name, x, {.out_channels = channels, .kernel = 1, .weight_init = Initializer::constant(2)});
  };
  return other("ConvolutionsInARow", {5, 4, 3},
               [=](auto& b, Value x) { return convolve(b, "layer", convolve(b, "first", x, 19), 7); });
}

// The image is a factor of the convolution's gradient: where it is infinite, that is, and the convolution's input is
// not.
LayerCase gated_convolution(std::string name, Shape image, const Convolution& op) {
  LayerCase layer = convolution(std::move(name), std::move(image), op);
  for (LayerCase::Build* build : {&layer.build, &layer.padded}) {
    *build = [inner = *build](GraphBuilder& b, Value x) {
      return b.multiply("gate", inner(b, b.activation("tanh", x, Function::kTanh)), x);
    };
  }
  return layer;
}

Value squeeze_and_excitation(GraphBuilder& b, Value x) {
  const int64_t channels = b.shape(x)[0];
  Value scale = b.linear("down", b.global_average_pool("pool", x), {.out_features = 2});
  scale = b.linear("up", b.activation("silu", scale, Function::kSilu), {.out_features = channels});
  return b.multiply("layer", x, b.activation("gate", scale, Function::kSigmoid));
}

LayerCase attention(std::string name, Shape image, Attention op) {
  return {std::move(name), std::move(image), [op](GraphBuilder& b, Value x) { return b.attention("layer", x, op); }};
}

// A block of ConvNeXt without its convolutions.
Value scaled_branch(GraphBuilder& b, Value x) {
  Value y = b.layer_norm("norm", b.activation("gelu", x, Function::kGelu), {});
  y = b.layer_scale("layer", y, {.init = Initializer::normal(1)});
  return b.add("add", {b.stochastic_depth("depth", y, 0.4), x});
}

}  // namespace

std::vector<LayerCase> layer_cases() {
  const Pool::Kind max = Pool::Kind::kMax, average = Pool::Kind::kAverage;
  return {
      convolution("Convolution3x3", {5, 7, 9}, {.out_channels = 6, .kernel = 3, .padding = Padding::all(1)}),
      convolution("Convolution1x1", {17, 5, 3}, {.out_channels = 19, .kernel = 1}),
      convolution("ConvolutionBias", {3, 6, 5}, {.out_channels = 4, .kernel = 3, .bias = true}),
      convolution("ConvolutionStem", {3, 23, 21},
                  {.out_channels = 16, .kernel = 7, .stride = 2, .padding = Padding::all(3)}),
      convolution("ConvolutionSameOdd", {3, 7, 8},
                  {.out_channels = 4, .kernel = 3, .stride = 2, .padding = Padding::same()}),
      convolution("ConvolutionPatches", {3, 25, 16}, {.out_channels = 20, .kernel = 8, .stride = 8}),
      convolution("ConvolutionSameEvenKernel", {2, 6, 7},
                  {.out_channels = 3, .kernel = {4, 2}, .stride = {3, 1}, .padding = Padding::same()}),
      convolution("ConvolutionLopsided", {2, 5, 6},
                  {.out_channels = 3, .kernel = {1, 7}, .padding = {Padding::Kind::kExplicit, 0, 1, 2, 4}}),
      convolution("ConvolutionStrideOverKernel", {4, 9, 9}, {.out_channels = 8, .kernel = 1, .stride = 3}),
      convolution("ConvolutionDilated", {3, 9, 8},
                  {.out_channels = 4, .kernel = 3, .padding = Padding::same(), .dilation = {2, 3}}),
      convolution("ConvolutionGroups", {6, 5, 5},
                  {.out_channels = 9, .kernel = 3, .padding = Padding::all(1), .groups = 3}),
      convolution("ConvolutionGroupsOfFour", {20, 6, 5},
                  {.out_channels = 20, .kernel = 3, .padding = Padding::all(1), .groups = 5, .bias = true}),
      convolution("ConvolutionGroupsOfHalfBlocks", {48, 5, 4},
                  {.out_channels = 48, .kernel = 3, .stride = 2, .padding = Padding::all(1), .groups = 2}),
      convolution("ConvolutionGroupsDilated", {24, 7, 8},
                  {.out_channels = 24, .kernel = 3, .padding = Padding::same(), .dilation = {2, 3}, .groups = 3}),
      convolution("ConvolutionDepthwiseTwice", {5, 6, 5},
                  {.out_channels = 10, .kernel = 3, .padding = Padding::all(1), .groups = 5}),
      convolution("ConvolutionDepthwise5x5", {19, 7, 6},
                  {.out_channels = 19, .kernel = 5, .padding = Padding::all(2), .groups = 19}),
      convolution("ConvolutionDepthwise7x7", {19, 9, 11},
                  {.out_channels = 19, .kernel = 7, .padding = Padding::all(3), .groups = 19, .bias = true}),
      convolution("ConvolutionDepthwise", {7, 6, 6},
                  {.out_channels = 7, .kernel = 3, .stride = 2, .padding = Padding::all(1), .groups = 7}),
      convolution_relu("ConvolutionRelu", {19, 6, 5}, {.out_channels = 35, .kernel = 3, .padding = Padding::all(1)}),
      convolution_relu("ConvolutionBiasRelu", {16, 5, 6}, {.out_channels = 32, .kernel = 1, .bias = true}),
      convolution_relu("ConvolutionStemRelu", {3, 11, 9},
                       {.out_channels = 16, .kernel = 3, .stride = 2, .padding = Padding::all(1), .bias = true}),
      convolution_relu("ConvolutionDepthwiseRelu6", {19, 6, 5},
                       {.out_channels = 19, .kernel = 3, .padding = Padding::all(1), .groups = 19}, Function::kRelu6),
      convolutions_in_a_row(),
      gated_convolution("ConvolutionGated", {32, 6, 7},
                        {.out_channels = 32, .kernel = 3, .padding = Padding::all(1), .bias = true}),
      gated_convolution("ConvolutionGatedGroups", {24, 5, 6},
                        {.out_channels = 24, .kernel = 3, .padding = Padding::all(1), .groups = 2}),
      convolution("ConvolutionOnePixel", {5, 1, 1}, {.out_channels = 3, .kernel = 3, .padding = Padding::all(1)}),
      // Kernels reach beyond the map on both sides: some of their weights meet no pixel.
      convolution("ConvolutionNarrow", {32, 1, 1},
                  {.out_channels = 32, .kernel = 3, .stride = 2, .padding = Padding::all(1)}),
      convolution("ConvolutionNarrow5x5", {32, 4, 1},
                  {.out_channels = 16, .kernel = 5, .stride = 2, .padding = Padding::all(2)}),
      convolution("ConvolutionNarrowLongStride", {16, 3, 2},
                  {.out_channels = 32, .kernel = 7, .stride = 4, .padding = Padding::all(3)}),
      convolution("ConvolutionNarrowGroups", {32, 2, 3},
                  {.out_channels = 64,
                   .kernel = {3, 5},
                   .stride = {1, 3},
                   .padding = {Padding::Kind::kExplicit, 4, 2, 3, 6},
                   .dilation = {3, 2},
                   .groups = 2}),
      norm("BatchNorm", {5, 4, 3}, {}),
      norm("BatchNormBiasedRunningVariance", {5, 2, 2}, {.biased_running_variance = true}),
      norm("BatchNormNoScale", {3, 5, 2}, {.epsilon = 1e-3, .decay = 0.999, .scale = false}),
      norm("BatchNormOnePixel", {4, 1, 1}, {.epsilon = 0.1}),
      activation("Relu", Function::kRelu),
      activation("Relu6", Function::kRelu6),
      activation("Silu", Function::kSilu),
      activation("HardSwish", Function::kHardSwish),
      activation("HardSigmoid", Function::kHardSigmoid),
      activation("Sigmoid", Function::kSigmoid),
      activation("Gelu", Function::kGelu),
      activation("Tanh", Function::kTanh),
      pool("MaxPool", {3, 7, 8}, {max, 2, 2}),
      pool("MaxPoolPadded", {3, 7, 8}, {max, 3, 2, Padding::all(1)}),
      pool("MaxPoolSame", {2, 8, 7}, {max, 3, 2, Padding::same()}),
      pool("MaxPoolMorePadding", {2, 5, 5}, {max, 3, 1, Padding::all(2)}),
      pool("MaxPoolCeil", {2, 8, 6}, {.kind = max, .kernel = 3, .stride = 2, .ceil_mode = true}),
      pool("MaxPoolStrideOverKernel", {2, 9, 9}, {max, 2, 4}),
      pool("MaxPoolOblong", {3, 9, 8}, {max, {3, 2}, {1, 3}, Padding::symmetric(1, 0)}),
      pool("AveragePool", {3, 7, 8}, {average, 2, 2}),
      pool("AveragePoolRealPixels", {3, 7, 8}, {average, 3, 2, Padding::all(1)}),
      pool("AveragePoolCountsPadding", {3, 7, 8},
           {.kind = average, .kernel = 3, .stride = 2, .padding = Padding::all(1), .count_padding = true}),
      pool("AveragePoolSame", {2, 8, 7}, {average, 3, 2, Padding::same()}),
      pool("AveragePoolCeil", {2, 8, 6},
           {.kind = average, .kernel = 3, .stride = 2, .padding = Padding::all(1), .ceil_mode = true}),
      pool("AveragePoolCeilCountsPadding", {2, 8, 6},
           {.kind = average,
            .kernel = 3,
            .stride = 2,
            .padding = Padding::all(1),
            .ceil_mode = true,
            .count_padding = true}),
      pool("AveragePoolEverySecond", {3, 6, 5}, {average, 1, 2}),
      // The last window hangs over the lower edge alone.
      pool("AveragePoolOblong", {3, 9, 9},
           {.kind = average,
            .kernel = {2, 3},
            .stride = {3, 2},
            .padding = {Padding::Kind::kExplicit, 1, 0, 0, 2},
            .ceil_mode = true,
            .count_padding = true}),
      other("GlobalAveragePool", {5, 3, 7}, [](auto& b, Value x) { return b.global_average_pool("layer", x); }),
      other("AdaptiveAveragePool", {3, 7, 4},
            [](auto& b, Value x) {
              return b.adaptive_average_pool("layer", x, {3, 6});
            }),
      other("Linear", {3, 2, 5},
            [](auto& b, Value x) { return b.linear("layer", b.flatten("flat", x), {.out_features = 7}); }),
      other(
          "LinearNoBias", {3, 1, 1},
          [](auto& b, Value x) { return b.linear("layer", b.flatten("flat", x), {.out_features = 2, .bias = false}); }),
      other("Flatten", {3, 4, 2}, [](auto& b, Value x) { return b.flatten("layer", x); }),
      other("AddOfThree", {2, 3, 3},
            [](auto& b, Value x) {
              return b.add("layer", {x, b.activation("tanh", x, Function::kTanh), x});
            }),
      // Values that get several gradients from one sum, and from sums of sums.
      other("AddOfSame", {2, 3, 3},
            [](auto& b, Value x) {
              const Value y = b.activation("tanh", x, Function::kTanh);
              return b.add("layer", {y, y, y});
            }),
      other("AddOfSums", {16, 3, 3},
            [](auto& b, Value x) {
              const Value y = b.activation("tanh", x, Function::kTanh);
              const Value z = b.add("inner", {b.convolution("conv1", y, {.out_channels = 16, .kernel = 1}), y});
              return b.add("layer", {b.convolution("conv2", y, {.out_channels = 16, .kernel = 1}), z, y});
            }),
      other("AddOfManySums", {2, 3, 3},
            [](auto& b, Value x) {
              const Value y = b.activation("tanh", x, Function::kTanh);
              const Value z = b.add("inner", {y, y});
              return b.add("layer", {z, y, b.activation("again", y, Function::kTanh), z, y});
            }),
      // The gradient of the sum is that of both terms, and the pool reads its neighbours in it.
      other("AddOfAveragePool", {20, 6, 5},
            [](auto& b, Value x) {
              const Value y = b.activation("tanh", x, Function::kTanh);
              return b.add("layer",
                           {y, b.average_pool("pool", y, {.kernel = 3, .stride = 1, .padding = Padding::all(1)})});
            }),
      other("AddOfMaxPool", {20, 6, 5},
            [](auto& b, Value x) {
              return b.add("layer", {x, b.max_pool("pool", x, {.kernel = 3, .stride = 1, .padding = Padding::all(1)})});
            }),
      other("AddOfShuffle", {40, 6, 5},
            [](auto& b, Value x) {
              const Value y = b.activation("tanh", x, Function::kTanh);
              return b.add("layer", {y, b.channel_shuffle("shuffle", y, 4)});
            }),
      other("MultiplySame", {2, 3, 3},
            [](auto& b, Value x) { return b.multiply("layer", x, b.activation("tanh", x, Function::kTanh)); }),
      other("SqueezeAndExcitation", {6, 4, 5}, squeeze_and_excitation),
      other("Concat", {3, 4, 5},
            [](auto& b, Value x) {
              return b.concat("layer", {x, b.activation("tanh", x, Function::kTanh), x});
            }),
      other("ChannelPad", {3, 4, 5},
            [](auto& b, Value x) {
              return b.channel_pad("layer", x, {2, 1});
            }),
      other(
          "SpatialPad", {3, 4, 5},
          [](auto& b, Value x) { return b.spatial_pad("layer", x, {.top = -1, .bottom = 2, .left = 1, .right = -2}); }),
      other("ChannelSlice", {5, 4, 3},
            [](auto& b, Value x) { return b.channel_slice("layer", x, {.begin = 1, .count = 3}); }),
      other("ChannelHalves", {38, 4, 3},
            [](auto& b, Value x) {
              // Both add to one gradient.
              const Value low = b.channel_slice("low", x, {.begin = 0, .count = 19});
              const Value high = b.channel_slice("layer", x, {.begin = 19, .count = 19});
              return b.concat("concat", {high, b.activation("tanh", low, Function::kTanh)});
            }),
      other("ChannelShuffle", {6, 3, 4}, [](auto& b, Value x) { return b.channel_shuffle("layer", x, 2); }),
      other("ChannelShuffleWide", {45, 3, 4}, [](auto& b, Value x) { return b.channel_shuffle("layer", x, 5); }),
      other("AdaptiveAveragePoolToOne", {19, 5, 4},
            [](auto& b, Value x) {
              return b.adaptive_average_pool("layer", x, {1, 1});
            }),
      other("Dropout", {4, 5, 3}, [](auto& b, Value x) { return b.dropout("layer", x, 0.3); }),
      other("StochasticDepth", {2, 3, 3}, [](auto& b, Value x) { return b.stochastic_depth("layer", x, 0.4); }),
      other("LocalResponseNorm", {7, 3, 4},
            [](auto& b, Value x) {
              return b.local_response_norm("layer", x, {.radius = 2, .bias = 1.5, .alpha = 0.3, .beta = 0.75});
            }),
      convolution("ConvolutionLinear", {17, 5, 3},
                  {.out_channels = 19, .kernel = 1, .bias = true, .form = Convolution::Form::kLinear}),
      convolution("ConvolutionJoinedLinear", {4, 3, 3},
                  {.out_channels = 12, .kernel = 1, .bias = true, .form = Convolution::Form::kJoinedLinear}),
      other("LayerNorm", {19, 5, 7}, [](auto& b, Value x) { return b.layer_norm("layer", x, {}); }),
      other("LayerNormWholeBlocks", {48, 6, 3},
            [](auto& b, Value x) { return b.layer_norm("layer", x, {.epsilon = 0.1}); }),
      other("LayerNormVector", {7, 2, 3},
            [](auto& b, Value x) { return b.layer_norm("layer", b.flatten("flat", x), {}); }),
      other("LayerScale", {5, 4, 3},
            [](auto& b, Value x) { return b.layer_scale("layer", x, {.init = Initializer::normal(1)}); }),
      other("LayerScaleOfABranch", {19, 4, 3}, scaled_branch),
      other("ClassToken", {5, 3, 2},
            [](auto& b, Value x) { return b.class_token("layer", x, {.init = Initializer::normal(1)}); }),
      other("PositionEmbedding", {5, 6, 1},
            [](auto& b, Value x) { return b.position_embedding("layer", x, {.init = Initializer::normal(1)}); }),
      attention("Attention", {96, 7, 1}, {.heads = 2}),
      attention("AttentionManyTokens", {48, 9, 5}, {.heads = 1}),
      attention("AttentionNarrowHeads", {18, 3, 2}, {.heads = 2}),
      attention("AttentionWindows", {96, 6, 4}, {.heads = 2, .window = 2}),
      attention("AttentionShiftedWindows", {96, 6, 9}, {.heads = 1, .window = 3, .shift = 1}),
      attention("AttentionWindowAsTallAsTheImage", {48, 4, 8}, {.heads = 1, .window = 4, .shift = 2}),
      attention("AttentionOfTheFirstToken", {48, 9, 1}, {.heads = 1, .queries = 1}),
      attention("AttentionOfSomePixels", {96, 3, 6}, {.heads = 2, .queries = 5}),
      attention("AttentionOfSomeNarrow", {12, 3, 2}, {.heads = 2, .queries = 2}),
      other("PatchMerge", {3, 5, 4}, [](auto& b, Value x) { return b.patch_merge("layer", x); }),
      other("L2Norm", {19, 4, 3},
            [](auto& b, Value x) { return b.l2_norm("layer", x, {.init = Initializer::normal(1)}); }),
      other("BoxRows", {60, 5, 3}, [](auto& b, Value x) { return box_rows(b, x, BoxRows::Order::kByBox); }),
      other("BoxRowsByPixel", {60, 3, 4}, [](auto& b, Value x) { return box_rows(b, x, BoxRows::Order::kByPixel); }),
      transposed("TransposedConvolution2x2", {19, 4, 5}, {.out_channels = 7, .kernel = 2, .stride = 2, .bias = true}),
      transposed("TransposedConvolution4x4", {5, 3, 4}, {.out_channels = 6, .kernel = 4, .stride = 2, .padding = 1}),
      transposed("TransposedConvolutionOutputPadding", {3, 5, 4},
                 {.out_channels = 4, .kernel = 3, .stride = {3, 2}, .padding = 1, .output_padding = {2, 1}}),
      transposed("TransposedConvolutionGroups", {6, 3, 4},
                 {.out_channels = 9, .kernel = {2, 3}, .stride = 2, .padding = {0, 1}, .groups = 3, .bias = true}),
      transposed("TransposedConvolutionDilated", {3, 4, 3},
                 {.out_channels = 2, .kernel = 3, .padding = {1, 2}, .output_padding = {1, 2}, .dilation = {2, 3}}),
      upsample("UpsampleNearest", {5, 3, 4}, {Upsample::Kind::kNearest, 2}),
      upsample("UpsampleNearestThreefold", {19, 2, 3}, {Upsample::Kind::kNearest, 3}),
      upsample("UpsampleBilinear", {5, 3, 4}, {Upsample::Kind::kBilinear, 2}),
      upsample("UpsampleBilinearThreefold", {3, 2, 3}, {Upsample::Kind::kBilinear, 3}),
      upsample("UpsampleBilinearOnePixel", {4, 1, 1}, {Upsample::Kind::kBilinear, 4}),
      {.name = "ResidualBlock",
       .image = {4, 5, 6},
       .build = residual_block,
       .sixteen_bits = false,
       .padded = residual_block_of_padded},
      {.name = "MapsWithTwoReaders", .image = {8, 4, 3}, .build = maps_with_two_readers, .sixteen_bits = false},
      {.name = "NormOfMeasuredResidual",
       .image = {16, 3, 3},
       .build = norm_of_measured_residual,
       .sixteen_bits = false},
  };
}

}  // namespace trainyard::nn
