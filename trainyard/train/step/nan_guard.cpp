#include "trainyard/train/step/nan_guard.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/step/finite.h"

namespace trainyard::train {

OnNan on_nan_from_name(std::string_view name) {
  constexpr std::array kNames{std::pair{"stop", OnNan::kStop}, std::pair{"skip", OnNan::kSkip},
                              std::pair{"ignore", OnNan::kIgnore}};
  const auto* const found = std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == name; });
  if (found != kNames.end()) return found->second;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "no such way to treat NaN", .expected = "stop, skip or ignore", .actual = std::string(name)});
}

NanGuard::NanGuard(const Options& options) : options_(options), replicas_(static_cast<size_t>(options.replicas)) {}

void NanGuard::begin_step(int replica, const nn::ParameterSet& parameters) {
  Replica& own = at(replica);
  own.loss = 0;
  own.gradients = false;
  if (options_.on_nan == OnNan::kIgnore) return;
  size_t end = 0;
  for (size_t b = 0; b < parameters.buffer_count(); ++b) {
    const at::Tensor buffer = parameters.buffer(static_cast<int>(b));
    const size_t begin = std::exchange(end, end + buffer.nbytes());
    if (own.statistics.size() < end) own.statistics.resize(end);
    if (end > begin) std::memcpy(own.statistics.data() + begin, buffer.const_data_ptr(), end - begin);
  }
}

void NanGuard::restore_statistics(int replica, nn::ParameterSet& parameters) const {
  const std::vector<std::byte>& statistics = at(replica).statistics;
  size_t end = 0;
  for (size_t b = 0; b < parameters.buffer_count(); ++b) {
    const at::Tensor buffer = parameters.buffer(static_cast<int>(b));
    const size_t begin = std::exchange(end, end + buffer.nbytes());
    if (end > begin && end <= statistics.size()) {
      std::memcpy(buffer.mutable_data_ptr(), statistics.data() + begin, end - begin);
    }
  }
  parameters.values_changed();
}

void NanGuard::look_at_loss(int replica, const at::Tensor& loss, nn::ParameterSet& parameters) {
  if (!watching_) return;
  at(replica).loss = loss.item<double>();
  if (marks_gradients(loss) && parameters.total() > 0) {
    parameters.gradients()[0] = std::numeric_limits<double>::quiet_NaN();
  }
}

bool NanGuard::marks_gradients(const at::Tensor& loss) const {
  const bool tells_others = options_.exchange && options_.on_nan != OnNan::kIgnore;
  return watching_ && tells_others && !std::isfinite(loss.item<double>());
}

void NanGuard::look_at_gradients(int replica, const nn::ParameterSet& parameters, optim::StepState& state,
                                 std::optional<bool> finite) {
  if (!watching_) return;
  if (!options_.scaler_owns_gradients) {
    at(replica).gradients = finite ? !*finite : !optim::all_finite(parameters.gradients());
  }
  if (found(replica) && options_.on_nan != OnNan::kIgnore) {
    state.tensor().data_ptr<double>()[optim::StepState::kFoundInf] = 1.0;
  }
}

std::optional<std::string> NanGuard::first_gradient(const nn::ParameterSet& parameters) const {
  const bool marked =
      options_.exchange && options_.on_nan != OnNan::kIgnore &&
      std::any_of(replicas_.begin(), replicas_.end(), [](const Replica& r) { return !std::isfinite(r.loss); });
  return first_non_finite_gradient(parameters, marked);
}

bool NanGuard::found(int replica) const {
  return loss_found(replica) || at(replica).gradients;
}

bool NanGuard::found() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const Replica& r) { return !std::isfinite(r.loss) || r.gradients; });
}

std::optional<std::string> first_non_finite_gradient(const nn::ParameterSet& parameters, bool marked) {
  for (const nn::Segment& segment : parameters.segments()) {
    const int64_t left_out = marked && segment.offset == 0 ? 1 : 0;
    const at::Tensor gradient = parameters.gradients().narrow(0, segment.offset + left_out, segment.count - left_out);
    if (!optim::all_finite(gradient)) {
      return fmt::format("{} ({})", segment.spec.name, optim::non_finite_kind(gradient));
    }
  }
  return std::nullopt;
}

std::optional<std::string> first_non_finite_value(const nn::ParameterSet& parameters) {
  // In the order of declaration, which is that of forward.
  const std::vector<nn::Segment>& segments = parameters.segments();
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    const at::Tensor value = parameters.values().narrow(0, segment->offset, segment->count);
    if (!optim::all_finite(value)) {
      return fmt::format("{} ({})", segment->spec.name, optim::non_finite_kind(value));
    }
  }
  for (size_t b = 0; b < parameters.buffer_count(); ++b) {
    const at::Tensor buffer = parameters.buffer(static_cast<int>(b));
    if (!optim::all_finite(buffer)) {
      return fmt::format("{} ({})", parameters.buffer_spec(static_cast<int>(b)).name, optim::non_finite_kind(buffer));
    }
  }
  return std::nullopt;
}

}  // namespace trainyard::train
