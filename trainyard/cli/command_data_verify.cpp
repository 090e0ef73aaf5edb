#include <algorithm>
#include <ostream>
#include <string>

#include <fmt/ostream.h>

#include "trainyard/cli/command_data.h"
#include "trainyard/data/tools/verify_dataset.h"
#include "trainyard/frontends/input/dataset_choice.h"

namespace trainyard::cli {

// Bad samples are the result, one a line on stdout.
int run_data_verify(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_data_flags(table);
  table.text("data_index_dir", std::nullopt, "folder of the TFRecords' index files; unset: as train finds them")
      .group("Data");
  const auto parsed =
      parse_command({"data verify", "read and decode every sample, list the bad ones, fail if there are any", "DIR"},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  data::VerifyOptions options;
  options.directory = directory_argument(*parsed, "data verify");
  // Images of any size, whatever their labels mean.
  options.name = frontends::choose_dataset(parsed->values.text("data_name"), options.directory, "imagenet").name;
  options.index_directory = parsed->values.text("data_index_dir");
  options.threads = data_threads(parsed->values);
  options.stop = console.stop;
  options.on_bad = [&](const core::Error& error) {
    std::string line = error.what();
    std::replace_if(
        line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
    fmt::print(console.out, "bad: {}\n", line);
  };
  const data::VerifiedSamples verified = data::verify_dataset(options);
  fmt::print(console.out, "{} training and {} validation images of {}: {}\n", verified.train, verified.validation,
             options.name, verified.bad == 0 ? "all good" : fmt::format("{} bad", verified.bad));
  return verified.bad == 0 ? kSuccess : kFailure;
}

}  // namespace trainyard::cli
