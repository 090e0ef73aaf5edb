#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/pattern.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train {
namespace {

bool is_in(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return core::matches_pattern(name, pattern); });
}

}  // namespace

ScalarPrinter::ScalarPrinter(ScalarPrinterOptions options) : options_(std::move(options)) {
  if (!options_.print) options_.print = [](std::string_view line) { core::log::info("{}", line); };
}

void ScalarPrinter::write(const Scalars& scalars) {
  for (const auto& [name, value] : scalars.values) {
    const std::string full = full_name(scalars.phase, name);
    if (is_in(full, options_.white_list) && !is_in(full, options_.black_list)) values_[full] = value;
  }
}

void ScalarPrinter::end_epoch(int64_t, int64_t) {
  print_all();
}

void ScalarPrinter::print_all() {
  for (const auto& [name, value] : values_) options_.print(fmt::format("{}: {:.5g}", name, value));
  values_.clear();
}

}  // namespace trainyard::train
