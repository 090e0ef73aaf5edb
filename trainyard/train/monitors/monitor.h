// Monitors write a training's numbers. Each monitor gets the same named values at the same steps. Implementations: JSON
// lines, CSV, stats.json, TensorBoard event files, a printer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/formats/logs/histogram.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// A set of values at one moment: {"loss", 1.25}, {"top_1_accuracy", 0.5}. Names are stable: they are an interface.
struct Scalars {
  int64_t global_step = 0;
  double epoch = 0;      // fraction of passes over the data
  double wall_time = 0;  // seconds since the Unix epoch
  std::string phase{};   // "train" or "eval"
  std::vector<std::pair<std::string, double>> values{};
};

// Histograms at one moment: {"conv1.weight/gradients", ...}.
struct Histograms {
  int64_t global_step = 0;
  double wall_time = 0;  // seconds since the Unix epoch
  std::vector<std::pair<std::string, formats::Histogram>> values{};
};

// Images at one moment: {"input", images}. Each [H, W, 3] or [N, 3, H, W], uint8, or of a float type in [0, 1].
struct Images {
  int64_t global_step = 0;
  double wall_time = 0;  // seconds since the Unix epoch
  std::vector<std::pair<std::string, at::Tensor>> values{};
};

// Texts at one moment, in Markdown: {"val/confusion_matrix", "| ..."}.
struct Texts {
  int64_t global_step = 0;
  double wall_time = 0;  // seconds since the Unix epoch
  std::vector<std::pair<std::string, std::string>> values{};
};

// Returns the name of a scalar with its phase: "eval/loss", but the name alone in the phase "train".
[[nodiscard]] std::string full_name(std::string_view phase, std::string_view name);

// Writes values. For one thread at a time. A write that fails throws, so that nothing is lost silently.
class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void write(const Scalars& scalars) = 0;
  // Monitors that write tables of numbers ignore the other kinds.
  virtual void write_histograms(const Histograms&) {}
  virtual void write_images(const Images&) {}
  virtual void write_texts(const Texts&) {}
  // Called when an epoch, counted from 1, is complete, after all callbacks.
  virtual void end_epoch(int64_t /*epoch*/, int64_t /*global_step*/) {}
  virtual void flush() {}
  virtual void close() {}
};

// All monitors of a trainer, which get the same values. It keeps the history of each scalar, also without any monitor.
class MonitorSet : public core::Stateful {
 public:
  using History = std::vector<std::pair<int64_t, double>>;  // global step and value, in order

  void add(std::unique_ptr<Monitor> monitor) { monitors_.push_back(std::move(monitor)); }
  template <typename Wrong>
  requires(!std::convertible_to<Wrong, std::unique_ptr<Monitor>>) void add(Wrong&&) {
    static_assert(core::kRightType<Wrong>,
                  "MonitorSet::add() takes a std::unique_ptr to a class that derives publicly from train::Monitor, as "
                  "std::make_unique<MyMonitor>() makes it");
  }
  void write(const Scalars& scalars);
  void write_histograms(const Histograms& histograms) {
    for (auto& monitor : monitors_) monitor->write_histograms(histograms);
  }
  // Throws kInvalidArgument, with the name, for an image of another shape or dtype.
  void write_images(const Images& images);
  void write_texts(const Texts& texts) {
    for (auto& monitor : monitors_) monitor->write_texts(texts);
  }
  void end_epoch(int64_t epoch, int64_t global_step) {
    for (auto& monitor : monitors_) monitor->end_epoch(epoch, global_step);
  }
  void flush() {
    for (auto& monitor : monitors_) monitor->flush();
  }
  void close() {
    for (auto& monitor : monitors_) monitor->close();
    monitors_.clear();
  }

  // Return the values of a name (full_name()) so far, and the last one. Empty for a name that has never been written.
  const History& history(std::string_view name) const;
  [[nodiscard]] std::optional<double> latest(std::string_view name) const;

  // Saves the history of a name with the training, so that it covers all of its runs. Other histories cover this run
  // only: speeds, for example, would make checkpoints of equal trainings differ.
  void keep(const std::string& name) { kept_.insert(name); }

  // Saves and loads the histories of keep(), as [count, 2] float64 under their names.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  std::map<std::string, History, std::less<>> histories_;
  std::set<std::string> kept_;
  std::vector<std::unique_ptr<Monitor>> monitors_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
