// Writes metrics.csv: one row for each set of values, with a header (RFC 4180; docs/formats/metrics.md).
//
//   global_step,epoch,wall_time,phase,learning_rate,total_loss
//   100,0.5,1700000000.250,train,0.1,2.25
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {
class LineFile;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Appends to the file: a resumed run keeps its columns. A new name gets a column at the end; the file is then rewritten
// atomically, with empty cells in earlier rows. A column without a value in a row is an empty cell.
class CsvMonitor : public Monitor {
 public:
  // First removes the rows of steps after `start_step`, as JsonLinesMonitor does. Throws kCorruptData, and does not
  // change the file, when it does not begin with the four columns above.
  explicit CsvMonitor(std::string path, core::FileSystem& files = core::local_file_system(),
                      int64_t start_step = std::numeric_limits<int64_t>::max());

  // Throws kInvalidArgument for a name with a line break, or the name of one of the first four columns.
  void write(const Scalars& scalars) override;
  void close() override;

 private:
  void add_columns(const Scalars& scalars);

  std::string path_;
  core::FileSystem& files_;
  std::vector<std::string> columns_;
  std::shared_ptr<LineFile> lines_;
};

// Returns the cells of one line, with quotes undone.
[[nodiscard]] std::vector<std::string> split_csv_line(std::string_view line);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
