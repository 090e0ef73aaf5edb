// Metric learning: a network that puts drawings of one sign near each other and those of others far away (Schroff,
// Kalenichenko, Philbin, "FaceNet", 2015). A batch has three inputs: anchors, drawings of the same sign, drawings of
// another. It is then asked about ten signs that it has never seen: is the nearest other drawing one of the same sign?
#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

constexpr int64_t kSigns = 40, kSeen = 30, kDrawings = 40, kSize = 20, kBatch = 32;

// A sign is four strokes; each drawing of it lies a little elsewhere, under noise.
void draw(int64_t sign, int64_t drawing, const at::Tensor& image) {
  core::RandomStream strokes(1, "sign", {static_cast<uint64_t>(sign)});
  core::RandomStream hand(1, "hand", {static_cast<uint64_t>(sign), static_cast<uint64_t>(drawing)});
  auto* const pixel = image.mutable_data_ptr<float>();
  hand.normals(pixel, kSize * kSize);
  image.mul_(0.3);
  const float down = hand.uniform(-2, 2), right = hand.uniform(-2, 2);
  for (int stroke = 0; stroke < 4; ++stroke) {
    const float y = strokes.uniform(3, 16), x = strokes.uniform(3, 16);
    const float to_y = strokes.uniform(3, 16), to_x = strokes.uniform(3, 16);
    for (float part = 0; part <= 1; part += 0.04F) {
      const auto row = std::clamp<int64_t>(static_cast<int64_t>(y + down + part * (to_y - y)), 0, kSize - 1);
      const auto column = std::clamp<int64_t>(static_cast<int64_t>(x + right + part * (to_x - x)), 0, kSize - 1);
      pixel[row * kSize + column] = 1.5F;
    }
  }
}

// The drawings of signs [from, to), one sign behind the other: [N, 1, 20, 20].
at::Tensor drawings(int64_t from, int64_t to) {
  at::Tensor all = core::new_tensor({(to - from) * kDrawings, 1, kSize, kSize});
  for (int64_t i = 0; i < all.size(0); ++i) draw(from + i / kDrawings, i % kDrawings, all[i]);
  return all;
}

// For each sample, one of the same sign and one of another.
core::NamedTensors triplets(const core::NamedTensors& tensors, const std::vector<int64_t>& samples,
                            core::RandomStream& random) {
  std::vector<int64_t> same, other;
  for (const int64_t sample : samples) {
    const int64_t sign = sample / kDrawings, next = static_cast<int64_t>(random.below(kSeen - 1));
    same.push_back(sign * kDrawings + static_cast<int64_t>(random.below(kDrawings)));
    other.push_back((next + (next >= sign ? 1 : 0)) * kDrawings + static_cast<int64_t>(random.below(kDrawings)));
  }
  const auto of = [&](const std::vector<int64_t>& which) { return data::select_samples(tensors, which)["drawings"]; };
  return {{"anchor", of(samples)}, {"same", of(same)}, {"other", of(other)}};
}

nn::Graph embedding() {
  nn::GraphBuilder b({.image = {1, kSize, kSize}, .name = "embedding"});
  auto x = b.input();
  for (const int64_t channels : {16, 32}) {
    const std::string number = std::to_string(channels);
    x = b.convolution("conv" + number, x,
                      {.out_channels = channels, .kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
    x = b.activation("relu" + number, b.batch_norm("bn" + number, x));
  }
  return b.build(b.linear("fc", b.flatten("flat", x), {.out_features = 32}));
}

train::TowerStep compare(train::TowerContext& context) {
  nn::Executor& net = context.graph(embedding());
  const auto embed = [&net](const at::Tensor& images, const train::TowerInput& in) {
    const at::Tensor place = net.forward(images, in.random);
    return place.div(place.norm(2, 1, /*keepdim=*/true).clamp_min(1e-6));
  };
  if (!context.training()) {
    return [embed](const train::TowerInput& in) -> train::TowerOutput {
      return {.outputs = {{"places", embed(in.batch["drawings"], in)}}};
    };
  }
  return [embed](const train::TowerInput& in) -> train::TowerOutput {
    const at::Tensor all = core::new_tensor({3, kBatch, 1, kSize, kSize});
    all[0].copy_(in.batch["anchor"]), all[1].copy_(in.batch["same"]), all[2].copy_(in.batch["other"]);
    const std::vector<at::Tensor> each = embed(all.flatten(0, 1), in).chunk(3);
    const at::Tensor near = each[0].sub(each[1]).square().sum(1), far = each[0].sub(each[2]).square().sum(1);
    return {.losses = {{"triplet", near.sub(far).add(0.5).relu().mean()}}};
  };
}

}  // namespace

int main() {
  train::TowerTrainer trainer(
      {.tower = compare, .make_optimizer = optim::momentum(), .learning_rate = optim::constant(0.02)},
      std::make_shared<data::TensorSource>(
          core::NamedTensors({{"drawings", drawings(0, kSeen)}}),
          data::TensorSourceOptions{.batch_size = kBatch, .shuffle = true, .make_batch = triplets}));
  trainer.train({.steps_per_epoch = 300});

  const core::NamedTensors unseen({{"drawings", drawings(kSeen, kSigns)}});
  const at::Tensor places = trainer.inference_tower()({.batch = unseen}).outputs["places"];
  const at::Tensor nearest = places.mm(places.t()).fill_diagonal_(-2).argmax(1);
  int64_t right = 0;
  for (int64_t i = 0; i < nearest.size(0); ++i)
    right += nearest[i].item<int64_t>() / kDrawings == i / kDrawings ? 1 : 0;
  fmt::print("{} % of drawings of unseen signs lie next to one of the same sign, {} % would by chance\n",
             100 * right / nearest.size(0), 100 / (kSigns - kSeen));
}
