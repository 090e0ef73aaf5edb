#include "trainyard/frontends/options/freeze_options.h"

#include <utility>
#include <variant>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::frontends {
namespace {

constexpr double kMostEpochs = 1e9;

// Parses the parts of a list "PATTERN:EPOCH,...".
std::vector<std::pair<std::string, double>> read_pattern_epochs(const core::FlagValues& values, const char* flag,
                                                                bool allows_zero) {
  core::FlagSpec epoch{.name = flag, .kind = core::FlagKind::kReal};
  epoch.bounds(0, kMostEpochs);
  if (!allows_zero) epoch.above(0);
  std::vector<std::pair<std::string, double>> parts;
  for (const std::string& part : values.list(flag)) {
    const size_t colon = part.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == part.size()) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a part is not a pattern of names and an epoch",
                                                            .where = fmt::format("--{}", flag),
                                                            .expected = "PATTERN:EPOCH, as in layer1.*:2",
                                                            .actual = part});
    }
    parts.emplace_back(part.substr(0, colon), std::get<double>(core::parse_flag_value(epoch, part.substr(colon + 1))));
  }
  return parts;
}

}  // namespace

void declare_freeze_flags(core::FlagTable& table, const std::string& group) {
  table
      .list("freeze",
            "parameters that do not train, by patterns of their names: 'conv*,layer1.*'; * stands for any characters, "
            "and the word backbone for all parameters but those of the last layer. They keep their values, and batch "
            "norms whose parameters are all frozen keep their statistics. `trainyard models NAME` lists the layers. On "
            "the CPU")
      .group(group);
  table
      .list("freeze_until",
            "PATTERN:EPOCH,...: parameters that do not train, as with freeze, until so many epochs of the training are "
            "done: backbone:1 trains the last layer alone in the first epoch, and then all. On the CPU")
      .group(group);
  table
      .list("freeze_after",
            "PATTERN:EPOCH,...: parameters that train no more, as with freeze, once so many epochs of the training are "
            "done. On the CPU")
      .group(group);
}

FreezeOptions read_freeze_options(const core::FlagValues& values) {
  FreezeOptions options{.patterns = values.list("freeze")};
  for (auto& [pattern, epoch] : read_pattern_epochs(values, "freeze_until", /*allows_zero=*/false)) {
    options.epochs.push_back({.pattern = std::move(pattern), .end = epoch});
  }
  for (auto& [pattern, epoch] : read_pattern_epochs(values, "freeze_after", /*allows_zero=*/true)) {
    options.epochs.push_back({.pattern = std::move(pattern), .begin = epoch});
  }
  return options;
}

}  // namespace trainyard::frontends
