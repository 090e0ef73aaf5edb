#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

void TowerTrainerOptions::validate() const {
  const auto require = [](bool good, std::string_view what, std::string_view expected, const std::string& actual) {
    if (good) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = fmt::format("{} cannot be used", what), .expected = std::string(expected), .actual = actual});
  };
  require(tower || !graph.nodes.empty(), "the model of a trainer", "a graph with nodes, or a tower", "neither");
  require(!tower || (graph.nodes.empty() && !loss && other_sizes.empty()), "a graph or a loss beside a tower",
          "one of them", graph.nodes.empty() ? "a tower and a loss" : "a tower and a graph");
  require(devices.replicas >= 1, "the number of replicas", "at least 1", std::to_string(devices.replicas));
  require(devices.accelerators.empty() || static_cast<int>(devices.accelerators.size()) == devices.replicas,
          "the number of accelerators", "none, or one a replica", std::to_string(devices.accelerators.size()));
  require(!devices.accelerators.empty() || !devices.capture_steps, "capturing steps", "an accelerator", "none");
  const bool asynchronous = exchange.variable_update == "asynchronous";
  require(!devices.loss_scale || !devices.loss_scale->automatic || devices.replicas == 1 || !asynchronous,
          "an automatic loss scale", "replicas that exchange gradients in each step", exchange.variable_update);
  if (devices.loss_scale) devices.loss_scale->validate();
  require(!devices.variables_as || *devices.variables_as == at::kHalf || *devices.variables_as == at::kBFloat16,
          "the type of variables", "Half or BFloat16", devices.variables_as ? at::toString(*devices.variables_as) : "");
  require(!devices.variables_as || !asynchronous, "variables of 16 bits",
          "replicas that exchange gradients in each step", exchange.variable_update);
  require(!exchange.sync_batch_norm || (!asynchronous && exchange.variable_update != "independent"), "sync_batch_norm",
          "replicas that exchange gradients in each step", exchange.variable_update);
  if (exchange.sync_batch_norm && !devices.accelerators.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "--sync_batch_norm does not work on a GPU yet",
                                          .expected = "the CPU",
                                          .actual = fmt::format("{} accelerators", devices.accelerators.size())});
  }
  if (sharpness_aware) {
    sharpness_aware->validate();
    const auto supported = [](bool good, std::string_view expected, const std::string& actual) {
      if (good) return;
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "sharpness-aware minimization is not built for this training yet",
                   .where = "--sam_rho",
                   .expected = std::string(expected),
                   .actual = actual});
    };
    supported(devices.accelerators.empty(), "the CPU", fmt::format("{} accelerators", devices.accelerators.size()));
    supported(!asynchronous, "replicas that exchange gradients in each step", exchange.variable_update);
    supported(costs.empty(), "one cost", fmt::format("{} costs", costs.size()));
  }
  if (!exchange.compression.is_default()) {
    exchange.compression.validate();
    const char* const what = !devices.accelerators.empty() ? "accelerators"
                             : sharpness_aware             ? "sharpness-aware minimization"
                             : costs.size() > 1            ? "several costs"
                                                           : nullptr;
    if (what != nullptr) {
      throw Error(ErrorCode::kUnsupported, {.problem = "compressed gradients are not built for this training yet",
                                            .where = "--gradient_compression",
                                            .expected = "a training on the CPU with one backward a step",
                                            .actual = what});
    }
  }
  if (on_nan == OnNan::kSkip && !devices.accelerators.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "steps that are not finite are not skipped on accelerators yet",
                                          .where = "--on_nan",
                                          .expected = "stop or ignore",
                                          .actual = "skip"});
  }
  if (average) {
    average->validate();
    if (!devices.accelerators.empty() && devices.loss_scale && devices.loss_scale->automatic) {
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "weights are not averaged where an automatic loss scale skips steps on accelerators",
                   .expected = "a fixed loss scale, or none"});
    }
  }
  require(micro_steps >= 1, "the number of micro-steps", "at least 1", std::to_string(micro_steps));
  require(threads.placement.empty() || static_cast<int>(threads.placement.size()) == devices.replicas,
          "the number of thread placements", "none, or one a replica", std::to_string(threads.placement.size()));
  require(threads.intra_op_threads >= 0, "the number of intra-op threads", "at least 0",
          std::to_string(threads.intra_op_threads));
  require(costs.empty() || (!learning_rate && !make_optimizer), "an optimizer or a learning rate beside several costs",
          "those of the costs alone", "both");
  require(costs.empty() || std::any_of(costs.begin(), costs.end(), [](const CostOptions& c) { return c.every == 1; }),
          "the periods of the costs", "one of 1 among them", "longer ones");
  std::set<std::string> losses;
  for (const CostOptions& cost : all_costs()) {
    require(static_cast<bool>(cost.learning_rate), "the learning rate", "a function of the step", "none");
    require(static_cast<bool>(cost.make_optimizer), "the optimizer", "a way to make one", "none");
    require(cost.every >= 1, "the period of a cost", "at least 1 step", std::to_string(cost.every));
    require(losses.insert(cost.loss).second && (costs.empty() || !cost.loss.empty()), "the loss of a cost",
            "a name that no other cost has", fmt::format("'{}'", cost.loss));
  }
  if (devices.servers != nullptr) {
    const char* const what = sharpness_aware    ? "sharpness-aware minimization"
                             : hooks.update_pre ? "a hook on the gradients that are applied (update_pre)"
                                                : nullptr;
    if (what != nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "servers apply gradients that they complete themselves, with the loss scale and the "
                              "regularization",
                   .expected = "a training without " + std::string(what),
                   .actual = what,
                   .remedy = "use horovod or collective_all_reduce"});
    }
    const std::optional<at::ScalarType> served = devices.servers->options().cluster.variables_as;
    require(served == devices.variables_as, "the type of variables", "that of the servers (ClusterOptions)",
            devices.variables_as ? at::toString(*devices.variables_as) : "none");
  }
  if (exchange.variable_update == "staged_parameter_server") {
    // Servers answer before they know whether a worker's gradients have overflowed.
    const bool scales = devices.servers != nullptr && devices.loss_scale && devices.loss_scale->automatic;
    const char* const what = !devices.accelerators.empty() ? "accelerators"
                             : sharpness_aware             ? "sharpness-aware minimization"
                             : devices.variables_as        ? "variables of 16 bits"
                             : average                     ? "averaged weights"
                             : costs.size() > 1            ? "several costs"
                             : scales                      ? "an automatic loss scale"
                                                           : nullptr;
    if (what != nullptr) {
      throw Error(ErrorCode::kUnsupported, {.problem = "staged variables are not built for this training yet",
                                            .expected = "a training without " + std::string(what),
                                            .actual = what,
                                            .remedy = "use parameter_server: leave out --staged_vars"});
    }
  }
  if (hooks.update_pre && exchange.variable_update == "asynchronous") {
    throw Error(ErrorCode::kUnsupported, {.problem = "update_pre is not called where a server applies gradients",
                                          .expected = "replicas that exchange gradients",
                                          .actual = exchange.variable_update});
  }
}

std::vector<CostOptions> TowerTrainerOptions::all_costs() const {
  if (!costs.empty()) return costs;
  return {{.loss = "", .make_optimizer = make_optimizer, .learning_rate = learning_rate}};
}

std::string TowerTrainerOptions::hyperparameter_name(const CostOptions& cost, const std::string& name) const {
  return costs.empty() ? name : cost.loss + "/" + name;
}

}  // namespace trainyard::train
