// The usage of NVIDIA DALI's TensorFlow ResNet-N example with a custom training loop, in C++: a model function and
// parameters by name go in, a trained model comes out, which predicts and is saved in a file for Keras.
//
// The example's own values, those of its README, need a GPU and ImageNet: on a CPU the error names the first parameter
// that does. What trains here is the same with other values.

#include "trainyard/train_ctl.h"

#include <filesystem>
#include <iostream>
#include <string>

#include <fmt/core.h>

using namespace trainyard;

namespace {

const frontends::TrainCtlParams kTheirs{.image_width = 224,
                                        .image_height = 224,
                                        .image_format = "channels_first",
                                        .distort_color = false,
                                        .momentum = 0.9,
                                        .loss_scale = 128.0,
                                        .data_dir = "/data/imagenet/train-val-tfrecord-480",
                                        .batch_size = 256,
                                        .num_iter = 90,
                                        .iter_unit = "epoch",
                                        .display_every = 100,
                                        .precision = "fp16",
                                        .dali_mode = "GPU",
                                        .use_xla = true};

// A model function of one's own: a network for so many classes, with Keras' l2(1e-4) on its kernels.
frontends::CtlModel small_network(int64_t num_classes, int64_t /*batch_size*/) {
  nn::GraphBuilder b({.image = {3, 32, 32}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3, .stride = 2});
  x = b.activation("relu", b.batch_norm("bn", x));
  x = b.linear("fc", b.global_average_pool("pool", x), {.out_features = num_classes});
  frontends::CtlModel model{.graph = b.build(x)};
  model.regularization = optim::keras_l2(model.graph, 1e-4);
  return model;
}

}  // namespace

int main() try {
  if (train::gpu_count() == 0) {
    try {
      frontends::train_ctl(frontends::ctl_zoo_model("resnet50"), kTheirs);
    } catch (const core::Error& error) {
      fmt::print("{}\n", error.what());
    }
  }
  const std::string folder = (std::filesystem::temp_directory_path() / "trainyard_example_train_ctl").string();
  std::filesystem::create_directories(folder);
  frontends::TrainCtlParams params = kTheirs;
  params.image_width = params.image_height = 32;
  params.data_dir.clear();  // synthetic images
  params.batch_size = 8;
  params.num_iter = 20;
  params.iter_unit = "batch";
  params.export_dir = folder;
  params.display_every = 10;
  params.precision = "fp32";
  params.dali_mode = "none";
  params.use_xla = false;
  const frontends::TrainedCtl trained = frontends::train_ctl(small_network, params);
  fmt::print("loss {:.2f} after {} steps\n", trained.means.loss, trained.global_step);
  frontends::predict_ctl(params);
  std::filesystem::remove_all(folder);
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
