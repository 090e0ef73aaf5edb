#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/machine/machine_info.h"
#include "trainyard/train/profile/layer_report.h"

namespace trainyard::train {
namespace {

using Json = nlohmann::ordered_json;

// "layer1.0.conv1 + bn1 + relu1": later names without the folder that they share with the first.
std::string joined_names(const std::vector<std::string>& names) {
  const std::string folder = names.front().substr(0, names.front().rfind('.') + 1);
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i) {
    text += " + " + (names[i].starts_with(folder) ? names[i].substr(folder.size()) : names[i]);
  }
  return text;
}

std::string milliseconds(double seconds) {
  return seconds == 0 ? "-" : fmt::format("{:.3f}", 1e3 * seconds);
}

double rate(int64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
}

std::string giga(double rate_a_second) {
  return rate_a_second == 0 ? "-" : fmt::format("{:.1f}", 1e-9 * rate_a_second);
}

LayerTime both(const LayerTime& forward, const LayerTime& backward) {
  return {forward.seconds + backward.seconds, forward.flops + backward.flops, forward.bytes + backward.bytes};
}

void add(LayerTime& sum, const LayerTime& time) {
  sum = both(sum, time);
}

constexpr size_t kTextColumns = 2, kTableColumns = 8;  // texts aligned left, numbers right, the last as it is
using Cells = std::array<std::string, kTableColumns>;

Cells numbers(std::string name, std::string kind, const LayerTime& forward, const LayerTime& backward, double step,
              std::string last) {
  const LayerTime sum = both(forward, backward);
  return {std::move(name),
          std::move(kind),
          milliseconds(forward.seconds),
          milliseconds(backward.seconds),
          fmt::format("{:.1f}", step > 0 ? 100 * sum.seconds / step : 0),
          giga(rate(sum.flops, sum.seconds)),
          giga(rate(sum.bytes, sum.seconds)),
          std::move(last)};
}

std::string table(const std::vector<Cells>& rows) {
  std::array<size_t, kTableColumns> widths{};
  for (const Cells& row : rows) {
    for (size_t column = 0; column < kTableColumns; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t column = 0; column + 1 < kTableColumns; ++column) {
      line += column < kTextColumns ? fmt::format("{:<{}}  ", row[column], widths[column])
                                    : fmt::format("{:>{}}  ", row[column], widths[column]);
    }
    line += row[kTableColumns - 1];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string heading(const LayerReport& report) {
  std::vector<std::string> how = report.conditions;
  how.insert(how.begin(), "executor " + report.executor);
  std::string text = fmt::format("{}, {} images a step, {}: {:.3f} ms a step, {:.1f} images/s (median of {})\n",
                                 report.model, report.batch_size, fmt::join(how, ", "), 1e3 * report.step_seconds,
                                 report.images_per_second(), report.steps);
  if (report.device.empty()) return text;
  text += fmt::format("times of layers are {}'s, by {}; steps that are recorded wait for it at their end\n",
                      report.device, report.method);
  if (report.lost_records > 0) {
    text += fmt::format("{} records of what it ran are lost: times are too small by them\n", report.lost_records);
  }
  return text;
}

std::string shortened(const std::string& name, size_t length) {
  return name.size() <= length ? name : name.substr(0, length - 3) + "...";
}

std::vector<std::string> kernel_cells(const std::vector<std::string>& kernels) {
  constexpr size_t kLength = 40;
  std::vector<std::string> cells;
  for (const std::string& kernel : kernels) cells.push_back(shortened(kernel, kLength));
  return cells;
}

std::string kernel_time_table(const LayerReport& report, size_t rows) {
  if (report.kernels.empty()) return {};
  constexpr size_t kLength = 96;
  std::string text = fmt::format("{:>10}  {:>7}  {:>6}  kernel\n", "ms a step", "share %", "calls");
  for (size_t i = 0; i < std::min(rows, report.kernels.size()); ++i) {
    const KernelRow& row = report.kernels[i];
    text += fmt::format("{:>10.3f}  {:>7.1f}  {:>6}  {}\n", 1e3 * row.seconds,
                        report.step_seconds > 0 ? 100 * row.seconds / report.step_seconds : 0, row.calls,
                        shortened(row.name, kLength));
  }
  return text;
}

Json phase_json(const LayerTime& time) {
  return {{"seconds", time.seconds}, {"flops", time.flops}, {"bytes", time.bytes}};
}

void add_rates(Json& row, const LayerTime& sum, double step) {
  row["share"] = step > 0 ? sum.seconds / step : 0;
  row["gflops_per_second"] = 1e-9 * rate(sum.flops, sum.seconds);
  row["gbytes_per_second"] = 1e-9 * rate(sum.bytes, sum.seconds);
}

}  // namespace

std::vector<OperatorRow> operator_rows(const LayerReport& report) {
  std::map<std::string, OperatorRow> kinds;
  for (const LayerRow& row : report.rows) {
    const std::string kind = fmt::format("{}", fmt::join(row.kinds, " + "));
    OperatorRow& sum = kinds[kind];
    sum.kind = kind;
    ++sum.layers;
    add(sum.forward, row.forward);
    add(sum.backward, row.backward);
  }
  std::vector<OperatorRow> rows;
  for (auto& [kind, row] : kinds) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const OperatorRow& a, const OperatorRow& b) {
    return a.forward.seconds + a.backward.seconds > b.forward.seconds + b.backward.seconds;
  });
  return rows;
}

std::string layer_time_table(const LayerReport& report) {
  std::vector<Cells> rows{{"layer", "kind", "forward ms", "backward ms", "share %", "GFLOP/s", "GB/s", "kernels"}};
  LayerTime forward, backward;
  for (const LayerRow& row : report.rows) {
    rows.push_back(numbers(joined_names(row.names), fmt::format("{}", fmt::join(row.kinds, " + ")), row.forward,
                           row.backward, report.step_seconds,
                           fmt::format("{}", fmt::join(kernel_cells(row.kernels), ", "))));
    add(forward, row.forward);
    add(backward, row.backward);
  }
  rows.push_back(numbers("all layers", "", forward, backward, report.step_seconds, ""));
  std::string outside;
  for (const auto& [what, seconds] : report.outside) {
    outside += fmt::format("{} {} {:.3f} ms", outside.empty() ? "outside of layers:" : ",", what, 1e3 * seconds);
  }
  return heading(report) + table(rows) + outside + "\n";
}

std::string operator_time_table(const LayerReport& report, size_t rows) {
  std::vector<Cells> cells{{"operator", "layers", "forward ms", "backward ms", "share %", "GFLOP/s", "GB/s", ""}};
  for (const OperatorRow& row : operator_rows(report)) {
    if (cells.size() > rows) break;
    cells.push_back(numbers(row.kind, std::to_string(row.layers), row.forward, row.backward, report.step_seconds, ""));
  }
  return heading(report) + table(cells) + kernel_time_table(report, rows);
}

std::string layer_time_json(const LayerReport& report) {
  Json layers = Json::array(), operators = Json::array(), kernels = Json::array(), outside = Json::object();
  for (const LayerRow& row : report.rows) {
    Json& json = layers.emplace_back(Json{{"nodes", row.names},
                                          {"kinds", row.kinds},
                                          {"kernels", row.kernels},
                                          {"forward", phase_json(row.forward)},
                                          {"backward", phase_json(row.backward)}});
    add_rates(json, both(row.forward, row.backward), report.step_seconds);
  }
  for (const OperatorRow& row : operator_rows(report)) {
    Json& json = operators.emplace_back(Json{{"kind", row.kind},
                                             {"layers", row.layers},
                                             {"forward", phase_json(row.forward)},
                                             {"backward", phase_json(row.backward)}});
    add_rates(json, both(row.forward, row.backward), report.step_seconds);
  }
  for (const auto& [what, seconds] : report.outside) outside[what] = seconds;
  for (const KernelRow& row : report.kernels) {
    kernels.push_back({{"name", row.name}, {"calls", row.calls}, {"seconds", row.seconds}});
  }
  const core::MachineInfo machine = core::machine_info();
  Json json{{"model", report.model},
            {"executor", report.executor},
            {"conditions", report.conditions},
            {"batch_size", report.batch_size},
            {"steps", report.steps},
            {"step_seconds", report.step_seconds},
            {"images_per_second", report.images_per_second()},
            {"operators", std::move(operators)},
            {"layers", std::move(layers)},
            {"outside_seconds", std::move(outside)},
            {"machine", {{"name", machine.name}, {"cpu", machine.processor}, {"cores", machine.cores}}}};
  if (report.image_size != nn::Size2d(0)) json["image_size"] = {report.image_size.height, report.image_size.width};
  if (!report.device.empty()) {
    json["device"] = {{"name", report.device}, {"method", report.method}, {"lost_records", report.lost_records}};
    json["kernels"] = std::move(kernels);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::train
