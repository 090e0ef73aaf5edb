#include "trainyard/data/detection/coco_dataset.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/image_files.h"
#include "trainyard/data/detection/coco_form.h"
#include "trainyard/data/detection/coco_records.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

Box relative(const CocoBox& box, const CocoImage& image) {
  return {.ymin = static_cast<float>(box.y / image.height),
          .xmin = static_cast<float>(box.x / image.width),
          .ymax = static_cast<float>((box.y + box.height) / image.height),
          .xmax = static_cast<float>((box.x + box.width) / image.width)};
}

// Image files in a folder.
class FolderOfImages : public CocoImageFiles {
 public:
  FolderOfImages(core::FileSystem& files, std::string folder, const std::vector<CocoImage>& images)
      : files_(files), folder_(std::move(folder)) {
    for (const CocoImage& image : images) names_.push_back(image.file_name);
  }

  core::Result<std::vector<std::byte>> read(size_t file) const override {
    const std::string path = where(file);
    if (!files_.exists(path)) {
      return Error(ErrorCode::kNotFound,
                   {.problem = "an image of the annotations is missing",
                    .where = path,
                    .remedy = "get the image, or pass --on_bad_sample=skip to train without such images"});
    }
    return read_image_file(files_, path);
  }
  std::string where(size_t file) const override { return core::join_path(folder_, names_[file]); }

  // Throws when none of the images is there; warns when some are missing.
  void check() const {
    const std::vector<std::string> listed = files_.list(folder_);
    const auto missing = std::count_if(names_.begin(), names_.end(), [&](const std::string& name) {
      if (name.find('/') == std::string::npos) return !std::binary_search(listed.begin(), listed.end(), name);
      return !files_.exists(core::join_path(folder_, name));
    });
    if (missing == 0) return;
    if (missing == std::ssize(names_)) {
      throw Error(ErrorCode::kNotFound, {.problem = "the images of the annotations are missing",
                                         .where = folder_,
                                         .expected = fmt::format("{} images, such as {}", names_.size(), names_[0]),
                                         .actual = fmt::format("none of them among {} names", listed.size())});
    }
    core::log::warning("{}: {} of {} images of the annotations are missing", folder_, missing, names_.size());
  }

 private:
  core::FileSystem& files_;
  std::string folder_;
  std::vector<std::string> names_;
};

std::unique_ptr<CocoDataset> open_json(const StoredCoco& stored, core::FileSystem& files) {
  CocoAnnotations annotations = read_coco_annotations(stored.annotations, files);
  auto images = std::make_unique<FolderOfImages>(files, stored.images, annotations.images);
  images->check();
  std::vector<std::optional<size_t>> numbers(annotations.images.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  return std::make_unique<CocoDataset>(std::move(annotations), std::move(numbers), std::move(images),
                                       stored.annotations);
}

}  // namespace

bool is_usable(const CocoBox& box, const CocoImage& image) {
  return box.width > 0 && box.height > 0 && box.x >= 0 && box.y >= 0 && box.x + box.width <= image.width &&
         box.y + box.height <= image.height;
}

CocoDataset::CocoDataset(CocoAnnotations annotations, std::vector<std::optional<size_t>> file_images,
                         std::unique_ptr<const CocoImageFiles> files, const std::string& where)
    : annotations_(std::move(annotations)), files_(std::move(files)), image_files_(annotations_.images.size()) {
  std::unordered_map<int64_t, size_t> number_of_id;
  for (size_t i = 0; i < annotations_.images.size(); ++i) number_of_id.emplace(annotations_.images[i].id, i);
  std::vector<std::vector<size_t>> boxes_of(annotations_.images.size());
  int64_t left_out = 0;
  for (size_t i = 0; i < annotations_.boxes.size(); ++i) {
    const CocoBox& box = annotations_.boxes[i];
    const size_t image = number_of_id.at(box.image_id);
    if (!coco_label_of_category(box.category_id)) {
      throw Error(ErrorCode::kCorruptData,
                  {.problem = fmt::format("box {} is of a category that is not COCO's", box.id),
                   .where = where,
                   .expected = "one of COCO's 80 ids in [1, 90]",
                   .actual = fmt::format("{}", box.category_id),
                   .remedy = "number the categories as COCO does"});
    }
    if (is_usable(box, annotations_.images[image])) {
      boxes_of[image].push_back(i);
    } else {
      ++left_out;
    }
  }
  if (left_out > 0) {
    core::log::warning("{}: {} of {} boxes have no area or leave their image: samples are without them", where,
                       left_out, annotations_.boxes.size());
  }
  for (size_t file = 0; file < file_images.size(); ++file) {
    const std::optional<size_t> image = file_images[file];
    if (!image) {
      samples_.push_back({.file = file});
      continue;
    }
    image_files_[*image] = file;
    if (boxes_of[*image].empty()) continue;
    samples_.push_back({file, image, boxes_.size(), boxes_of[*image].size()});
    for (const size_t number : boxes_of[*image]) {
      const CocoBox& box = annotations_.boxes[number];
      boxes_.push_back(relative(box, annotations_.images[*image]));
      labels_.push_back(*coco_label_of_category(box.category_id));
    }
  }
  if (!samples_.empty()) return;
  throw NoSuchSubset(
      {.problem = "no image has boxes",
       .where = where,
       .actual = fmt::format("{} images and {} boxes", annotations_.images.size(), annotations_.boxes.size())});
}

core::Result<Record> CocoDataset::read(int64_t index) const {
  const Sample& sample = samples_[static_cast<size_t>(index)];
  core::Result<std::vector<std::byte>> bytes = files_->read(sample.file);
  if (!bytes.ok()) return bytes.error();
  Record record{.where = files_->where(sample.file)};
  record.bytes = std::move(bytes).value();
  const auto begin = static_cast<std::ptrdiff_t>(sample.first_box),
             end = begin + static_cast<std::ptrdiff_t>(sample.boxes);
  record.boxes.assign(boxes_.begin() + begin, boxes_.begin() + end);
  record.box_labels.assign(labels_.begin() + begin, labels_.begin() + end);
  return record;
}

std::vector<std::string> CocoDataset::label_names() const {
  const std::vector<std::string>& names = coco_label_names();
  return {names.begin() + 1, names.end()};
}

const CocoImage& CocoDataset::image(int64_t index) const {
  const Sample& sample = samples_[static_cast<size_t>(index)];
  if (sample.image) return annotations_.images[*sample.image];
  throw Error(ErrorCode::kCorruptData, {.problem = "the sample's image is unknown, since its record cannot be read",
                                        .where = files_->where(sample.file)});
}

core::Result<std::vector<std::byte>> CocoDataset::read_image(size_t image) const {
  return files_->read(image_files_[image]);
}

std::unique_ptr<CocoDataset> open_coco(const DatasetOptions& options) {
  if (!options.index_directory.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--data_index_dir has no use: COCO's records are found by reading their lengths",
                 .where = options.directory,
                 .remedy = "leave it out"});
  }
  refuse_division(options, "images with boxes are not divided by their names", "COCO");
  if (!options.labels_csv.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--labels_csv has no use: COCO's annotations say the labels",
                                              .where = options.directory,
                                              .remedy = "leave it out"});
  }
  const StoredCoco stored = find_coco(options);
  if (!stored.annotations.empty()) return open_json(stored, *options.files);
  return open_coco_records(stored.shards, options.subset, *options.files);
}

namespace {

const core::Registration<DatasetFactory> kCoco(datasets(), "coco", [](const DatasetOptions& options) {
  return std::unique_ptr<Dataset>(open_coco(options));
});

}  // namespace
}  // namespace trainyard::data
