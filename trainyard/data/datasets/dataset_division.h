// Divides class folders that have no folders for training and validation. A fifth of each class is for validation, at
// least one image of two or more, selected by a hash of the images' names. So every program that opens the folder, also
// on another machine or after a move, selects the same images, and no image is in both parts. An image that is added
// later moves others between the parts only when a class gets one more image for validation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::data {

// One of this many images of a class is for validation.
inline constexpr int64_t kImagesForOneOfValidation = 5;

// A selection of a data set's samples, in order.
class PartOfDataset : public Dataset {
 public:
  // `samples` are indices in `whole`.
  PartOfDataset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {}
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  core::Result<Record> read(int64_t index) const override { return whole_->read(samples_[index]); }
  int64_t label_count() const override { return whole_->label_count(); }
  int64_t first_label() const override { return whole_->first_label(); }
  std::vector<std::string> label_names() const override { return whole_->label_names(); }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> samples_;
};

// Returns the subset's part of the images of class folders. Throws NoSuchSubset when the validation images are
// requested and no class has two images. `where` is the folder, for messages.
[[nodiscard]] std::unique_ptr<Dataset> part_of_folders(const std::shared_ptr<const FolderDataset>& whole, Subset subset,
                                                       const std::string& where);

}  // namespace trainyard::data
