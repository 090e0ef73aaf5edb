#include <ostream>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "trainyard/cli/command_data.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/tools/index_shards.h"

namespace trainyard::cli {

int run_data_index(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table
      .text("output", std::nullopt,
            "folder of all index files; unset: the folder idx beside the shards, where runs find them")
      .group("Output");
  const auto parsed = parse_command(
      {"data index",
       "write an index file, as DALI's tfrecord2idx, for each TFRecord shard in DIR, DIR/train and DIR/val", "DIR"},
      table, arguments, console);
  if (!parsed) return kSuccess;
  const std::string directory = directory_argument(*parsed, "data index");
  data::require_data(core::local_file_system(), directory);
  const data::IndexedShards indexed = data::write_index_files(directory, parsed->values.text("output"));
  fmt::print(console.out, "indexed {} records in {} shards, in {}\n", indexed.records, indexed.shards,
             fmt::join(indexed.folders, " and "));
  return kSuccess;
}

}  // namespace trainyard::cli
