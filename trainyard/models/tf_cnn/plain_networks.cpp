// tf_cnn_benchmarks' networks without shortcuts and batch norm: AlexNet, its CIFAR-10 form, OverFeat, VGG, GoogLeNet.

#include <array>

#include "trainyard/models/registry/layer_defaults.h"
#include "trainyard/models/tf_cnn/chain.h"

namespace trainyard::models::tf_cnn::plain_networks {
namespace {

// Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks", 2012; one column,
// no local response norm.
nn::Graph build_alexnet(const ModelOptions& options) {
  Chain chain(options, "alexnet");
  chain.add(Conv{.channels = 64, .kernel = 11, .stride = 4, .padding = kValid});
  chain.add(MaxPool{3, 2});
  chain.add(Conv{192, 5});
  chain.add(MaxPool{3, 2});
  chain.add(Conv{384, 3});
  chain.add(Conv{384, 3});
  chain.add(Conv{256, 3});
  chain.add(MaxPool{3, 2});
  chain.flatten();
  for (int i = 0; i < 2; ++i) {
    chain.affine(4096);
    chain.dropout();
  }
  return chain.classify();
}

// TensorFlow's CIFAR-10 tutorial's, after Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
nn::Graph build_cifar_alexnet(const ModelOptions& options) {
  Chain chain(options, "alexnet");
  const nn::LocalResponseNorm norm{.radius = 4, .bias = 1.0, .alpha = 0.001 / 9.0, .beta = 0.75};
  chain.add(Conv{.channels = 64, .kernel = 5, .deviation = 0.05});
  chain.add(MaxPool{3, 2, kSame});
  chain.local_response_norm(norm);
  chain.add(Conv{.channels = 64, .kernel = 5, .deviation = 0.05, .bias = 0.1});
  chain.local_response_norm(norm);
  chain.add(MaxPool{3, 2, kSame});
  chain.flatten();
  chain.affine(384, 0.04, 0.1);
  chain.affine(192, 0.04, 0.1);
  return chain.classify();
}

// Sermanet et al., "OverFeat: integrated recognition, localization and detection using convolutional networks", 2014.
nn::Graph build_overfeat(const ModelOptions& options) {
  Chain chain(options, "overfeat");
  chain.add(Conv{.channels = 96, .kernel = 11, .stride = 4, .padding = kValid});
  chain.add(MaxPool{});
  chain.add(Conv{.channels = 256, .kernel = 5, .padding = kValid});
  chain.add(MaxPool{});
  chain.add(Conv{512, 3});
  chain.add(Conv{1024, 3});
  chain.add(Conv{1024, 3});
  chain.add(MaxPool{});
  chain.flatten();
  for (const int64_t units : {3072, 4096}) {
    chain.affine(units);
    chain.dropout();
  }
  return chain.classify();
}

// Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014.
nn::Graph build_vgg(const std::string& name, const std::array<int, 5>& convolutions, const ModelOptions& options) {
  constexpr std::array<int64_t, 5> kChannels{64, 128, 256, 512, 512};
  Chain chain(options, name);
  for (size_t stage = 0; stage < 5; ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) chain.add(Conv{kChannels[stage], 3});
    chain.add(MaxPool{});
  }
  chain.flatten();
  for (int i = 0; i < 2; ++i) {
    chain.affine(4096);
    chain.dropout();
  }
  return chain.classify();
}

// Szegedy et al., "Going deeper with convolutions", 2014; no auxiliary classifiers.
nn::Graph build_googlenet(const ModelOptions& options) {
  Chain chain(options, "googlenet");
  const auto module = [&chain](int64_t one, int64_t before_three, int64_t three, int64_t before_five, int64_t five,
                               int64_t pooled) {
    chain.module({{Conv{one, 1}},
                  {Conv{before_three, 1}, Conv{three, 3}},
                  {Conv{before_five, 1}, Conv{five, 5}},
                  {MaxPool{3, 1, kSame}, Conv{pooled, 1}}});
  };
  const MaxPool halving{3, 2, kSame};
  chain.add(Conv{64, 7, 2});
  chain.add(halving);
  chain.add(Conv{64, 1});
  chain.add(Conv{192, 3});
  chain.add(halving);
  module(64, 96, 128, 16, 32, 32);
  module(128, 128, 192, 32, 96, 64);
  chain.add(halving);
  module(192, 96, 208, 16, 48, 64);
  module(160, 112, 224, 24, 64, 64);
  module(128, 128, 256, 24, 64, 64);
  module(112, 144, 288, 32, 64, 64);
  module(256, 160, 320, 32, 128, 128);
  chain.add(halving);
  module(256, 160, 320, 32, 128, 128);
  module(384, 192, 384, 48, 128, 128);
  chain.spatial_mean();  // written as a 7 x 7 pooling there
  return chain.classify();
}

ModelInfo vgg(const std::string& name, const std::array<int, 5>& convolutions) {
  return {.name = name,
          .family = DatasetFamily::kImagenet,
          .equals = "tf_cnn_benchmarks " + name,
          .default_batch_size = 64,
          .build = [=](const ModelOptions& options) { return build_vgg(name, convolutions, options); }};
}

const ModelRegistration kAlexnet({.name = "alexnet",
                                  .family = DatasetFamily::kImagenet,
                                  .equals = "tf_cnn_benchmarks alexnet",
                                  .image_size = 227,
                                  .default_batch_size = 512,
                                  .build = build_alexnet});
// A tenth each 100 epochs.
const ModelRegistration kCifarAlexnet({.name = "alexnet",
                                       .family = DatasetFamily::kCifar10,
                                       .equals = "tf_cnn_benchmarks alexnet",
                                       .image_size = 32,
                                       .default_batch_size = 128,
                                       .schedule = {.learning_rate = 0.1,
                                                    .boundary_epochs = {100, 200, 300, 400},
                                                    .factors = {1, 0.1, 0.01, 0.001, 0.0001}},
                                       .build = build_cifar_alexnet});
const ModelRegistration kOverfeat(benchmark_model("overfeat", DatasetFamily::kImagenet, 231, build_overfeat));
const ModelRegistration kGooglenet(benchmark_model("googlenet", DatasetFamily::kImagenet, 224, build_googlenet));
const ModelRegistration kVgg11(vgg("vgg11", {1, 1, 2, 2, 2}));
const ModelRegistration kVgg16(vgg("vgg16", {2, 2, 3, 3, 3}));
const ModelRegistration kVgg19(vgg("vgg19", {2, 2, 4, 4, 4}));

}  // namespace
}  // namespace trainyard::models::tf_cnn::plain_networks
