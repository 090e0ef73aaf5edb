// Writes stats.json as Tensorpack does: a list with an object for each epoch, which contains the last value of each
// scalar. It also stores where a run continues (docs/formats/metrics.md).
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

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/monitor.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The last epoch in a file of statistics.
struct StatsEnd {
  int64_t epoch_num = 0;    // from 1
  int64_t global_step = 0;  // steps done then
};

// Returns the last complete entry of a stats.json, Tensorpack's or ours. A truncated file counts up to its last
// complete entry. Returns nothing when there is no file, or no entry. Throws kIo; kCorruptData when an entry has no
// epoch_num or global_step.
[[nodiscard]] std::optional<StatsEnd> read_stats_end(const std::string& path,
                                                     core::FileSystem& files = core::local_file_system());

// Rewrites the file atomically after each epoch.
class StatsJsonMonitor : public Monitor {
 public:
  // Continues after the complete entries of an existing file. Removes those of steps after `start_step`, as
  // JsonLinesMonitor does.
  explicit StatsJsonMonitor(std::string path, core::FileSystem& files = core::local_file_system(),
                            int64_t start_step = std::numeric_limits<int64_t>::max());
  ~StatsJsonMonitor() override;

  // Names are full_name()s. Values of the step with which the last epoch ended go to its entry, all others to the next
  // one. Throws kInvalidArgument for "epoch_num" and "global_step".
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
TRAINYARD_EXPORT_END
