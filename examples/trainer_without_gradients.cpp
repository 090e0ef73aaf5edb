// The base trainer assumes nothing but a loop: here it plays slot machines. No batches, no model, no gradients, but
// epochs, callbacks, and a state that can be saved and continued.
//
// Ten arms pay 1 with probabilities that the player does not know. Upper confidence bounds (UCB1: Auer, Cesa-Bianchi,
// Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002) choose which to pull.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/core.h>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

constexpr std::array kPays = {0.3, 0.5, 0.1, 0.45, 0.2, 0.55, 0.4, 0.75, 0.35, 0.6};

class BanditTrainer : public train::Trainer {
 public:
  std::array<double, kPays.size()> pulled{}, won{};

  void save(core::StateWriter& writer) const override {
    Trainer::save(writer);
    for (size_t arm = 0; arm < kPays.size(); ++arm) {
      writer.real("pulled/" + std::to_string(arm), pulled[arm]);
      writer.real("won/" + std::to_string(arm), won[arm]);
    }
  }
  void load(const core::StateReader& reader) override {
    Trainer::load(reader);
    for (size_t arm = 0; arm < kPays.size(); ++arm) {
      pulled[arm] = reader.real("pulled/" + std::to_string(arm));
      won[arm] = reader.real("won/" + std::to_string(arm));
    }
  }

 protected:
  void run_step(train::StepView& view) override {
    const auto bound = [&](size_t arm) {
      if (pulled[arm] == 0) return 1e9;
      return won[arm] / pulled[arm] + std::sqrt(2 * std::log(static_cast<double>(view.global_step + 1)) / pulled[arm]);
    };
    size_t arm = 0;
    for (size_t other = 1; other < kPays.size(); ++other) arm = bound(other) > bound(arm) ? other : arm;
    // A function of the step alone: a continued run sees the same luck.
    core::RandomStream luck(1, "luck", {static_cast<uint64_t>(view.global_step)});
    pulled[arm] += 1;
    won[arm] += luck.uniform_double() < kPays[arm] ? 1 : 0;
  }
};

class Report : public train::Callback {
 public:
  std::string name() const override { return "report"; }
  void after_epoch(train::Trainer& trainer) override {
    const auto& bandit = dynamic_cast<BanditTrainer&>(trainer);
    const double won = std::accumulate(bandit.won.begin(), bandit.won.end(), 0.0);
    fmt::print("epoch {}: {} pulls, {:.3f} won a pull, the best arm is {}\n", trainer.epoch(), trainer.global_step(),
               won / static_cast<double>(trainer.global_step()),
               std::max_element(bandit.pulled.begin(), bandit.pulled.end()) - bandit.pulled.begin());
  }
};

}  // namespace

int main() try {
  BanditTrainer trainer;
  trainer.add(std::make_shared<Report>());
  trainer.train({.steps_per_epoch = 1000, .max_epoch = 5});
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
