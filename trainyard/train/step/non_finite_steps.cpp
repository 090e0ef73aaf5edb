#include "trainyard/train/step/non_finite_steps.h"

#include <cmath>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/optim/step/finite.h"
#include "trainyard/train/loop/error_context.h"
#include "trainyard/train/step/foreign_random.h"
#include "trainyard/train/step/non_finite_search.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int64_t kMostSkips = 100;

// Steps between two checks on an accelerator, each of which waits for it. Only stop and ignore are implemented there.
constexpr int64_t kStepsBetweenDeviceLooks = 100;

constexpr const char* kRemedy =
    "look at the data, lower the learning rate, lengthen its warm-up, or clip gradients (--gradient_clip)";

// Returns "image 3 of its batch holds NaN"; empty when all of the batches is finite.
std::string bad_input(const std::vector<data::Batch>& micro_steps) {
  for (const data::Batch& batch : micro_steps) {
    for (const auto& [name, tensor] : batch.tensors) {
      if (!tensor.is_floating_point() || optim::all_finite(tensor)) continue;
      if (name != "images") return fmt::format("; \"{}\" of the batch holds {}", name, optim::non_finite_kind(tensor));
      for (int64_t i = 0; i < tensor.size(0); ++i) {
        if (optim::all_finite(tensor[i])) continue;
        return fmt::format("; image {} of the batch holds {}", i, optim::non_finite_kind(tensor[i]));
      }
    }
  }
  return "";
}

}  // namespace

bool NonFiniteSteps::check(int64_t step) {
  const bool finite = !nan_guard_.found();
  if (!finite) treat(step);
  loss_scales_.check(step);
  return finite;
}

void NonFiniteSteps::treat(int64_t step) {
  const TowerTrainerOptions& options = replicas_.options();
  const std::string where = fmt::format("global step {}", step + 1);
  if (options.on_nan == OnNan::kIgnore) return warn_once(where, first_non_finite_result());
  for (int r = 0; r < replicas_.size(); ++r) {
    // Those that exchange gradients have skipped the step together.
    if (nan_guard_.found(r) || exchange_gradients(options)) {
      nan_guard_.restore_statistics(r, replicas_.update().parameters(r));
    }
  }
  if (options.on_nan == OnNan::kStop) {
    throw Error(ErrorCode::kCorruptData, {.problem = describe(),
                                          .where = where,
                                          .remedy = fmt::format("{}; --on_nan=skip leaves such steps out", kRemedy)});
  }
  ++skipped_steps_;
  if (++skipped_in_a_row_ >= kMostSkips) {
    std::optional<std::string> gradient;
    for (int r = 0; r < replicas_.size() && !gradient; ++r) {
      gradient = nan_guard_.first_gradient(replicas_.update().parameters(r));
    }
    throw Error(ErrorCode::kCorruptData,
                {.problem = fmt::format(
                     "{} steps in a row were skipped; first gradient that is not finite: {}; in the last of them {}",
                     skipped_in_a_row_, gradient.value_or("none"), describe()),
                 .where = where,
                 .remedy = kRemedy});
  }
  if (skipped_steps_ == 1) {
    core::log::warning("{} is skipped: {}; from now on every hundredth skipped step is said", where, describe());
  } else if (skipped_steps_ % 100 == 0) {
    core::log::warning("{} is skipped, the {}th of this run: {}", where, skipped_steps_, first_non_finite_result());
  }
}

// Reads the loss alone: a gradient that is not finite makes the next losses so.
void NonFiniteSteps::check_devices(int64_t step) {
  if (step % kStepsBetweenDeviceLooks != 0) return;
  loss_scales_.check(step);
  if (!nan_guard_.watching()) return;
  const double loss = replicas_.base_loss();
  if (std::isfinite(loss)) return;
  const std::string what = fmt::format("the loss is {}", std::isnan(loss) ? "NaN" : "inf");
  const std::string where = fmt::format("global step {} or up to {} before", step + 1, kStepsBetweenDeviceLooks);
  if (replicas_.options().on_nan == OnNan::kIgnore) return warn_once(where, what);
  throw Error(ErrorCode::kCorruptData, {.problem = what, .where = where, .remedy = kRemedy});
}

void NonFiniteSteps::warn_once(const std::string& where, const std::string& what) {
  nan_guard_.stop_watching();
  core::log::warning("{}: {}; the run goes on, and says so only once (--on_nan=stop would end it)", where, what);
}

std::string NonFiniteSteps::first_non_finite_result() const {
  const auto of_replica = [this](int r) { return replicas_.size() == 1 ? "" : fmt::format(" of replica {}", r); };
  for (int r = 0; r < replicas_.size(); ++r) {
    if (!nan_guard_.loss_found(r)) continue;
    return fmt::format("the loss{} is {}", of_replica(r), std::isnan(nan_guard_.loss(r)) ? "NaN" : "inf");
  }
  for (int r = 0; r < replicas_.size(); ++r) {
    if (!nan_guard_.found(r)) continue;
    const std::optional<std::string> gradient = nan_guard_.first_gradient(replicas_.update().parameters(r));
    if (gradient) {
      // Replicas that exchange gradients have the same.
      return fmt::format("the gradient of {}{} is not finite", *gradient,
                         exchange_gradients(replicas_.options()) ? "" : of_replica(r));
    }
  }
  return "a gradient is not finite";
}

std::string NonFiniteSteps::describe() {
  std::string text = first_non_finite_result();
  // The replicas whose own loss is bad first: theirs is the cause.
  std::vector<int> order;
  for (const bool loss : {true, false}) {
    for (int r = 0; r < replicas_.size(); ++r) {
      if (nan_guard_.loss_found(r) == loss) order.push_back(r);
    }
  }
  std::optional<std::string> origin;
  bool all_ended = true;
  for (const int r : order) {
    origin = find_origin(r, all_ended);
    if (!origin) continue;
    text += fmt::format("; it began with {}{}", *origin, replicas_.size() > 1 ? fmt::format(" of replica {}", r) : "");
    break;
  }
  if (!origin && all_ended) text += "; run again, the step's outputs and gradients are finite before they are added up";
  if (const auto value = first_non_finite_value(replicas_.update().parameters(order.front()))) {
    text += fmt::format("; {} was not finite before the step", *value);
  }
  for (const int r : order) {
    const std::string input = bad_input(replicas_[r].batches);
    text += input;
    if (!input.empty()) break;
  }
  return text;
}

std::optional<std::string> NonFiniteSteps::find_origin(int replica, bool& ended) {
  std::optional<std::string> origin;
  replicas_.run([&](int own) {
    if (own != replica) return;
    // The step's own error is what matters; one that is thrown here must not end the other replicas.
    try {
      origin = run_again(replica);
    } catch (...) {
      ended = false;
      core::log::warning("the step that was not finite could not be run again: {}",
                         as_error(std::current_exception()).what());
    }
  });
  return origin;
}

std::optional<std::string> NonFiniteSteps::run_again(int r) {
  Replica& replica = replicas_[r];
  nn::ParameterSet& parameters = replicas_.update().parameters(r);
  const at::Tensor& random_before = pass_.random_before_step();
  const at::Tensor gradients = parameters.gradients().clone(),
                   random_now = random_before.defined() ? aten_random_state() : at::Tensor();
  const ReplicaView view = replica.view;
  StepRecorder* const recorder = replicas_.recorder();
  replicas_.record(nullptr);
  std::vector<std::unique_ptr<NonFiniteSearch>> searches;
  const auto found = [&]() -> std::optional<std::string> {
    for (const auto& search : searches) {
      if (search->found()) return search->found();
    }
    return std::nullopt;
  };
  const auto put_back = [&] {
    for (const TowerContext::Graph& graph : replica.tower->graphs()) graph.executor->set_observer(nullptr);
    replicas_.record(recorder);
    replica.searching = false;
    if (replica.sync_batch_norm != nullptr) replica.sync_batch_norm->set_paused(false);
    replica.view = view;
    parameters.gradients().copy_(gradients);
    nan_guard_.restore_statistics(r, parameters);
    if (random_now.defined()) set_aten_random_state(random_now);
  };
  try {
    replica.searching = true;
    parameters.gradients().zero_();
    if (replica.sync_batch_norm != nullptr) replica.sync_batch_norm->set_paused(true);
    if (random_now.defined()) set_aten_random_state(random_before);
    for (const TowerContext::Graph& graph : replica.tower->graphs()) {
      searches.push_back(std::make_unique<NonFiniteSearch>(graph.executor->graph(), parameters));
      graph.executor->set_observer(searches.back().get());
    }
    for (int m = 0; m < static_cast<int>(replica.batches.size()) && !found(); ++m) {
      pass_.forward_backward(r, m, replica.batches[static_cast<size_t>(m)]);
    }
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return found();
}

}  // namespace trainyard::train
