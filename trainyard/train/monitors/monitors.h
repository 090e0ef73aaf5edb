// The monitors of the library: JSON lines, CSV, stats.json, TensorBoard's event files, a printer. monitor.h has their
// base class.
//
//   trainer.monitors().add(std::make_unique<JsonLinesMonitor>("out/metrics.jsonl"));
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {
class LineFile;
}

namespace trainyard::formats {
struct EventFileOptions;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Writes metrics.jsonl: one JSON object per line (docs/formats/metrics.md).
//
//   {"global_step":100,"epoch":0.5,"wall_time":1700000000.25,"phase":"train","learning_rate":0.1,"total_loss":2.25}
//
// Appends to the file of earlier runs. Other processes see each line when write() returns.
class JsonLinesMonitor : public Monitor {
 public:
  // First removes the rows of steps after `start_step`, where the run begins or continues: they are from an interrupted
  // run, and the steps after its checkpoint are repeated. With `evaluates_again`, also the rows of evaluations at
  // start_step, all that are not of the phase "train". Other lines are kept. Throws kIo, kNoSpace, and kCorruptData for
  // a file without any row, which another program has written and which is not changed.
  explicit JsonLinesMonitor(const std::string& path, core::FileSystem& files = core::local_file_system(),
                            int64_t start_step = std::numeric_limits<int64_t>::max(), bool evaluates_again = false);

  // Throws kInvalidArgument when a value has the name of one of the four fields before it.
  void write(const Scalars& scalars) override;
  void close() override;

 private:
  std::shared_ptr<LineFile> lines_;
};

// Returns the line without its line break. Values that are not finite are the strings "nan", "inf", "-inf".
[[nodiscard]] std::string json_line(const Scalars& scalars);

// Writes metrics.csv: one row for each set of values, with a header (RFC 4180; docs/formats/metrics.md).
//
//   global_step,epoch,wall_time,phase,learning_rate,total_loss
//   100,0.5,1700000000.250,train,0.1,2.25

// Appends to the file: a resumed run keeps its columns. A new name gets a column at the end; the file is then rewritten
// atomically, with empty cells in earlier rows. A column without a value in a row is an empty cell.
class CsvMonitor : public Monitor {
 public:
  // First removes the rows that JsonLinesMonitor removes. Throws kCorruptData, and does not change the file, when it
  // does not begin with the four columns above.
  explicit CsvMonitor(std::string path, core::FileSystem& files = core::local_file_system(),
                      int64_t start_step = std::numeric_limits<int64_t>::max(), bool evaluates_again = false);

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

// The last epoch in a file of statistics, stats.json.
struct StatsEnd {
  int64_t epoch_num = 0;    // from 1
  int64_t global_step = 0;  // steps done then
};

// Returns the last complete entry of a stats.json, Tensorpack's or ours, without those of steps after `start_step`. A
// truncated file counts up to its last complete entry. Returns nothing when there is no file, or no such entry. Throws
// kIo; kCorruptData when an entry has no epoch_num or global_step.
[[nodiscard]] std::optional<StatsEnd> read_stats_end(const std::string& path,
                                                     core::FileSystem& files = core::local_file_system(),
                                                     int64_t start_step = std::numeric_limits<int64_t>::max());

// Writes stats.json as Tensorpack does: a list with an object for each epoch, which contains the last value of each
// scalar. It also stores where a run continues (docs/formats/metrics.md).
//
//   [
//   {"epoch_num":1,"global_step":100,"loss":2.25,"val/top_1_accuracy":0.5},
//   {"epoch_num":2,"global_step":200,"loss":1.75,"val/top_1_accuracy":0.625}
//   ]
//
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

// Writes scalars, histograms, images and texts for TensorBoard, in an event file of the train directory
// (docs/formats/event_file.md): one a run, made with the first value.
class TensorBoardMonitor : public Monitor {
 public:
  // `start_step` is where the run begins or continues. TensorBoard then drops the values of later steps in earlier
  // files of the directory, which an interrupted run has left there. It would also drop those of the step at which a
  // session starts, so the file names the next one.
  TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files = core::local_file_system());
  // Also sets when the file is flushed and what its name says.
  TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files,
                     formats::EventFileOptions options);

  void write(const Scalars& scalars) override;
  void write_histograms(const Histograms& histograms) override;
  // Writes PNG. Several images of one name, [N, 3, H, W], get the tags "name/image/0", "name/image/1", as in
  // TensorFlow.
  void write_images(const Images& images) override;
  void write_texts(const Texts& texts) override;
  void flush() override;
  void close() override;

 private:
  struct EventFile;
  std::shared_ptr<EventFile> file_;
};

// Returns full_name(), with the top-k accuracies of the phase "eval" as tf_cnn_benchmarks calls them:
// "eval/Accuracy@1".
[[nodiscard]] std::string tensorboard_tag(std::string_view phase, std::string_view name);

struct ScalarPrinterOptions {
  // Patterns of full_name()s (core/base/pattern.h). Names that match the white list and not the black list are printed.
  std::vector<std::string> white_list{"*"};
  std::vector<std::string> black_list{};
  std::function<void(std::string_view line)> print{};  // empty: prints to the log
};

// Prints "loss: 0.52", the last value of each scalar, when an epoch ends, and those after the last epoch when it is
// closed.
class ScalarPrinter : public Monitor {
 public:
  explicit ScalarPrinter(ScalarPrinterOptions options = {});

  void write(const Scalars& scalars) override;
  void end_epoch(int64_t epoch, int64_t global_step) override;
  void close() override { print_all(); }

 private:
  void print_all();

  ScalarPrinterOptions options_;
  std::map<std::string, double> values_;  // since the last epoch
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
