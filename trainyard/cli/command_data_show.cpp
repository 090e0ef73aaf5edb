#include <algorithm>
#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command_data.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/tools/contact_sheet.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::cli {
namespace {

constexpr const char* kGroup = "Contact sheet";

void declare_show_flags(core::FlagTable& table) {
  table.text("output", "contact_sheet.png", "the PNG to write").group(kGroup);
  table.integer("count", 16, "samples, from the first of the epoch's order on").bounds(1, 10'000).group(kGroup);
  table.choice("subset", "train", {"train", "validation"}, "which images, and how they are prepared").group(kGroup);
  table.integer("epoch", 0, "whose order and augmentation are shown").bounds(0, 1 << 30).group(kGroup);
  table.integer("batch_size", 32, "of a device: some choices follow the place in the batch")
      .bounds(1, 1 << 20)
      .group(kGroup);
  models::declare_image_size_flag(table, kGroup, "224 for imagenet, 300 for coco, else 32");
  table.integer("tf_random_seed", 1234, "the run's seed").group(kGroup);
}

std::string label_name(const data::Dataset& dataset, int64_t label) {
  const std::vector<std::string> names = dataset.label_names();
  const int64_t place = label - dataset.first_label();
  return place >= 0 && place < static_cast<int64_t>(names.size()) ? " " + names[place] : "";
}

std::string labels_text(const data::Dataset& dataset, const data::ContactSheet::Cell& cell) {
  if (!cell.box_labels.empty()) {
    std::string text;
    for (const int64_t label : cell.box_labels) {
      text += fmt::format("{}{}", text.empty() ? "boxes of" : ",", label_name(dataset, label));
    }
    return text;
  }
  if (!dataset.has_label_sets()) return fmt::format("label {}{}", cell.label, label_name(dataset, cell.label));
  std::string text;
  for (const int64_t label : cell.labels) {
    text += fmt::format("{}{}{}", text.empty() ? "labels " : ", ", label, label_name(dataset, label));
  }
  return text.empty() ? "no label" : text;
}

}  // namespace

int run_data_show(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_show_flags(table);
  frontends::declare_source_flags(table);
  frontends::declare_division_flags(table);
  frontends::declare_image_flags(table);
  const auto parsed =
      parse_command({"data show", "write a contact sheet: each sample as stored, and as the model gets it", ""}, table,
                    arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const std::string directory = required_text(values, "data_dir", "name the data set to show: --data_dir=DIR");
  require_no_folder("output", values.text("output"));
  frontends::InputOptions input{.data_name = values.text("data_name"), .data_dir = directory};
  frontends::read_division_flags(values, input);
  const std::string name = frontends::choose_dataset(input).name;
  const bool training = values.text("subset") == "train";
  data::DatasetOptions source;
  source.directory = directory;
  source.subset = training ? data::Subset::kTrain : data::Subset::kValidation;
  source.index_directory = values.text("data_index_dir");
  source.divide = input.split_class_folders;
  source.division = input.division;
  source.requires_division = input.division.has_value();
  source.labels_csv = input.labels_csv;
  source.on_unlabelled_file = input.on_unlabelled_file;
  if (!training) {
    source.classes.names = data::training_class_names(name, source);
    source.classes.origin = "the training images";
    source.classes.on_unknown = data::on_unknown_class(values.text("on_unknown_class"));
  }
  const auto dataset = data::datasets().get(name)(source);
  const nn::Size2d given = models::read_image_size(values);
  const nn::Size2d size = given != nn::Size2d(0) ? given : frontends::usual_image_size(name);
  data::ContactSheetOptions options;
  frontends::ImageOptions images = frontends::read_image_options(values);
  images.turns_by_exif = true;
  options.transform = images.transform(name, size);
  options.transform.training = training;
  options.order.shuffle = training;
  options.count = std::min(values.integer("count"), dataset->size());
  options.batch_size = values.integer("batch_size");
  options.epoch = values.integer("epoch");
  options.seed = static_cast<uint64_t>(values.integer("tf_random_seed"));
  const auto transform = data::transforms().get(name)(options.transform);
  const data::ContactSheet sheet = data::make_contact_sheet(*dataset, *transform, options);
  const std::vector<std::byte> png = data::encode_png(sheet.image);
  core::write_user_output(values.text("output"), {reinterpret_cast<const char*>(png.data()), png.size()});
  for (size_t i = 0; i < sheet.cells.size(); ++i) {
    const data::ContactSheet::Cell& cell = sheet.cells[i];
    fmt::print(console.out, "{:3}: sample {}, {}: {}\n", i + 1, cell.sample, labels_text(*dataset, cell), cell.where);
  }
  fmt::print(console.out, "wrote {} x {} pixels to {}\n", sheet.image.width, sheet.image.height, values.text("output"));
  return kSuccess;
}

}  // namespace trainyard::cli
