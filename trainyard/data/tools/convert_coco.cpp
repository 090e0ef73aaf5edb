#include "trainyard/data/tools/convert_coco.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/threads/parallel.h"
#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/coco_form.h"
#include "trainyard/data/detection/coco_records.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

using CocoSubsets = std::array<std::unique_ptr<CocoDataset>, 2>;

bool is_stored(const DatasetOptions& options) {
  try {
    static_cast<void>(find_coco(options));
    return true;
  } catch (const NoSuchSubset&) {
    return false;
  }
}

// Throws kNotFound when there is neither subset, and for one whose images have no boxes, which would be lost.
CocoSubsets open_coco_subsets(const ConvertOptions& options) {
  CocoSubsets subsets;
  std::optional<Error> missing;
  for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
    const DatasetOptions source{.directory = options.from, .subset = subset, .files = options.files};
    try {
      subsets[static_cast<size_t>(subset)] = open_coco(source);
    } catch (const NoSuchSubset& error) {
      if (is_stored(source)) throw;
      if (!missing) missing = error;
    }
  }
  if (!subsets[0] && !subsets[1]) throw Error(*missing);
  return subsets;
}

// A record that cannot be parsed belongs to no image, so that it would be lost.
void require_readable(const CocoDataset& dataset) {
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (dataset.unreadable(i)) static_cast<void>(dataset.read(i).value());
  }
}

std::vector<std::vector<CocoBox>> boxes_by_image(const CocoAnnotations& annotations) {
  std::unordered_map<int64_t, size_t> numbers;
  for (size_t i = 0; i < annotations.images.size(); ++i) numbers.emplace(annotations.images[i].id, i);
  std::vector<std::vector<CocoBox>> boxes(annotations.images.size());
  for (const CocoBox& box : annotations.boxes) boxes[numbers.at(box.image_id)].push_back(box);
  return boxes;
}

void write_coco_records(const CocoDataset& dataset, Subset subset, const ConvertOptions& options,
                        const std::string& directory) {
  const CocoAnnotations& annotations = dataset.annotations();
  const std::vector<std::vector<CocoBox>> boxes = boxes_by_image(annotations);
  const auto images = static_cast<int64_t>(annotations.images.size());
  const int64_t shards = (images + options.samples_per_shard - 1) / options.samples_per_shard;
  core::for_each_parallel(static_cast<size_t>(shards), options.threads, [&](size_t i) {
    const auto shard = static_cast<int64_t>(i);
    formats::TfRecordWriter writer(options.files->open_write(
        core::join_path(directory, fmt::format("{}-{:05}-of-{:05}", subset_name(subset), shard, shards))));
    for (int64_t image = images * shard / shards; image < images * (shard + 1) / shards; ++image) {
      options.check_stop();
      const auto number = static_cast<size_t>(image);
      const std::vector<std::byte> bytes = dataset.read_image(number).value();
      writer.write(coco_example(annotations.images[number], boxes[number], annotations.categories,
                                {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    }
    writer.sync();
    writer.close();
  });
  options.files->write_file_atomically(core::join_path(directory, coco_categories_file(subset)),
                                       coco_annotations_json({.categories = annotations.categories}));
}

void write_coco_folders(const CocoDataset& dataset, Subset subset, const ConvertOptions& options,
                        const std::string& directory) {
  const CocoAnnotations& annotations = dataset.annotations();
  const std::string name = subset == Subset::kTrain ? "train2017" : "val2017";
  const std::string folder = core::join_path(directory, name), listed = core::join_path(directory, "annotations");
  core::FileSystem& files = *options.files;
  files.make_directories(folder);
  files.make_directories(listed);
  std::set<std::string_view> names;
  for (const CocoImage& image : annotations.images) {
    if (!names.insert(image.file_name).second) {
      throw Error(ErrorCode::kCorruptData, {.problem = "two images have the same file name",
                                            .where = options.from,
                                            .expected = "a name of its own",
                                            .actual = image.file_name});
    }
    const std::string parent = core::parent_path(image.file_name);
    if (parent != ".") files.make_directories(core::join_path(folder, parent));
  }
  core::for_each_parallel(annotations.images.size(), options.threads, [&](size_t image) {
    options.check_stop();
    const std::vector<std::byte> bytes = dataset.read_image(image).value();
    const auto file = files.open_write(core::join_path(folder, annotations.images[image].file_name));
    file->write(bytes);
    file->close();  // convert_coco() syncs all of them
  });
  files.write_file_atomically(core::join_path(listed, fmt::format("instances_{}.json", name)),
                              coco_annotations_json(annotations));
}

}  // namespace

ConvertedSamples convert_coco(const ConvertOptions& options) {
  const CocoSubsets subsets = open_coco_subsets(options);
  const auto write = options.to == kCocoTarget ? write_coco_folders : write_coco_records;
  ConvertedSamples converted;
  make_new_directory(options.output, *options.files, [&](const std::string& unfinished) {
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      const std::unique_ptr<CocoDataset>& dataset = subsets[static_cast<size_t>(subset)];
      if (!dataset) continue;
      require_readable(*dataset);
      write(*dataset, subset, options, unfinished);
      (subset == Subset::kTrain ? converted.train : converted.validation) =
          static_cast<int64_t>(dataset->annotations().images.size());
    }
    if (options.to == kCocoTarget) options.files->sync_tree(unfinished);
  });
  return converted;
}

}  // namespace trainyard::data
