// The base trainer assumes nothing but a loop: here it plays slot machines. No batches, no model, no gradients, but
// epochs, callbacks, and a state that can be saved and continued.
//
// Ten arms pay 1 with probabilities that the player does not know. Upper confidence bounds (UCB1: Auer, Cesa-Bianchi,
// Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002) choose which to pull.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/train/loop/trainer.h"

namespace {

using trainyard::core::RandomStream;
using trainyard::train::Callback;
using trainyard::train::StepView;
using trainyard::train::Trainer;

constexpr size_t kArms = 10;
constexpr std::array<double, kArms> kPays = {0.3, 0.5, 0.1, 0.45, 0.2, 0.55, 0.4, 0.75, 0.35, 0.6};

class BanditTrainer : public Trainer {
 public:
  // Share of pulls that paid.
  double mean_reward() const { return total(won_) / std::max(total(pulled_), 1.0); }
  size_t favourite() const { return std::max_element(pulled_.begin(), pulled_.end()) - pulled_.begin(); }

  void save(trainyard::core::StateWriter& writer) const override {
    Trainer::save(writer);
    for (size_t arm = 0; arm < kArms; ++arm) {
      writer.real("pulled/" + std::to_string(arm), pulled_[arm]);
      writer.real("won/" + std::to_string(arm), won_[arm]);
    }
  }
  void load(const trainyard::core::StateReader& reader) override {
    Trainer::load(reader);
    for (size_t arm = 0; arm < kArms; ++arm) {
      pulled_[arm] = reader.real("pulled/" + std::to_string(arm));
      won_[arm] = reader.real("won/" + std::to_string(arm));
    }
  }

 protected:
  void run_step(StepView& view) override {
    const size_t arm = most_promising(static_cast<double>(view.global_step + 1));
    // A function of the step alone: a continued run sees the same luck.
    RandomStream luck(1, "luck", {static_cast<uint64_t>(view.global_step)});
    pulled_[arm] += 1;
    won_[arm] += luck.uniform_double() < kPays[arm] ? 1 : 0;
  }

 private:
  using Counts = std::array<double, kArms>;
  static double total(const Counts& counts) {
    double sum = 0;
    for (const double count : counts) sum += count;
    return sum;
  }
  size_t most_promising(double time) const {
    size_t best = 0;
    double best_bound = -1;
    for (size_t arm = 0; arm < kArms; ++arm) {
      if (pulled_[arm] == 0) return arm;
      const double bound = won_[arm] / pulled_[arm] + std::sqrt(2 * std::log(time) / pulled_[arm]);
      if (bound > best_bound) {
        best = arm;
        best_bound = bound;
      }
    }
    return best;
  }
  Counts pulled_{}, won_{};
};

class Report : public Callback {
 public:
  std::string name() const override { return "report"; }
  void after_epoch(Trainer& trainer) override {
    const auto& bandit = dynamic_cast<BanditTrainer&>(trainer);
    fmt::print("epoch {}: {} pulls, {:.3f} won a pull, the best arm is {}\n", trainer.epoch(), trainer.global_step(),
               bandit.mean_reward(), bandit.favourite());
  }
};

}  // namespace

int main() {
  try {
    BanditTrainer trainer;
    trainer.add(std::make_shared<Report>());
    trainer.train({.steps_per_epoch = 1000, .max_epoch = 5});
    return 0;
  } catch (const trainyard::core::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return trainyard::core::exit_code(error.code());
  }
}
