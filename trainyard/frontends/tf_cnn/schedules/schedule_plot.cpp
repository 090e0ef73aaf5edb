#include "trainyard/frontends/tf_cnn/schedules/schedule_plot.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/train/monitors/curve_svg.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kMostReadings = 1'000'000;
constexpr int64_t kBuckets = 400;  // of the picture, about one for each of its points in width

struct Reading {
  int64_t step = 0;
  double value = 0;
};

// What of the schedule is shown: its extremes, and a line that passes through those of each part of it.
struct Readings {
  Reading least, most;
  std::vector<Reading> line;
  std::vector<double> values;  // at all steps that were read
};

// Returns the steps to read, ascending: all, or every so many and those around boundaries.
std::vector<int64_t> steps_to_read(const RunSchedule& schedule, const ScheduleFacts& facts) {
  const int64_t stride = (facts.steps + kMostReadings - 1) / kMostReadings;
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < facts.steps; step += stride) steps.push_back(step);
  if (stride == 1) return steps;
  const auto add = [&](int64_t step) {
    if (step >= 0 && step < facts.steps) steps.push_back(step);
  };
  for (const int64_t boundary : schedule.boundaries) {
    for (const int64_t step : {boundary - 1, boundary}) add(step);
  }
  for (const int64_t step : {schedule.warmup_steps - 1, schedule.warmup_steps, facts.steps - 1}) add(step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

Readings read(const optim::Schedule& schedule, const std::vector<int64_t>& steps) {
  std::vector<Reading> all;
  all.reserve(steps.size());
  for (const int64_t step : steps) all.push_back({step, schedule(step)});
  const auto by_value = [](const Reading& a, const Reading& b) { return a.value < b.value; };
  Readings readings;
  readings.values.reserve(all.size());
  for (const Reading& each : all) readings.values.push_back(each.value);
  readings.least = *std::min_element(all.begin(), all.end(), by_value);
  readings.most =
      *std::max_element(all.begin(), all.end(), [](const Reading& a, const Reading& b) { return a.value < b.value; });
  const auto count = static_cast<int64_t>(all.size());
  const int64_t buckets = std::min(count, kBuckets);
  for (int64_t b = 0; b < buckets; ++b) {
    const auto begin = all.begin() + b * count / buckets, end = all.begin() + (b + 1) * count / buckets;
    auto [low, high] = std::minmax_element(begin, end, by_value);
    if (low > high) std::swap(low, high);
    // In the order of their steps; the first and the last keep jumps between buckets upright.
    auto last = begin;
    readings.line.push_back(*begin);
    for (const auto point : {low, high, end - 1}) {
      if (point > last) readings.line.push_back(*(last = point));
    }
  }
  return readings;
}

train::CurvePanel panel_of(const std::string& title, const Readings& readings, const ScheduleFacts& facts) {
  train::CurvePanel panel{.title = title, .series = {{"", {}, {}}}, .x_axes = {{"step", 1}}};
  panel.x_axes.push_back({"epoch", facts.steps_per_epoch()});
  for (const Reading& reading : readings.line) {
    panel.series[0].x.push_back(static_cast<double>(reading.step));
    panel.series[0].y.push_back(reading.value);
  }
  return panel;
}

class Words {
 public:
  Words(const RunSchedule& schedule, const ScheduleFacts& facts) : schedule_(schedule), facts_(facts) {}

  std::string text(const Readings& rates, const Readings* momenta) const {
    std::string lines = fmt::format("Learning rate: {}, {} steps ({:.2f} epochs)\n", schedule_.name, facts_.steps,
                                    epochs(facts_.steps));
    if (schedule_.warmup_steps > 0) {
      lines += fmt::format("Warm-up: the first {} steps ({:.2f} epochs)\n", schedule_.warmup_steps,
                           epochs(schedule_.warmup_steps));
    } else {
      lines += "Warm-up: none\n";
    }
    std::string boundaries;
    for (const int64_t step : schedule_.boundaries) {
      boundaries += fmt::format("{}{}", boundaries.empty() ? "" : ", ", place(step));
    }
    lines += fmt::format("Boundaries: {}\n", boundaries.empty() ? "none" : boundaries);
    lines += extremes("Minimum", rates.least) + "; " + extremes("maximum", rates.most) + "\n";
    if (momenta != nullptr) {
      lines += extremes("Momentum: minimum", momenta->least) + "; " + extremes("maximum", momenta->most) + "\n";
    }
    return lines;
  }

 private:
  double epochs(int64_t steps) const { return static_cast<double>(steps) / facts_.steps_per_epoch(); }
  std::string place(int64_t step) const { return fmt::format("step {} (epoch {:.2f})", step, epochs(step)); }
  std::string extremes(const char* what, const Reading& reading) const {
    return fmt::format("{} {:.6g} at {}", what, reading.value, place(reading.step));
  }
  const RunSchedule& schedule_;
  const ScheduleFacts& facts_;
};

// A column for each of `quantities`, behind those of step and epoch.
std::string csv_of(const std::vector<int64_t>& steps, const ScheduleFacts& facts,
                   const std::vector<std::pair<const char*, const Readings*>>& quantities) {
  std::string text = "step,epoch";
  for (const auto& [name, readings] : quantities) text += fmt::format(",{}", name);
  for (size_t i = 0; i < steps.size(); ++i) {
    text += fmt::format("\n{},{}", steps[i], static_cast<double>(steps[i]) / facts.steps_per_epoch());
    for (const auto& [name, readings] : quantities) text += fmt::format(",{}", readings->values[i]);
  }
  return text + "\n";
}

}  // namespace

SchedulePlotPaths schedule_plot_paths(const std::string& path) {
  const auto with_extension = [&](const char* extension) {
    const bool replaces = path.ends_with(".svg") || path.ends_with(".csv");
    return path.substr(0, path.size() - (replaces ? 4 : 0)) + extension;
  };
  return {.picture = path.ends_with(".csv") ? with_extension(".svg") : path, .numbers = with_extension(".csv")};
}

SchedulePlot plot_schedule(const std::string& title, const RunSchedule& schedule, const ScheduleFacts& facts) {
  const std::vector<int64_t> steps = steps_to_read(schedule, facts);
  const Readings rates = read(schedule.learning_rate, steps);
  std::vector<train::CurvePanel> panels = {panel_of("learning rate", rates, facts)};
  const Words words(schedule, facts);
  if (!schedule.momentum) {
    return {.svg = train::curve_svg(title, panels),
            .lines = words.text(rates, nullptr),
            .csv = csv_of(steps, facts, {{"learning_rate", &rates}})};
  }
  const Readings momenta = read(schedule.momentum, steps);
  panels.push_back(panel_of("momentum", momenta, facts));
  return {.svg = train::curve_svg(title, panels),
          .lines = words.text(rates, &momenta),
          .csv = csv_of(steps, facts, {{"learning_rate", &rates}, {"momentum", &momenta}})};
}

}  // namespace trainyard::frontends
