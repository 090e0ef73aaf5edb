#include "trainyard/frontends/model/class_accuracy.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/data/datasets/class_list.h"

namespace trainyard::frontends {
namespace {

constexpr size_t kAll = 20, kEnds = 5;  // classes in the table

struct Row {
  std::string name;
  train::ClassCount count;
  double accuracy() const { return static_cast<double>(count.right) / static_cast<double>(count.total); }
};

std::string name_of(size_t output, const std::vector<std::string>& names) {
  const bool named = output < names.size() && !names[output].empty();
  return named ? data::printable_class(names[output]) : fmt::format("{}", output);
}

// Code points: a name in bytes would shift its column.
size_t width_of(const std::string& name) {
  return static_cast<size_t>(std::count_if(name.begin(), name.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string lines_of(const std::vector<Row>& rows, size_t first, size_t end, size_t width) {
  std::string text;
  for (size_t i = first; i < end; ++i) {
    const Row& row = rows[i];
    text += fmt::format("  {}{}  {:.4f}  {} of {}\n", row.name, std::string(width - width_of(row.name), ' '),
                        row.accuracy(), row.count.right, row.count.total);
  }
  return text;
}

}  // namespace

std::string class_accuracy_table(const std::vector<train::ClassCount>& classes, const std::vector<std::string>& names) {
  std::vector<Row> rows;
  size_t width = 0;
  for (size_t output = 0; output < classes.size(); ++output) {
    if (classes[output].total == 0) continue;
    rows.push_back({name_of(output, names), classes[output]});
    width = std::max(width, width_of(rows.back().name));
  }
  if (rows.empty()) return "";
  if (rows.size() <= kAll) return "Accuracy by class:\n" + lines_of(rows, 0, rows.size(), width);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.accuracy() < b.accuracy(); });
  return fmt::format("Accuracy by class, the worst of {}:\n", rows.size()) + lines_of(rows, 0, kEnds, width) +
         "and the best:\n" + lines_of(rows, rows.size() - kEnds, rows.size(), width);
}

std::string class_accuracy_json(const train::Evaluation& evaluation, const std::vector<std::string>& names,
                                const train::CheckpointInfo& checkpoint) {
  nlohmann::ordered_json json{{"checkpoint", checkpoint.path},
                              {"global_step", checkpoint.global_step},
                              {"examples", evaluation.samples},
                              {"top_1_accuracy", evaluation.top_1},
                              {"classes", nlohmann::ordered_json::array()}};
  for (size_t output = 0; output < evaluation.classes.size(); ++output) {
    const train::ClassCount& count = evaluation.classes[output];
    const std::string name = output < names.size() ? names[output] : "";
    if (count.total == 0 && name.empty()) continue;
    json["classes"].push_back({{"output", output}, {"name", name}, {"right", count.right}, {"total", count.total}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::frontends
