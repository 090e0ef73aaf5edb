// What TowerTrainerOptions::validate() says of each number and each combination that cannot be used, as a whole.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::tower_trainer_options_test {
namespace {

using core::ErrorCode;
using Change = std::function<void(TowerTrainerOptions&)>;

std::string refusal(const Change& change, ErrorCode code = ErrorCode::kInvalidArgument) {
  TowerTrainerOptions options = tiny_options();
  change(options);
  return core::message_of([&] { options.validate(); }, code);
}

std::string unsupported(const Change& change) {
  return refusal(change, ErrorCode::kUnsupported);
}

void use_accelerator(TowerTrainerOptions& options) {
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
}

CostOptions cost(const std::string& loss, int64_t every = 1) {
  const TowerTrainerOptions usual = tiny_options();
  return {.loss = loss, .make_optimizer = usual.make_optimizer, .learning_rate = usual.learning_rate, .every = every};
}

void use_costs(TowerTrainerOptions& options, const std::vector<CostOptions>& costs) {
  options.costs = costs;
  options.make_optimizer = nullptr;
  options.learning_rate = nullptr;
}

TowerStep no_step(TowerContext&) {
  return {};
}

TEST(TowerTrainerOptions, NameWhatIsMissingOrTooMuch) {
  EXPECT_EQ(refusal([](auto&) {}), "no error");
  EXPECT_EQ(refusal([](auto& o) { o.graph = {}; }),
            "the model of a trainer cannot be used: expected a graph with nodes, or a tower, got neither");
  EXPECT_EQ(refusal([](auto& o) { o.tower = no_step; }),
            "a graph or a loss beside a tower cannot be used: expected one of them, got a tower and a graph");
  EXPECT_EQ(refusal([](auto& o) {
              o.graph = {};
              o.tower = no_step;
              o.loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output; });
            }),
            "a graph or a loss beside a tower cannot be used: expected one of them, got a tower and a loss");
  EXPECT_EQ(refusal([](auto& o) {
              o.graph = {};
              o.tower = no_step;
            }),
            "no error");
  EXPECT_EQ(refusal([](auto& o) { o.learning_rate = nullptr; }),
            "the learning rate cannot be used: expected a function of the step, got none");
  EXPECT_EQ(refusal([](auto& o) { o.make_optimizer = nullptr; }),
            "the optimizer cannot be used: expected a way to make one, got none");
}

TEST(TowerTrainerOptions, NameNumbersThatCannotBe) {
  EXPECT_EQ(refusal([](auto& o) { o.devices.replicas = 0; }),
            "the number of replicas cannot be used: expected at least 1, got 0");
  EXPECT_EQ(refusal([](auto& o) { o.micro_steps = 0; }),
            "the number of micro-steps cannot be used: expected at least 1, got 0");
  EXPECT_EQ(refusal([](auto& o) { o.threads.placement.resize(2); }),
            "the number of thread placements cannot be used: expected none, or one a replica, got 2");
  EXPECT_EQ(refusal([](auto& o) { o.threads.placement.resize(1); }), "no error");
  EXPECT_EQ(refusal([](auto& o) { o.threads.intra_op_threads = -1; }),
            "the number of intra-op threads cannot be used: expected at least 0, got -1");
  EXPECT_EQ(refusal([](auto& o) { o.threads.intra_op_threads = 0; }), "no error");
  EXPECT_EQ(refusal([](auto& o) {
              o.devices.replicas = 2;
              use_accelerator(o);
            }),
            "the number of accelerators cannot be used: expected none, or one a replica, got 1");
  EXPECT_EQ(refusal([](auto& o) { o.devices.capture_steps = true; }),
            "capturing steps cannot be used: expected an accelerator, got none");
  EXPECT_EQ(refusal([](auto& o) {
              o.devices.capture_steps = true;
              use_accelerator(o);
            }),
            "no error");
}

TEST(TowerTrainerOptions, NameUpdatesThatDoNotFitTheRest) {
  const auto asynchronous = [](const Change& change, int replicas = 2) {
    return refusal([&](auto& o) {
      o.devices.replicas = replicas;
      o.exchange.variable_update = "asynchronous";
      change(o);
    });
  };
  const auto automatic = [](auto& o) { o.devices.loss_scale = optim::LossScalerOptions{.automatic = true}; };
  EXPECT_EQ(asynchronous([](auto&) {}), "no error");
  EXPECT_EQ(asynchronous(automatic),
            "an automatic loss scale cannot be used: expected replicas that exchange gradients in each step, got "
            "asynchronous");
  EXPECT_EQ(asynchronous(automatic, 1), "no error");
  EXPECT_EQ(asynchronous([](auto& o) { o.devices.loss_scale = optim::LossScalerOptions{.scale = 8}; }), "no error");
  EXPECT_EQ(refusal([](auto& o) { o.devices.variables_as = at::kFloat; }),
            "the type of variables cannot be used: expected Half or BFloat16, got Float");
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    EXPECT_EQ(refusal([type](auto& o) { o.devices.variables_as = type; }), "no error");
    EXPECT_EQ(asynchronous([type](auto& o) { o.devices.variables_as = type; }),
              "variables of 16 bits cannot be used: expected replicas that exchange gradients in each step, got "
              "asynchronous");
  }
  EXPECT_EQ(unsupported([](auto& o) {
              o.exchange.variable_update = "asynchronous";
              o.sharpness_aware.emplace();
            }),
            "sharpness-aware minimization is not built for this training yet: --sam_rho: expected replicas that "
            "exchange gradients in each step, got asynchronous");
  EXPECT_EQ(refusal([](auto& o) {
              o.exchange.sync_batch_norm = true;
              o.exchange.variable_update = "independent";
            }),
            "sync_batch_norm cannot be used: expected replicas that exchange gradients in each step, got independent");
  EXPECT_EQ(unsupported([](auto& o) {
              o.exchange.variable_update = "asynchronous";
              o.hooks.update_pre = [](int, nn::ParameterSet&) {};
            }),
            "update_pre is not called where a server applies gradients: expected replicas that exchange gradients, got "
            "asynchronous");
}

TEST(TowerTrainerOptions, NameWhatAcceleratorsDoNotDo) {
  const auto on_accelerator = [](const Change& change) {
    return unsupported([&](auto& o) {
      use_accelerator(o);
      change(o);
    });
  };
  EXPECT_EQ(on_accelerator([](auto&) {}), "no error");
  EXPECT_EQ(on_accelerator([](auto& o) { o.exchange.sync_batch_norm = true; }),
            "--sync_batch_norm does not work on a GPU yet: expected the CPU, got 1 accelerators");
  EXPECT_EQ(on_accelerator([](auto& o) { o.sharpness_aware.emplace(); }),
            "sharpness-aware minimization is not built for this training yet: --sam_rho: expected the CPU, got 1 "
            "accelerators");
  EXPECT_EQ(on_accelerator([](auto& o) { o.on_nan = OnNan::kSkip; }),
            "steps that are not finite are not skipped on accelerators yet: --on_nan: expected stop or ignore, got "
            "skip");
  EXPECT_EQ(on_accelerator([](auto& o) { o.on_nan = OnNan::kIgnore; }), "no error");
  const auto averages = [](bool automatic) {
    return [automatic](TowerTrainerOptions& o) {
      o.average.emplace();
      o.devices.loss_scale = optim::LossScalerOptions{.automatic = automatic};
    };
  };
  EXPECT_EQ(on_accelerator(averages(true)),
            "weights are not averaged where an automatic loss scale skips steps on accelerators: expected a fixed loss "
            "scale, or none");
  EXPECT_EQ(on_accelerator(averages(false)), "no error");
  EXPECT_EQ(unsupported(averages(true)), "no error") << "on the CPU";
}

TEST(TowerTrainerOptions, NameCostsThatCannotTakeTurns) {
  EXPECT_EQ(refusal([](auto& o) { use_costs(o, {cost("a"), cost("b", 2)}); }), "no error");
  for (const bool optimizer : {true, false}) {
    EXPECT_EQ(refusal([optimizer](auto& o) {
                o.costs = {cost("a")};
                if (optimizer) o.learning_rate = nullptr;
                if (!optimizer) o.make_optimizer = nullptr;
              }),
              "an optimizer or a learning rate beside several costs cannot be used: expected those of the costs alone, "
              "got both");
  }
  EXPECT_EQ(refusal([](auto& o) {
              use_costs(o, {cost("a", 2), cost("b", 3)});
            }),
            "the periods of the costs cannot be used: expected one of 1 among them, got longer ones");
  EXPECT_EQ(refusal([](auto& o) {
              use_costs(o, {cost("a"), cost("b", 0)});
            }),
            "the period of a cost cannot be used: expected at least 1 step, got 0");
  EXPECT_EQ(refusal([](auto& o) {
              use_costs(o, {cost("a"), cost("a")});
            }),
            "the loss of a cost cannot be used: expected a name that no other cost has, got 'a'");
  EXPECT_EQ(refusal([](auto& o) { use_costs(o, {cost("")}); }),
            "the loss of a cost cannot be used: expected a name that no other cost has, got ''");
  EXPECT_EQ(unsupported([](auto& o) {
              use_costs(o, {cost("a"), cost("b")});
              o.sharpness_aware.emplace();
            }),
            "sharpness-aware minimization is not built for this training yet: --sam_rho: expected one cost, got 2 "
            "costs");
}

TEST(TowerTrainerOptions, NameWhatCompressedGradientsAreNotBuiltFor) {
  const auto compressed = [](const Change& change) {
    return unsupported([&](auto& o) {
      o.exchange.compression.method = parallel::CompressionMethod::kPowerSgd;
      change(o);
    });
  };
  const std::string refused =
      "compressed gradients are not built for this training yet: --gradient_compression: expected a training on the "
      "CPU with one backward a step, got ";
  EXPECT_EQ(compressed([](auto&) {}), "no error");
  EXPECT_EQ(compressed(use_accelerator), refused + "accelerators");
  EXPECT_EQ(compressed([](auto& o) { o.sharpness_aware.emplace(); }), refused + "sharpness-aware minimization");
  EXPECT_EQ(compressed([](auto& o) { use_costs(o, {cost("a"), cost("b")}); }), refused + "several costs");
  EXPECT_EQ(compressed([](auto& o) { use_costs(o, {cost("a")}); }), "no error");
}

TEST(TowerTrainerOptions, NameWhatStagedVariablesAreNotBuiltFor) {
  const auto staged = [](const Change& change) {
    return unsupported([&](auto& o) {
      o.exchange.variable_update = "staged_parameter_server";
      change(o);
    });
  };
  const auto refused = [](const std::string& what) {
    return "staged variables are not built for this training yet: expected a training without " + what + ", got " +
           what + "; use parameter_server: leave out --staged_vars";
  };
  EXPECT_EQ(staged([](auto&) {}), "no error");
  EXPECT_EQ(staged(use_accelerator), refused("accelerators"));
  EXPECT_EQ(staged([](auto& o) { o.sharpness_aware.emplace(); }), refused("sharpness-aware minimization"));
  EXPECT_EQ(staged([](auto& o) { o.devices.variables_as = at::kHalf; }), refused("variables of 16 bits"));
  EXPECT_EQ(staged([](auto& o) { o.average.emplace(); }), refused("averaged weights"));
  EXPECT_EQ(staged([](auto& o) { use_costs(o, {cost("a"), cost("b")}); }), refused("several costs"));
  EXPECT_EQ(staged([](auto& o) { use_costs(o, {cost("a")}); }), "no error");
  EXPECT_EQ(staged([](auto& o) { o.devices.loss_scale = optim::LossScalerOptions{.automatic = true}; }), "no error");
}

}  // namespace
}  // namespace trainyard::train::tower_trainer_options_test
