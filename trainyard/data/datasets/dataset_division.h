// Divides images that have no validation set. A part of each class is for validation, selected by a hash of the images'
// names: so every program that opens the data, also on another machine or after a move, selects the same images, and no
// image is in both parts.
//
// The images of a class are sorted by the hash. With Division::validation, the first of them are for validation: the
// nearest whole number, but at least one image of two or more, and never all. With Division::folds, the sorted images
// are cut into that many runs whose lengths differ by one at most; so each image is for validation in exactly one fold.
// The fold of a class's first run follows from a hash of the class's name, so that small classes do not all end up in
// the first fold. Images that are added later move others between the parts only where a cut moves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::data {

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
  std::optional<int64_t> known_label(int64_t index) const override { return whole_->known_label(samples_[index]); }
  bool has_label_sets() const override { return whole_->has_label_sets(); }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> samples_;
};

// The images that are divided, as functions of the index of a sample.
struct NamedSamples {
  int64_t size = 0;
  std::function<int64_t(int64_t)> group{};  // the class by which the parts are stratified, in [0, group_names.size())
  std::function<std::string(int64_t)> name{};  // different for each sample of a class
  std::vector<std::string> group_names{};
};

// Returns for each sample whether it is for validation. Throws what Division::validate() throws.
[[nodiscard]] std::vector<bool> validation_samples(const NamedSamples& samples, const Division& division);

// Returns the subset's part of the samples of `whole`, which `samples` names. Logs how they are divided. Throws
// NoSuchSubset when the part is empty. `where` is the folder or file of the data, for messages, and `because` follows
// it in the log: " has no folder val".
[[nodiscard]] std::unique_ptr<Dataset> part_of_samples(const std::shared_ptr<const Dataset>& whole,
                                                       const NamedSamples& samples, Subset subset,
                                                       const Division& division, std::string_view because,
                                                       const std::string& where);

// Returns the names of the images of class folders, by class.
[[nodiscard]] NamedSamples named_samples(const std::shared_ptr<const FolderDataset>& whole);

// Returns "validation_split=0.2" or "folds=5,fold=1", as checkpoints store it.
[[nodiscard]] std::string division_text(const Division& division);
// Returns the division of such a text; nothing for another text.
[[nodiscard]] std::optional<Division> division_of_text(std::string_view text);
// Returns "--validation_split=0.2" or "--folds=5 --fold=1", as a command line has it.
[[nodiscard]] std::string division_flags(const Division& division);

}  // namespace trainyard::data
