// The data set "coco": images with boxes of objects, from COCO's JSON and image files or from TFRecords in the schema
// of TensorFlow's object detection (docs/formats/coco.md; coco_form.h says which files are found).
//
//   const auto set = data::open_coco({.directory = "coco", .subset = data::Subset::kValidation});
//   set->image(batch.sample_indices[0]).id;
//
// As in tf_cnn_benchmarks, samples are the images that have boxes, in training and in evaluation. Crowds are boxes as
// others are. Boxes of no area, and boxes that leave their image, are not samples' boxes: TensorFlow's
// create_coco_tf_record.py leaves them out. A warning says how many there are. annotations() has all of them, since
// COCO's metrics see them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/detection/coco_labels.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The files of a set's images, by number. Many threads may use it at once.
class CocoImageFiles {
 public:
  virtual ~CocoImageFiles() = default;
  // Returns the bytes of an image file. A missing or damaged one is an error value, as of any bad sample.
  virtual core::Result<std::vector<std::byte>> read(size_t file) const = 0;
  // Returns the place of the file, for messages.
  [[nodiscard]] virtual std::string where(size_t file) const = 0;
};

class CocoDataset : public Dataset {
 public:
  // `file_images` has, for each of the files, the number of its image in annotations.images; nothing for a file that
  // cannot be read, which stays a sample so that reading it says why. Throws kCorruptData for a box of a category that
  // is not COCO's, NoSuchSubset when no image has boxes. `where` is for messages.
  CocoDataset(CocoAnnotations annotations, std::vector<std::optional<size_t>> file_images,
              std::unique_ptr<const CocoImageFiles> files, const std::string& where);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  // Returns the image's bytes, with boxes and box_labels. Record::label is 0.
  core::Result<Record> read(int64_t index) const override;
  int64_t label_count() const override { return kCocoLabels; }
  int64_t first_label() const override { return 1; }
  std::vector<std::string> label_names() const override;  // from label 1 on

  // Returns all that the subset's annotations say, images without boxes included.
  [[nodiscard]] const CocoAnnotations& annotations() const { return annotations_; }
  // Returns the image of sample `index`. Throws kCorruptData for one that cannot be read.
  [[nodiscard]] const CocoImage& image(int64_t index) const;
  // Returns true for a sample whose record cannot be parsed.
  [[nodiscard]] bool unreadable(int64_t index) const { return !samples_[static_cast<size_t>(index)].image; }
  // Returns the bytes of an image file by the image's number in annotations().images.
  core::Result<std::vector<std::byte>> read_image(size_t image) const;

 private:
  struct Sample {
    size_t file = 0;
    std::optional<size_t> image{};
    size_t first_box = 0, boxes = 0;  // in boxes_
  };

  CocoAnnotations annotations_;
  std::unique_ptr<const CocoImageFiles> files_;
  std::vector<size_t> image_files_;  // by number of the image
  std::vector<Sample> samples_;
  std::vector<Box> boxes_;       // of all samples
  std::vector<int64_t> labels_;  // of boxes_
};

// Opens the subset. Throws what find_coco() and read_coco_annotations() throw, kCorruptData for TFRecords whose records
// cannot be found and for two images of one id, and kInvalidArgument for options that have no use: a table of labels, a
// division, index files.
[[nodiscard]] std::unique_ptr<CocoDataset> open_coco(const DatasetOptions& options);

// Returns true for a box that training uses: of some area, inside of its image.
[[nodiscard]] bool is_usable(const CocoBox& box, const CocoImage& image);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
