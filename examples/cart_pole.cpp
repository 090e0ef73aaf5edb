// Reinforcement learning without a data set: a pole on a cart is kept upright by pushing the cart left or right. The
// tower plays 32 games side by side with the policy as it is, and lowers an actor-critic's loss over what it saw
// (Mnih et al., "Asynchronous methods for deep reinforcement learning", 2016; returns as in Schulman et al., 2016).
// Prints "solved" when the last 100 games lasted 195 of 200 moves on average.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

constexpr int64_t kGames = 32, kMoves = 32, kLongest = 200;
constexpr float kDiscount = 0.99F, kLambda = 0.95F;

// Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems", 1983.
struct CartPole {
  std::array<float, 4> state{};  // place, speed, angle, its speed
  int64_t moves = 0;
  void reset(core::RandomStream& random) {
    for (float& number : state) number = random.uniform(-0.05F, 0.05F);
    moves = 0;
  }
  // Returns whether the game continues.
  bool push(bool right) {
    constexpr float kGravity = 9.8F, kCart = 1.0F, kPole = 0.1F, kHalfLength = 0.5F, kForce = 10, kSeconds = 0.02F;
    auto& [place, speed, angle, turn] = state;
    const float sine = std::sin(angle), cosine = std::cos(angle);
    const float pull = ((right ? kForce : -kForce) + kPole * kHalfLength * turn * turn * sine) / (kCart + kPole);
    const float turn_rate =
        (kGravity * sine - cosine * pull) / (kHalfLength * (4.0F / 3.0F - kPole * cosine * cosine / (kCart + kPole)));
    const float acceleration = pull - kPole * kHalfLength * turn_rate * cosine / (kCart + kPole);
    place += kSeconds * speed, speed += kSeconds * acceleration;
    angle += kSeconds * turn, turn += kSeconds * turn_rate;
    return ++moves < kLongest && std::abs(place) < 2.4F && std::abs(angle) < 0.2095F;
  }
};

struct Games {
  std::array<CartPole, kGames> all;
  std::deque<int64_t> lengths;  // of the last 100
  double mean() const { return std::accumulate(lengths.begin(), lengths.end(), 0.0) / 100.0; }
};

nn::Graph policy() {
  nn::GraphBuilder b({.image = {4, 1, 1}, .name = "policy"});
  const auto x = b.linear("fc", b.flatten("state", b.input()), {.out_features = 128});
  const auto y = b.activation("tanh", x, nn::Activation::Function::kTanh);
  return b.build(b.linear("head", y, {.out_features = 3}));  // two actions, and how long the game will last
}

train::TowerStep play(train::TowerContext& context, Games& games) {
  nn::Executor& net = context.graph(policy());
  core::RandomStream random(1, "first states");
  for (CartPole& game : games.all) game.reset(random);
  return [&net, &games](const train::TowerInput& in) -> train::TowerOutput {
    core::RandomStream luck = in.stream("play");
    const at::Tensor states = core::new_tensor({kMoves + 1, kGames, 4, 1, 1}),
                     alive_after = core::new_tensor({kMoves, kGames});
    const at::Tensor actions = core::new_tensor({kMoves, kGames, 1}, at::kLong),
                     better = core::new_tensor({kMoves, kGames});
    for (int64_t t = 0; t <= kMoves; ++t) {
      for (size_t g = 0; g < kGames; ++g)
        std::ranges::copy(games.all[g].state, states[t].mutable_data_ptr<float>() + 4 * g);
      if (t == kMoves) break;
      const at::NoGradGuard only_playing;
      const at::Tensor chances = net.forward(states[t], in.random).narrow(1, 0, 2).softmax(1);
      for (int64_t g = 0; g < kGames; ++g) {
        CartPole& game = games.all[static_cast<size_t>(g)];
        const bool right = luck.uniform() > chances[g][0].item<float>(), alive = game.push(right);
        actions[t][g] = static_cast<int64_t>(right);
        alive_after[t][g] = alive ? 1.0F : 0.0F;
        if (alive) continue;
        games.lengths.push_back(game.moves);
        if (games.lengths.size() > 100) games.lengths.pop_front();
        game.reset(luck);
      }
    }
    const at::Tensor output = net.forward(states.flatten(0, 1), in.random).view({kMoves + 1, kGames, 3});
    const at::Tensor values = output.select(2, 2), expected = values.detach();
    // How much better each move was than expected, its consequences included.
    at::Tensor later = core::new_tensor({kGames});
    for (int64_t t = kMoves - 1; t >= 0; --t) {
      const at::Tensor surprise = alive_after[t].mul(expected[t + 1]).mul(kDiscount).add(0.01).sub(expected[t]);
      better[t] = later = surprise.add(alive_after[t].mul(later), kDiscount * kLambda);
    }
    const at::Tensor log_chances = output.narrow(0, 0, kMoves).narrow(2, 0, 2).log_softmax(2);
    const at::Tensor scaled = better.sub(better.mean()).div(better.std().add(1e-6));
    const at::Tensor actor = log_chances.gather(2, actions).squeeze(2).mul(scaled).mean().neg();
    const at::Tensor critic = values.sub(expected).narrow(0, 0, kMoves).sub(better).square().mean();
    const at::Tensor entropy = log_chances.exp().mul(log_chances).sum(2).mean().neg();
    return {.losses = {{"cost", actor.add(critic).sub(entropy, 0.01)}, {"critic", critic}}};
  };
}

}  // namespace

int main() {
  Games games;
  train::TowerTrainer trainer(
      {.tower = [&](train::TowerContext& context) { return play(context, games); },
       .seed = 1,
       .make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("torch_nadam")(set, {}); },
       .learning_rate = optim::constant(0.003)},
      std::make_shared<data::FunctionSource>([](const data::BatchPlace&) { return core::NamedTensors(); },
                                             data::FunctionSourceOptions{}));
  for (int part = 0; part < 40 && games.mean() < 195; ++part) {
    trainer.train({.steps_per_epoch = 25});
    fmt::print("step {}: {:.0f} moves\n", trainer.global_step(), games.mean());
  }
  fmt::print("{}\n", games.mean() >= 195 ? "solved" : "not solved");
}
