// A generative adversarial network (Goodfellow et al., 2014; layers as in Radford et al., 2016) for silhouettes of ten
// shapes, 28 x 28: two networks in one tower, two losses, two optimizers that take turns within a step. "example_gan
// 6000 picture.png" draws, and says which shapes a classifier of real images sees in a thousand drawings.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <fmt/core.h>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

constexpr int64_t kSize = 28, kClasses = 10, kNoise = 64, kBatch = 64;

nn::Graph generator() {
  nn::GraphBuilder b({.image = {kNoise, 1, 1}, .name = "generator", .input = "noise"});
  auto x = b.transposed_convolution("up1", b.input(), {.out_channels = 128, .kernel = 7});
  x = b.activation("relu1", b.batch_norm("bn1", x));
  x = b.transposed_convolution("up2", x, {.out_channels = 64, .kernel = 4, .stride = 2, .padding = 1});
  x = b.activation("relu2", b.batch_norm("bn2", x));
  x = b.transposed_convolution("up3", x, {.out_channels = 1, .kernel = 4, .stride = 2, .padding = 1, .bias = true});
  return b.build(b.activation("image", x, nn::Activation::Function::kTanh));
}

nn::Graph judge(const std::string& name, int64_t outputs) {
  nn::GraphBuilder b({.image = {1, kSize, kSize}, .name = name});
  auto x = b.input();
  for (const int64_t channels : {32, 64}) {
    const nn::Convolution op{.out_channels = channels, .kernel = 4, .stride = 2, .padding = nn::Padding::all(1)};
    x = b.convolution(fmt::format("conv{}", channels), x, op);
    x = b.activation(fmt::format("silu{}", channels), x, nn::Activation::Function::kSilu);
  }
  return b.build(b.linear("fc", b.flatten("flat", x), {.out_features = outputs}));
}

// log(1 + exp(x))
at::Tensor softplus(const at::Tensor& x) {
  return x.logaddexp(x.new_zeros({}));
}

train::TowerStep make_gan(train::TowerContext& context) {
  nn::Executor& draw = context.graph(generator(), {.prefix = "generator/"});
  nn::Executor& tell = context.graph(judge("discriminator", 1), {.prefix = "discriminator/"});
  return [&](const train::TowerInput& in) -> train::TowerOutput {
    const at::Tensor& real = in.batch["images"];
    const at::Tensor drawn = draw.forward(in.normals({real.size(0), kNoise, 1, 1}, "noise"), in.random);
    if (in.cost == "generator") {
      return {.losses = {{"generator", softplus(tell.forward(drawn, in.random).neg()).mean()}},
              .outputs = {{"images", drawn}}};
    }
    const at::Tensor of_real = tell.forward(real, in.random), of_drawn = tell.forward(drawn.detach(), in.random);
    return {.losses = {{"discriminator", softplus(of_real.neg()).mean().add(softplus(of_drawn).mean())}}};
  };
}

auto nadam(const std::string& parameters, double beta1) {
  const optim::OptimizerOptions options{.numbers = {{"beta1", beta1}}, .parameters = {parameters}};
  return [=](nn::ParameterSet& set) { return optim::optimizers().get("torch_nadam")(set, options); };
}

// Drawings of the first ten shapes, as how far each pixel is from the corner's colour: images in [-1, 1], and labels.
core::NamedTensors silhouettes(int64_t count) {
  const data::ShapesDifficulty easy{.min_radius = 0.38F, .max_tilt = 0.1F, .min_contrast = 150, .max_distractors = 0};
  const at::Tensor images = core::new_tensor({count, 1, kSize, kSize}), labels = core::new_tensor({count}, at::kLong);
  auto* to = images.mutable_data_ptr<float>();
  for (int64_t i = 0, index = 0; i < count; ++index) {
    if (data::shape_label(index) >= kClasses) continue;
    labels.mutable_data_ptr<int64_t>()[i++] = data::shape_label(index);
    const auto& pixels = data::draw_shape(1, data::Subset::kTrain, index, kSize, easy).pixels;
    for (size_t p = 0; p < pixels.size(); p += 3, ++to) {
      int far = 0;
      for (size_t c = 0; c < 3; ++c) far = std::max(far, std::abs(int{pixels[p + c]} - int{pixels[c]}));
      *to = std::clamp((static_cast<float>(far) - 110) / 40, -1.0F, 1.0F);
    }
  }
  return {{"images", images}, {"labels", labels}};
}

// The first hundred images, ten in a row.
void write_picture(const at::Tensor& images, const std::string& path) {
  const at::Tensor rows = images.narrow(0, 0, 100).view({10, 10, kSize, kSize}).permute({0, 2, 1, 3});
  const at::Tensor bytes = rows.add(1).mul(127.5).to(at::kByte).unsqueeze(4).expand({-1, -1, -1, -1, 3}).contiguous();
  const auto* const from = bytes.const_data_ptr<uint8_t>();
  const data::Image picture{.height = 10 * kSize, .width = 10 * kSize, .pixels = {from, from + bytes.numel()}};
  const std::vector<std::byte> png = data::encode_png(picture);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(png.data()), std::ssize(png));
}

}  // namespace

int main(int argc, char** argv) {
  const auto source = std::make_shared<data::TensorSource>(
      silhouettes(4000), data::TensorSourceOptions{.batch_size = kBatch, .shuffle = true});
  train::TowerTrainer gan({.tower = make_gan,
                           .costs = {{"discriminator", nadam("discriminator/*", 0.5), optim::constant(2e-4)},
                                     {"generator", nadam("generator/*", 0.5), optim::constant(2e-4)}}},
                          source);
  const at::Tensor before = gan.parameters().values().clone();
  gan.train({.steps_per_epoch = argc > 1 ? std::atoll(argv[1]) : 100});
  fmt::print("weights moved by {:.4f} on average\n", gan.parameters().values().sub(before).abs().mean().item<float>());
  if (argc < 3) return 0;
  const core::NamedTensors thousand({{"images", core::new_tensor({1000, 1, kSize, kSize})}});
  const at::Tensor drawn = gan.inference_tower()({.batch = thousand, .cost = "generator"}).outputs["images"];
  write_picture(drawn, argv[2]);
  train::TowerTrainer classifier({.graph = judge("classifier", kClasses),
                                  .make_optimizer = nadam("*", 0.9),
                                  .learning_rate = optim::constant(1e-3)},
                                 source);
  classifier.train({.steps_per_epoch = 500});
  const train::TowerOutput told = classifier.inference_tower()({.batch = {{"images", drawn}}});
  const auto [sure, which] = told.outputs["logits"].softmax(1).max(1);
  for (size_t c = 0; c < kClasses; ++c) {
    const at::Tensor seen = sure.gt(0.9).mul(which.eq(static_cast<int64_t>(c))).sum();
    fmt::print("{}: {} of 1000\n", data::shape_names()[c], seen.item<int64_t>());
  }
}
