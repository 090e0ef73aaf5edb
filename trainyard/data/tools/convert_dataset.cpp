#include "trainyard/data/tools/convert_dataset.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/class_names_file.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/datasets/webdataset_label.h"
#include "trainyard/data/tools/convert_coco.h"
#include "trainyard/data/tools/converted_classes.h"
#include "trainyard/formats/containers/tar.h"
#include "trainyard/formats/records/cifar.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// One sample on its way: an image file and its class, counted from 0.
struct Sample {
  Record record;
  int64_t label = 0;
  std::string_view extension = "jpg";

  std::string_view bytes() const { return {reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()}; }
};

Sample read_sample(const Dataset& dataset, int64_t index, const ConvertOptions& options) {
  options.check_stop();
  Sample sample{.record = dataset.read(index).value()};
  sample.label = sample.record.label - dataset.first_label();
  if (sample.label < 0) {
    throw Error(ErrorCode::kCorruptData, {.problem = "sample is background, which only the source counts as a class",
                                          .where = sample.record.where,
                                          .expected = fmt::format("a label of at least {}", dataset.first_label()),
                                          .actual = fmt::format("{}", sample.record.label)});
  }
  if (sample.record.encoding == Encoding::kRawChw)
    sample.record.bytes = encode_png(*record_image(sample.record).value().owner);
  sample.extension = image_extension_of(sample.record.bytes);
  return sample;
}

std::string example_of(const Sample& sample, const std::string& class_name, const ConvertOptions& options,
                       std::string_view file_name) {
  formats::ExampleBuilder example;
  const ImageSize size = record_image_size(sample.record).value();
  example.add_bytes(formats::kImageEncoded, sample.bytes());
  example.add_int64(formats::kImageClassLabel, sample.label + tfrecord_first_label(options.name));
  if (!class_name.empty()) example.add_bytes(formats::kImageClassText, class_name);
  example.add_int64(formats::kImageHeight, size.height);
  example.add_int64(formats::kImageWidth, size.width);
  example.add_bytes(formats::kImageFilename, file_name);
  const auto add_side = [&](std::string_view name, float Box::*side) {
    std::vector<float> values;
    for (const Box& box : sample.record.boxes) values.push_back(box.*side);
    if (!values.empty()) example.add_floats(name, values);
  };
  add_side(formats::kImageBoxXMin, &Box::xmin);
  add_side(formats::kImageBoxYMin, &Box::ymin);
  add_side(formats::kImageBoxXMax, &Box::xmax);
  add_side(formats::kImageBoxYMax, &Box::ymax);
  return example.build();
}

std::string file_name(Subset subset, int64_t index, const Sample& sample) {
  return fmt::format("{}_{:08}.{}", subset_name(subset), index, sample.extension);
}

std::string name_of(const Sample& sample, ConvertedClasses& classes) {
  return classes.add(sample.label, sample.record.label_text, sample.record.where);
}

// Writes shards with `write_shard(number, shards, first, last)`.
void for_each_shard(const Dataset& dataset, const ConvertOptions& options,
                    const std::function<void(int64_t, int64_t, int64_t, int64_t)>& write_shard) {
  const int64_t shards = (dataset.size() + options.samples_per_shard - 1) / options.samples_per_shard;
  core::for_each_parallel(shards, options.threads, [&](size_t i) {
    const auto shard = static_cast<int64_t>(i);
    write_shard(shard, shards, dataset.size() * shard / shards, dataset.size() * (shard + 1) / shards);
  });
}

void write_tfrecords(const Dataset& dataset, Subset subset, const ConvertOptions& options, const std::string& directory,
                     ConvertedClasses& classes) {
  for_each_shard(dataset, options, [&](int64_t shard, int64_t shards, int64_t first, int64_t last) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}", tfrecord_prefix(options.name, subset), shard, shards);
    formats::TfRecordWriter writer(options.files->open_write(core::join_path(directory, name)));
    for (int64_t i = first; i < last; ++i) {
      const Sample sample = read_sample(dataset, i, options);
      writer.write(example_of(sample, name_of(sample, classes), options, file_name(subset, i, sample)));
    }
    writer.sync();
    writer.close();
  });
}

void write_webdataset(const Dataset& dataset, Subset subset, const ConvertOptions& options,
                      const std::string& directory, ConvertedClasses& classes) {
  for_each_shard(dataset, options, [&](int64_t shard, int64_t, int64_t first, int64_t last) {
    const std::string name = fmt::format("{}-{:06}.tar", subset_name(subset), shard);
    formats::TarWriter writer(options.files->open_write(core::join_path(directory, name)));
    for (int64_t i = first; i < last; ++i) {
      const Sample sample = read_sample(dataset, i, options);
      const std::string class_name = name_of(sample, classes);
      const std::string json = class_name.empty() ? "" : json_label(sample.label, class_name);
      writer.write(fmt::format("{:08}.{}", i, sample.extension), sample.bytes());
      writer.write(fmt::format("{:08}.cls", i), fmt::format("{}", sample.label));
      if (!json.empty()) writer.write(fmt::format("{:08}.json", i), json);
    }
    writer.close();
  });
}

void list_class_names(const ConvertOptions& options, const std::string& directory, const ConvertedClasses& classes) {
  const std::vector<std::string> names = classes.names();
  if (!names.empty()) write_class_names(*options.files, directory, names);
}

const char* folder_of(Subset subset) {
  return subset == Subset::kTrain ? "train" : "val";
}

// What a class is called is known when all samples were read. Until then its folder has a name that no class has.
std::string unnamed_folder(const std::string& directory, Subset subset, int64_t label) {
  return core::join_path(core::join_path(directory, folder_of(subset)), fmt::format(".{:05}", label));
}

void write_folders(const Dataset& dataset, Subset subset, const ConvertOptions& options, const std::string& directory,
                   ConvertedClasses& classes) {
  core::for_each_parallel(dataset.size(), options.threads, [&](size_t i) {
    const Sample sample = read_sample(dataset, static_cast<int64_t>(i), options);
    static_cast<void>(name_of(sample, classes));
    const std::string folder = unnamed_folder(directory, subset, sample.label);
    options.files->make_directories(folder);
    const auto file =
        options.files->open_write(core::join_path(folder, file_name(subset, static_cast<int64_t>(i), sample)));
    file->write(sample.bytes());
    file->close();  // name_folders() syncs all of them
  });
}

// Classes without images have folders, too, which keep their labels so. The list of names says what the folders do not:
// labels in another order than that of the names, and classes that only the source's numbers leave room for.
void name_folders(const ConvertOptions& options, const std::string& directory, const ConvertedClasses& classes) {
  core::FileSystem& files = *options.files;
  const std::vector<std::string> names = classes.folder_names();
  bool all = true;
  for (int64_t label = 0; label < std::ssize(names); ++label) {
    all = all && classes.has(label);
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      const std::string root = core::join_path(directory, folder_of(subset));
      if (!files.exists(root)) continue;
      const std::string folder = core::join_path(root, names[static_cast<size_t>(label)]);
      if (const std::string unnamed = unnamed_folder(directory, subset, label); files.exists(unnamed)) {
        files.rename(unnamed, folder);
      } else if (classes.has(label)) {
        files.make_directories(folder);
      }
    }
  }
  if (!all || !std::is_sorted(names.begin(), names.end())) write_class_names(files, directory, names);
  files.sync_tree(directory);
}

void write_cifar_binary(const Dataset& dataset, Subset subset, const ConvertOptions& options,
                        const std::string& directory, ConvertedClasses& classes) {
  constexpr int kSide = 32;
  const int64_t batches = subset == Subset::kTrain ? 5 : 1;
  if (dataset.size() < batches) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "too few images to fill CIFAR-10's batches",
                 .where = fmt::format("{} images in {}", subset_name(subset), options.from),
                 .expected = fmt::format("at least {}", batches),
                 .actual = fmt::format("{}", dataset.size()),
                 .remedy = "write another form"});
  }
  core::for_each_parallel(batches, options.threads, [&](size_t i) {
    const auto batch = static_cast<int64_t>(i);
    const std::string name = subset == Subset::kTrain ? fmt::format("data_batch_{}.bin", batch + 1) : "test_batch.bin";
    const auto file = options.files->open_write(core::join_path(directory, name));
    for (int64_t s = dataset.size() * batch / batches; s < dataset.size() * (batch + 1) / batches; ++s) {
      const Sample sample = read_sample(dataset, s, options);
      // Pixels have no EXIF data, which turn the source's images in trainings.
      core::Result<Image> decoded = decode_image(sample.record.bytes, {}, {.exif_orientation = true});
      if (!decoded.ok()) throw decoded.error().in(sample.record.where);
      const Image& image = decoded.value();
      if (image.height != kSide || image.width != kSide || sample.label >= formats::kCifar10Classes) {
        throw Error(ErrorCode::kInvalidArgument,
                    {.problem = "sample does not fit into a CIFAR-10 batch",
                     .where = sample.record.where,
                     .expected = "32 x 32 pixels, a label in [0, 10)",
                     .actual = fmt::format("{} x {}, label {}", image.width, image.height, sample.label)});
      }
      static_cast<void>(name_of(sample, classes));
      std::string bytes(1, static_cast<char>(sample.label));
      for (size_t c = 0; c < 3; ++c) {
        for (size_t p = 0; p < size_t{kSide} * kSide; ++p) bytes += static_cast<char>(image.pixels[3 * p + c]);
      }
      file->write(bytes);
    }
    file->sync();
    file->close();
  });
}

// Without them, a reader takes the classes for CIFAR-10's own.
void list_cifar_names(const ConvertOptions& options, const std::string& directory, const ConvertedClasses& classes) {
  std::vector<std::string> names = classes.names_or_numbers();
  if (names.size() > formats::kCifar10Classes) names.resize(formats::kCifar10Classes);
  options.files->write_file_atomically(core::join_path(directory, kCifar10NamesFile), encode_class_names(names));
}

using Subsets = std::array<std::shared_ptr<const Dataset>, 2>;

// Throws kNotFound when there is neither subset.
Subsets open_subsets(const ConvertOptions& options) {
  Subsets subsets;
  std::optional<Error> missing;
  for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
    try {
      DatasetOptions source{.directory = options.from, .subset = subset, .files = options.files};
      if (subset == Subset::kValidation && subsets[0]) {
        source.classes = {subsets[0]->label_names(), "the training images", options.on_unknown_class};
      }
      subsets[static_cast<size_t>(subset)] = datasets().get(options.name)(source);
    } catch (const NoSuchSubset& error) {
      if (!missing) missing = error;
    }
  }
  if (!subsets[0] && !subsets[1]) throw Error(*missing);
  return subsets;
}

struct Target {
  const char* name;
  void (*write)(const Dataset&, Subset, const ConvertOptions&, const std::string& directory, ConvertedClasses&);
  // Writes what the classes are called, once both subsets are written.
  void (*name_classes)(const ConvertOptions&, const std::string& directory, const ConvertedClasses&);
};
constexpr std::array<Target, 4> kTargets = {{{"tfrecord", write_tfrecords, list_class_names},
                                             {"webdataset", write_webdataset, list_class_names},
                                             {"folder", write_folders, name_folders},
                                             {"cifar_binary", write_cifar_binary, list_cifar_names}}};

const Target& find_target(const std::string& name) {
  const auto found =
      std::find_if(kTargets.begin(), kTargets.end(), [&](const Target& target) { return name == target.name; });
  if (found == kTargets.end()) throw core::unknown_name("form of a data set", name, conversion_targets());
  return *found;
}

}  // namespace

std::vector<std::string> conversion_targets() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) names.emplace_back(target.name);
  names.emplace_back(kCocoTarget);
  return names;
}

void ConvertOptions::validate() const {
  const bool boxed = name == "coco";
  if (boxed ? to != kCocoTarget && to != kTargets.front().name : to == kCocoTarget) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the data set cannot be written in this form",
                 .where = fmt::format("{} as {}", name, to),
                 .expected = boxed ? "tfrecord or coco, which hold boxes" : "a form of labelled images",
                 .actual = to});
  }
  if (!boxed) static_cast<void>(find_target(to));
  if (samples_per_shard < 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "samples_per_shard is out of range",
                                              .expected = "at least 1",
                                              .actual = fmt::format("{}", samples_per_shard)});
  }
}

void ConvertOptions::check_stop() const {
  if (!stop.stop_requested()) return;
  throw Error(ErrorCode::kCancelled,
              {.problem = "the conversion was stopped, and what it has written is removed", .where = output});
}

ConvertedSamples convert_dataset(const ConvertOptions& options) {
  options.validate();
  if (options.name == "coco") return convert_coco(options);
  const Target& target = find_target(options.to);
  const Subsets subsets = open_subsets(options);
  const Dataset& named = subsets[0] ? *subsets[0] : *subsets[1];
  ConvertedClasses classes(named.label_names(), named.label_count() - named.first_label());
  make_new_directory(options.output, *options.files, [&](const std::string& unfinished) {
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      const auto& dataset = subsets[static_cast<size_t>(subset)];
      if (dataset) target.write(*dataset, subset, options, unfinished, classes);
    }
    target.name_classes(options, unfinished, classes);
  });
  return {subsets[0] ? subsets[0]->size() : 0, subsets[1] ? subsets[1]->size() : 0};
}

}  // namespace trainyard::data
