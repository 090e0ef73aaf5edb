#include "trainyard/cli/report/run_alerts.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace trainyard::cli {
namespace {

using Values = std::vector<double>;

// A value of a table, and the step that it is of.
struct ValueAtStep {
  double value = 0;
  int64_t step = 0;
};

std::vector<ValueAtStep> values_of(const MetricTable* table, const std::string& name) {
  std::vector<ValueAtStep> found;
  const Values* values = table == nullptr ? nullptr : table->find(name);
  for (size_t i = 0; values != nullptr && i < values->size(); ++i) {
    if (std::isfinite((*values)[i])) found.push_back({(*values)[i], table->step[i]});
  }
  return found;
}

double median_between(const std::vector<ValueAtStep>& values, size_t begin, size_t end) {
  Values part;
  for (size_t i = begin; i < end; ++i) part.push_back(values[i].value);
  const auto middle = part.begin() + static_cast<std::ptrdiff_t>(part.size() / 2);
  std::nth_element(part.begin(), middle, part.end());
  return *middle;
}

class AlertFinder {
 public:
  AlertFinder(const ReportRun& run, double now) : run_(run), now_(now) {}

  std::vector<RunAlert> find() {
    find_end();
    find_non_finite();
    find_learning();
    find_overfitting();
    find_input();
    find_slow_rank();
    find_slower();
    find_bad_samples();
    for (const std::string& problem : run_.problems) add("note", "unreadable", problem, "");
    return std::move(alerts_);
  }

 private:
  void add(const char* level, const char* kind, std::string text, std::string advice) {
    alerts_.push_back({level, kind, std::move(text), std::move(advice)});
  }

  void find_end() {
    const std::string status = text_at(run_.summary, "status").value_or("");
    if (status == "failed") {
      add("error", "failed", "The run failed: " + text_at(run_.summary, "error").value_or("it does not say why"),
          "docs/howto/exit_codes.md");
    }
    if (const auto by = text_at(run_.summary, "stopped_by"); by && !by->empty()) {
      // A goal and an early stop are sentences, and the same command may have nothing left to do.
      if (by->starts_with("SIG") || by->starts_with("signal ")) {
        add("note", "stopped", "The run was ended early by " + *by + ".", "The same command continues it.");
      } else {
        add("note", "stopped", "The run ended early: " + *by + ".", "");
      }
    }
    double last = 0;
    for (const MetricTable& table : run_.metrics.phases) {
      if (!table.time.empty() && std::isfinite(table.time.back())) last = std::max(last, table.time.back());
    }
    if (status == "running" && last > 0 && now_ - last > kSilentSeconds) {
      add("warning", "silent",
          fmt::format("The run says that it is running, but has written nothing for {:.0f} minutes.",
                      (now_ - last) / 60),
          "It may have been killed; the same command continues it from its last checkpoint.");
    }
  }

  void find_non_finite() {
    const double skipped = number_at(run_.summary, "skipped_steps").value_or(0);
    if (skipped > 0) {
      add("warning", "nan",
          fmt::format("{:.0f} steps were skipped: their loss or a gradient was NaN or infinite.", skipped),
          "docs/howto/nan_loss.md");
    }
    if (run_.metrics.non_finite_losses > 0) {
      add("error", "nan",
          fmt::format("The loss was NaN or infinite in {} recorded steps, first in step {}.",
                      run_.metrics.non_finite_losses, run_.metrics.first_non_finite),
          "docs/howto/nan_loss.md");
    }
  }

  void find_learning() {
    constexpr size_t kFewest = 10;
    const MetricTable* table = run_.metrics.find("train");
    if (table == nullptr) return;
    const auto losses = values_of(table, loss_column(*table));
    if (losses.size() < kFewest) return;
    const size_t part = std::max<size_t>(3, losses.size() / 10);
    const double first = median_between(losses, 0, part),
                 last = median_between(losses, losses.size() - part, losses.size());
    if (last < first) return;
    add("warning", "no_progress",
        fmt::format("The loss did not fall: about {:.4g} at the begin, {:.4g} at the end.", first, last),
        "A lower or higher learning rate may help: docs/howto/learning_rate.md");
  }

  void find_overfitting() {
    constexpr size_t kFewest = 3;
    const MetricTable* table = run_.metrics.find("eval");
    const auto losses = values_of(table, "loss"), accuracies = values_of(table, "top_1_accuracy");
    const auto less = [](const ValueAtStep& a, const ValueAtStep& b) { return a.value < b.value; };
    constexpr const char* kAdvice =
        "More augmentation, weight decay or an early end help; --keep_best keeps the best checkpoint.";
    if (accuracies.size() >= kFewest) {
      const ValueAtStep best = *std::max_element(accuracies.begin(), accuracies.end(), less), last = accuracies.back();
      if (best.value - last.value > kOverfitAccuracy) {
        return add("warning", "overfitting",
                   fmt::format("Validation accuracy was best at step {} ({:.2f} %) and is {:.2f} % at step {}.",
                               best.step, 100 * best.value, 100 * last.value, last.step),
                   kAdvice);
      }
    }
    if (losses.size() < kFewest) return;
    const ValueAtStep best = *std::min_element(losses.begin(), losses.end(), less), last = losses.back();
    if (best.value > 0 && last.value > kOverfitLoss * best.value) {
      add("warning", "overfitting",
          fmt::format("Validation loss was least at step {} ({:.4g}) and is {:.4g} at step {}.", best.step, best.value,
                      last.value, last.step),
          kAdvice);
    }
  }

  void find_input() {
    const double share = number_at(object_at(run_.summary, "time_shares"), "input").value_or(0);
    if (share <= kInputBoundShare || share > 1) return;
    add("warning", "input", fmt::format("{:.0f} % of the time was spent waiting for input.", 100 * share),
        "docs/howto/slow_input.md");
  }

  void find_slow_rank() {
    const auto& ranks = object_at(run_.summary, "ranks");
    const auto seconds = ranks.find("seconds");
    const double slowest = number_at(ranks, "slowest").value_or(-1);
    if (seconds == ranks.end() || !seconds->is_array() || slowest < 0 ||
        slowest >= static_cast<double>(seconds->size())) {
      return;
    }
    double own_total = 0, own_waiting = 0, total = 0, waiting = 0;
    for (size_t r = 0; r < seconds->size(); ++r) {
      const bool own = r == static_cast<size_t>(slowest);
      (own ? own_total : total) += number_at((*seconds)[r], "seconds").value_or(0);
      (own ? own_waiting : waiting) += number_at((*seconds)[r], "waiting").value_or(0);
    }
    if (own_total <= 0 || total <= 0 || waiting / total - own_waiting / own_total <= kSlowRankShare) return;
    add("warning", "slow_rank",
        fmt::format("Rank {:.0f} is slow: the others waited for {:.0f} % of their time, it waited for {:.0f} %.",
                    slowest, 100 * waiting / total, 100 * own_waiting / own_total),
        "Look at what else runs on its machine, at its cores, and at its input: "
        "docs/howto/processes_and_checkpoints.md");
  }

  void find_slower() {
    constexpr size_t kFewest = 12;
    auto speeds = values_of(run_.metrics.find("train"), "images_per_second");
    if (speeds.size() < kFewest) return;
    speeds.erase(speeds.begin());  // the first step warms up
    const size_t quarter = speeds.size() / 4;
    double best = 0, last = 0;
    for (size_t q = 0; q < 4; ++q) {
      const size_t begin = q * quarter, end = q == 3 ? speeds.size() : begin + quarter;
      last = median_between(speeds, begin, end);
      best = std::max(best, last);
    }
    if (last >= kSlowerNow * best) return;
    add("warning", "slower",
        fmt::format("Speed fell: {:.0f} images/s at best, {:.0f} in the last quarter of the run.", best, last),
        "Look at what else ran on the machine: docs/howto/see_where_time_goes.md");
  }

  void find_bad_samples() {
    const double bad = number_at(run_.summary, "bad_samples").value_or(0);
    if (bad > 0) {
      add("note", "bad_samples", fmt::format("{:.0f} training images could not be read and were left out.", bad),
          "docs/howto/damaged_images.md");
    }
  }

  const ReportRun& run_;
  const double now_;
  std::vector<RunAlert> alerts_;
};

}  // namespace

std::vector<RunAlert> find_alerts(const ReportRun& run, double now) {
  return AlertFinder(run, now).find();
}

}  // namespace trainyard::cli
