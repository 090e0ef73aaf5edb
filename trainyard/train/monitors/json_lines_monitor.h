// Writes metrics.jsonl: one JSON object per line (docs/formats/metrics.md).
//
//   {"global_step":100,"epoch":0.5,"wall_time":1700000000.25,"phase":"train","learning_rate":0.1,"total_loss":2.25}
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {
class LineFile;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Appends to the file of earlier runs. Other processes see each line when write() returns.
class JsonLinesMonitor : public Monitor {
 public:
  // First removes the rows of steps after `start_step`, where the run begins or continues: they are from an interrupted
  // run, and the steps after its checkpoint are repeated. Other lines are kept. Throws kIo, kNoSpace, and kCorruptData
  // for a file without any row, which another program has written and which is not changed.
  explicit JsonLinesMonitor(const std::string& path, core::FileSystem& files = core::local_file_system(),
                            int64_t start_step = std::numeric_limits<int64_t>::max());

  // Throws kInvalidArgument when a value has the name of one of the four fields before it.
  void write(const Scalars& scalars) override;
  void close() override;

 private:
  std::shared_ptr<LineFile> lines_;
};

// Returns the line without its line break. Values that are not finite are the strings "nan", "inf", "-inf".
[[nodiscard]] std::string json_line(const Scalars& scalars);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
