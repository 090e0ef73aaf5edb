#include "trainyard/train/monitors/monitor.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/train/monitors/encode_images.h"

namespace trainyard::train {

std::string full_name(std::string_view phase, std::string_view name) {
  return phase == "train" ? std::string(name) : fmt::format("{}/{}", phase, name);
}

void MonitorSet::write_images(const Images& images) {
  for (const auto& [name, image] : images.values) check_image(name, image);
  for (auto& monitor : monitors_) monitor->write_images(images);
}

void MonitorSet::write(const Scalars& scalars) {
  for (const auto& [name, value] : scalars.values) {
    histories_[full_name(scalars.phase, name)].emplace_back(scalars.global_step, value);
  }
  for (auto& monitor : monitors_) monitor->write(scalars);
}

const MonitorSet::History& MonitorSet::history(std::string_view name) const {
  static const History kNone;
  const auto found = histories_.find(name);
  return found == histories_.end() ? kNone : found->second;
}

std::optional<double> MonitorSet::latest(std::string_view name) const {
  const History& values = history(name);
  if (values.empty()) return std::nullopt;
  return values.back().second;
}

void MonitorSet::save(core::StateWriter& writer) const {
  for (const std::string& name : kept_) {
    const History& history = this->history(name);
    if (history.empty()) continue;
    const at::Tensor values = at::empty({static_cast<int64_t>(history.size()), 2}, at::kDouble);
    auto* number = values.mutable_data_ptr<double>();
    for (const auto& [step, value] : history) {
      *number++ = static_cast<double>(step);
      *number++ = value;
    }
    writer.tensor(name, values);
  }
}

void MonitorSet::load(const core::StateReader& reader) {
  histories_.clear();
  for (const std::string& name : reader.names()) {
    keep(name);
    const at::Tensor values = reader.tensor(name);
    if (values.dim() != 2 || values.size(1) != 2 || values.scalar_type() != at::kDouble) {
      throw core::Error(
          core::ErrorCode::kCorruptData,
          {.problem = "the history of a statistic has another form",
           .where = name,
           .expected = "[count, 2] float64",
           .actual = fmt::format("[{}] {}", fmt::join(values.sizes(), ", "), toString(values.scalar_type()))});
    }
    History& history = histories_[name];
    const auto* number = values.const_data_ptr<double>();
    for (int64_t i = 0; i < values.size(0); ++i, number += 2) {
      history.emplace_back(static_cast<int64_t>(number[0]), number[1]);
    }
  }
}

}  // namespace trainyard::train
