// stats.json, as Tensorpack writes it: a list with an object for each epoch, which holds the last value of each scalar.
// It also tells where a run goes on (docs/formats/metrics.md).
//
//   [
//   {"epoch_num":1,"global_step":100,"loss":2.25,"val/top_1_accuracy":0.5},
//   {"epoch_num":2,"global_step":200,"loss":1.75,"val/top_1_accuracy":0.625}
//   ]
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {

// The last epoch that a file of statistics tells of.
struct StatsEnd {
  int64_t epoch_num = 0;    // from 1
  int64_t global_step = 0;  // steps done then
};

// Returns the last complete entry of a stats.json, Tensorpack's or ours. A file that was cut anywhere counts as far as
// it goes. Nothing where there is no file, or no entry. Throws kIo; kCorruptData when an entry has no epoch_num or
// global_step.
std::optional<StatsEnd> read_stats_end(const std::string& path, core::FileSystem& files = core::local_file_system());

// Writes the whole file anew after each epoch; it is there whole or as it was before.
class StatsJsonMonitor : public Monitor {
 public:
  // Goes on behind the complete entries of a file that is there. Those of steps after `start_step` are left out, as
  // JsonLinesMonitor does.
  explicit StatsJsonMonitor(std::string path, core::FileSystem& files = core::local_file_system(),
                            int64_t start_step = std::numeric_limits<int64_t>::max());
  ~StatsJsonMonitor() override;

  // Names are full_name()s. Those of the step with which the last epoch ended go to its entry, all others to the next.
  // Throws kInvalidArgument for "epoch_num" and "global_step".
  void write(const Scalars& scalars) override;
  void end_epoch(int64_t epoch, int64_t global_step) override;

 private:
  struct Entries;
  void write_file();

  std::string path_;
  core::FileSystem& files_;
  std::unique_ptr<Entries> entries_;
};

}  // namespace trainyard::train
