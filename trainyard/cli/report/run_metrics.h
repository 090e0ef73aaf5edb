// Reads metrics.jsonl (docs/formats/metrics.md) for a report, whatever state the file is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::cli {

// The rows of one phase ("train", "eval"), column by column. All vectors have one element a row.
struct MetricTable {
  std::string phase{};
  std::vector<int64_t> step{};
  std::vector<double> epoch{}, time{};  // time: seconds since the Unix epoch
  // By name, in the order of their first occurrence. NaN: the row has no such value, or one that is not finite.
  std::vector<std::pair<std::string, std::vector<double>>> columns{};
  size_t rows_in_file = 0;  // how many rows the file has; more than step.size() once thin_out() was called

  // Returns the column of that name, null when there is none.
  const std::vector<double>* find(const std::string& name) const;
};

struct RunMetrics {
  std::vector<MetricTable> phases{};
  size_t damaged_lines = 0;      // lines that are no row: cut off, or of another program
  size_t non_finite_losses = 0;  // rows whose loss was NaN or infinite
  int64_t first_non_finite = 0;  // the global step of the first of them
  bool cut = false;              // the file was longer than is read: `kMostMetricBytes`

  const MetricTable* find(const std::string& phase) const;
};

inline constexpr uint64_t kMostMetricBytes = uint64_t{1} << 29;

// Reads the file. Lines that are no rows are counted and left out, as are columns beyond the 64th and phases beyond the
// eighth. A missing file has no rows. Throws kIo.
RunMetrics read_run_metrics(const std::string& path);

// Leaves out rows until at most about `most_rows` are left: of each stretch of steps, the first row and those with the
// least and the greatest loss and the least and the greatest speed stay. So no spike is lost.
void thin_out(MetricTable& table, size_t most_rows);

// Returns the name of the column that holds a table's loss: "total_loss", "base_loss" or "loss"; empty: it has none.
std::string loss_column(const MetricTable& table);

}  // namespace trainyard::cli
