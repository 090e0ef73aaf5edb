// tf_cnn_benchmarks' SSD300: Liu et al., "SSD: single shot multibox detector", 2016, on a ResNet-34 whose third group
// of blocks keeps the size and whose fourth is left out, as MLPerf's reference had it. The output is [D, 4 + classes],
// a row for each of 8,732 default boxes at 300 x 300 pixels: four offsets, then the scores of the classes, of which 0
// is the background.
//
// Names follow the variables there: conv<i>.weight is conv<i>/conv2d/kernel, conv<i>.bias conv<i>/biases, and
// conv<i>.bn of the backbone conv<i>/batchnorm<i>; the backbone's begin with "resnet34_backbone." for
// resnet34_backbone/. Convolutions count in the order in which they are made there: of a block the shortcut's first, of
// a map of features the offsets' head before the scores'.

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::ssd300 {
namespace {

using Value = nn::GraphBuilder::Value;

class Builder {
 public:
  explicit Builder(const ModelOptions& options)
      : b_({.image = options.image_shape(), .name = "ssd300", .batch_norm = {.epsilon = 1e-4, .decay = 0.997}}),
        classes_(options.num_classes) {}

  nn::Graph build() {
    Value x = backbone();
    std::vector<Value> maps{x};
    const nn::Padding same = nn::Padding::same(), valid = nn::Padding::valid();
    for (const auto& [narrow, wide, stride, padding] :
         {Extra{256, 512, 2, same}, Extra{256, 512, 2, same}, Extra{128, 256, 2, same}, Extra{128, 256, 1, valid},
          Extra{128, 256, 1, valid}}) {
      x = extra_convolution(x, {.out_channels = narrow, .kernel = 1});
      x = extra_convolution(x, {.out_channels = wide, .kernel = 3, .stride = stride, .padding = padding});
      maps.push_back(x);
    }
    constexpr std::array<int64_t, 6> kBoxes{4, 6, 6, 6, 4, 4};  // at each pixel of a map
    std::vector<Value> predictions;
    for (size_t i = 0; i < maps.size(); ++i) {
      for (const int64_t columns : {int64_t{4}, classes_}) {
        const nn::Convolution head{.out_channels = kBoxes[i] * columns, .kernel = 3, .padding = same};
        predictions.push_back(b_.convolution(next(), maps[i], glorot(head, maps[i])));
      }
    }
    return b_.build(b_.box_rows("boxes", predictions, {.coordinates = 4, .classes = classes_}));
  }

 private:
  struct Extra {
    int64_t narrow, wide, stride;
    nn::Padding padding;
  };

  std::string next() { return fmt::format("conv{}", count_++); }

  // With a bias of zero and Glorot's uniform distribution, on which contrib's xavier_initializer draws by default.
  nn::Convolution glorot(nn::Convolution op, Value x) const {
    const auto area = static_cast<double>(op.kernel.height * op.kernel.width);
    op.bias = true;
    op.weight_init =
        nn::Initializer::uniform(std::sqrt(6 / (area * static_cast<double>(b_.shape(x)[0] + op.out_channels))));
    return op;
  }

  Value extra_convolution(Value x, const nn::Convolution& op) {
    const std::string name = next();
    return b_.activation(name + ".relu", b_.convolution(name, x, glorot(op, x)));
  }

  // Adds a convolution of the backbone with its norm.
  Value convolution_norm(Value x, const nn::Convolution& op) {
    const std::string name = "resnet34_backbone." + next();
    return b_.batch_norm(name + ".bn", b_.convolution(name, x, op));
  }

  // `projects` says that the shortcut is a convolution; else it is the input.
  Value block(const std::string& name, Value x, int64_t channels, int64_t stride, bool projects) {
    const Value past = projects ? convolution_norm(x, benchmark_convolution(channels, 1, stride)) : x;
    Value y = convolution_norm(x, benchmark_convolution(channels, 3, stride));
    y = convolution_norm(b_.activation(name + ".relu1", y), benchmark_convolution(channels, 3));
    return b_.activation(name + ".relu2", b_.add(name + ".add", {y, past}));
  }

  Value backbone() {
    Value x = b_.activation("resnet34_backbone.relu", convolution_norm(b_.input(), resnet_convolution(64, 7, 2)));
    x = b_.max_pool("resnet34_backbone.mpool0", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::same()});
    constexpr std::array<int, 3> kBlocks{3, 4, 6};
    for (size_t group = 0; group < kBlocks.size(); ++group) {
      for (int i = 0; i < kBlocks[group]; ++i) {
        const bool projects = group > 0 && i == 0;
        x = block(fmt::format("resnet34_backbone.block{}.{}", group + 1, i), x, int64_t{64} << group,
                  projects && group == 1 ? 2 : 1, projects);
      }
    }
    return x;
  }

  nn::GraphBuilder b_;
  int64_t classes_;
  int count_ = 0;  // of convolutions
};

// The warm-up is five epochs of COCO's training images.
const ModelRegistration kSsd300({.name = "ssd300",
                                 .family = DatasetFamily::kCoco,
                                 .task = Task::kDetection,
                                 .equals = "tf_cnn_benchmarks ssd300",
                                 .image_size = 300,
                                 .default_batch_size = 32,
                                 .schedule = {.learning_rate = 1e-3,
                                              .batch_size = 32,
                                              .warmup_epochs = 5,
                                              .boundary_steps = {160'000, 200'000},
                                              .factors = {1, 0.1, 0.01},
                                              .epoch_examples = 118'287},
                                 .build = [](const ModelOptions& options) { return Builder(options).build(); }});

}  // namespace
}  // namespace trainyard::models::tf_cnn::ssd300
