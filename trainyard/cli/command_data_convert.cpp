#include <ostream>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "trainyard/cli/command_data.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/tools/convert_dataset.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/options/input_options.h"

namespace trainyard::cli {

int run_data_convert(const Arguments& arguments, Console& console) {
  const data::ConvertOptions defaults;
  core::FlagTable table;
  table
      .text(
          "from", std::nullopt,
          "the data set: what --data_dir of train takes; class folders without train and val are divided as trainings "
          "divide them: a fifth of each class, by a hash of the images' names, becomes validation images")
      .group("Data");
  table
      .choice(
          "to", data::conversion_targets().front(), data::conversion_targets(),
          "the form: TFRecords, WebDataset shards, class folders, CIFAR-10's binary batches, COCO's JSON with images")
      .group("Output");
  table.text("output", std::nullopt, "directory to write; must not exist, or be empty").group("Output");
  table.integer("samples_per_shard", defaults.samples_per_shard, "of TFRecords and WebDataset")
      .bounds(1, 1 << 30)
      .group("Output");
  declare_data_flags(table);
  frontends::declare_unknown_class_flag(table, "Data");
  const auto parsed =
      parse_command({"data convert", "write a data set in another form", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  data::ConvertOptions options;
  options.from = required_text(values, "from", "name the data set to read: --from=DIR");
  options.output = required_text(values, "output", "name the directory to write: --output=DIR");
  options.to = values.text("to");
  if (options.to != "tfrecord" && options.to != "webdataset") {
    refuse_given(values, {"samples_per_shard"}, "--to=" + options.to);
  }
  options.name = frontends::choose_dataset(values.text("data_name"), options.from).name;
  options.samples_per_shard = values.integer("samples_per_shard");
  options.threads = data_threads(values);
  options.on_unknown_class = data::on_unknown_class(values.text("on_unknown_class"));
  options.stop = console.stop;
  const data::ConvertedSamples converted = data::convert_dataset(options);
  fmt::print(console.out, "wrote {} training and {} validation images of {} to {}\n", converted.train,
             converted.validation, options.name, options.output);
  return kSuccess;
}

}  // namespace trainyard::cli
