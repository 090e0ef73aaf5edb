#include "trainyard/cli/command_data.h"

#include <algorithm>
#include <iterator>
#include <ostream>
#include <vector>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/core/threads/thread_limit.h"

namespace trainyard::cli {
namespace {

constexpr NamedCommand kDataCommands[] = {
    {"make-shapes", "write the embedded data set: --output=DIR", run_data_shapes},
    {"index", "write index files of TFRecords, with which runs start at once: DIR", run_data_index},
    {"convert", "write a data set in another form: --from=DIR --to=FORM --output=DIR", run_data_convert},
    {"show", "write a contact sheet of what a model would see: --data_dir=DIR", run_data_show},
    {"verify", "read and decode every sample, list the bad ones: DIR", run_data_verify},
};

}  // namespace

void declare_data_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Data";
  table
      .text("data_name", std::nullopt,
            "imagenet (images of any size), cifar10, shapes or coco; unset: as train finds it")
      .group(kGroup);
  table.integer("num_threads", 0, "threads; 0: the cores that the process may use")
      .bounds(0, core::most_threads())
      .group(kGroup);
}

int data_threads(const core::FlagValues& values) {
  const int64_t threads = values.integer("num_threads");
  return threads > 0 ? static_cast<int>(threads) : core::available_cores();
}

std::string required_text(const core::FlagValues& values, const std::string& flag, const std::string& remedy) {
  std::string text = values.text(flag);
  if (text.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--" + flag + " is missing", .remedy = remedy});
  }
  return text;
}

std::string directory_argument(const ParsedCommand& parsed, const std::string& command) {
  if (parsed.positional.size() == 1) return parsed.positional.front();
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("trainyard {} takes one directory", command),
                     .actual = fmt::format("{}", parsed.positional.size()),
                     .remedy = fmt::format("see trainyard {} --help", command)});
}

int run_data(const Arguments& arguments, Console& console) {
  if (console.descriptions != nullptr) {
    for (const NamedCommand& command : kDataCommands) command.run({}, console);
    return kSuccess;
  }
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    console.out << "usage: trainyard data COMMAND [--flag=value ...]\n\n";
    for (const NamedCommand& command : kDataCommands)
      fmt::print(console.out, "  {:12} {}\n", command.name, command.summary);
    console.out << "\neach command takes --help.\n";
    return arguments.empty() ? kUsage : kSuccess;
  }
  for (const NamedCommand& command : kDataCommands) {
    if (arguments[0] == command.name) return command.run({arguments.begin() + 1, arguments.end()}, console);
  }
  std::vector<std::string> names;
  std::transform(std::begin(kDataCommands), std::end(kDataCommands), std::back_inserter(names),
                 [](const NamedCommand& command) { return command.name; });
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::unknown_name("data command", arguments[0], names).detail());
}

}  // namespace trainyard::cli
