// Where numbers go. Each monitor gets the same named values at the same steps. Implementations: JSON lines, CSV,
// TensorBoard event files.
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

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/formats/logs/event_file.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// One set of values of one moment: {"loss", 1.25}, {"top_1_accuracy", 0.5}. Names are stable: they are an interface.
struct Scalars {
  int64_t global_step = 0;
  double epoch = 0;      // fraction of passes over the data
  double wall_time = 0;  // seconds since the Unix epoch
  std::string phase;     // "train" or "eval"
  std::vector<std::pair<std::string, double>> values;
};

// Distributions of one moment: {"conv1.weight/gradients", ...}.
struct Histograms {
  int64_t global_step = 0;
  double wall_time = 0;  // seconds since the Unix epoch
  std::vector<std::pair<std::string, formats::Histogram>> values;
};

// Takes values. One thread at a time. A write that fails throws, so that nothing is lost silently.
class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void write(const Scalars& scalars) = 0;
  // Monitors of tables of numbers have no place for distributions and leave them out.
  virtual void write_histograms(const Histograms&) {}
  virtual void flush() {}
  virtual void close() {}
};

// All monitors of a trainer, which get the same values, and what these were: the set remembers each scalar, whether it
// has monitors or not.
class MonitorSet : public core::Stateful {
 public:
  using History = std::vector<std::pair<int64_t, double>>;  // global step and value, as they came

  void add(std::unique_ptr<Monitor> monitor) { monitors_.push_back(std::move(monitor)); }
  void write(const Scalars& scalars);
  void write_histograms(const Histograms& histograms) {
    for (auto& monitor : monitors_) monitor->write_histograms(histograms);
  }
  void flush() {
    for (auto& monitor : monitors_) monitor->flush();
  }
  void close() {
    for (auto& monitor : monitors_) monitor->close();
    monitors_.clear();
  }

  // Return the values of a name so far and the last one. Of the phase "train" a name stands as it is, of another behind
  // it: "eval/loss". Empty and nothing for a name that nobody has written.
  const History& history(std::string_view name) const;
  std::optional<double> latest(std::string_view name) const;

  // Makes the history of a name a part of what is saved, so that it is one over all runs of the training. Others are of
  // this run: speeds among them would make checkpoints of equal trainings differ.
  void keep(const std::string& name) { kept_.insert(name); }

  // Saves and loads the histories that are kept, as [count, 2] float64 under their names.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  std::map<std::string, History, std::less<>> histories_;
  std::set<std::string> kept_;
  std::vector<std::unique_ptr<Monitor>> monitors_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
