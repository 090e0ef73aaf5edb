// CIFAR-10 (Krizhevsky, 2009): 60,000 images of 32 x 32 in ten classes: the authors' own python or binary batches
// (data_batch_1 to 5, test_batch, with .bin behind the name or not), or image files in TFRecords (train-*-of-*,
// test-*-of-*), WebDataset shards or class folders.
#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/datasets/class_names_file.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/formats/records/cifar.h"

namespace trainyard::data {
namespace {

constexpr int kSide = 32;  // pixels

const Labels& cifar10_labels() {
  static const Labels labels{
      .count = formats::kCifar10Classes,
      .names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
  return labels;
}

// Returns the names from the file next to the batches, which the authors' binary version has: CIFAR-10's, or those of
// other images in its form.
std::vector<std::string> class_names(const DatasetOptions& options) {
  const std::string path = core::join_path(options.directory, kCifar10NamesFile);
  if (!options.files->exists(path)) return cifar10_labels().names;
  std::vector<std::string> names = read_names_file(*options.files, path);
  if (std::ssize(names) <= formats::kCifar10Classes) return names;
  throw core::Error(core::ErrorCode::kCorruptData, {.problem = "too many class names for CIFAR-10 batches",
                                                    .where = path,
                                                    .expected = fmt::format("{} at most", formats::kCifar10Classes),
                                                    .actual = fmt::format("{}", names.size())});
}

// The authors' batches, all in memory (150 MB).
class CifarBatches : public Dataset {
 public:
  explicit CifarBatches(const DatasetOptions& options) : names_(class_names(options)) {
    const auto split = options.subset == Subset::kTrain ? formats::CifarSplit::kTraining : formats::CifarSplit::kTest;
    for (const std::string& path : formats::find_cifar10_batches(*options.files, options.directory, split)) {
      batches_.push_back({path, size_, formats::read_cifar10_batch(*options.files, path)});
      size_ += static_cast<int64_t>(batches_.back().content.size());
    }
  }

  int64_t size() const override { return size_; }

  core::Result<Record> read(int64_t index) const override {
    const Batch& batch = batch_of(index);
    const int64_t place = index - batch.first;
    const auto pixels = std::as_bytes(batch.content.image(place));
    if (batch.content.labels[place] >= names_.size()) {
      return core::Error(core::ErrorCode::kCorruptData,
                         {.problem = "label has no name",
                          .where = fmt::format("{}, image {}", batch.path, place),
                          .expected = fmt::format("one of the {} classes in {}", names_.size(), kCifar10NamesFile),
                          .actual = fmt::format("{}", batch.content.labels[place])});
    }
    return Record{.encoding = Encoding::kRawChw,
                  .bytes = {pixels.begin(), pixels.end()},
                  .height = kSide,
                  .width = kSide,
                  .label = batch.content.labels[place],
                  .where = fmt::format("{}, image {}", batch.path, place)};
  }

  int64_t label_count() const override { return std::ssize(names_); }
  std::vector<std::string> label_names() const override { return names_; }
  std::optional<int64_t> known_label(int64_t index) const override {
    const Batch& batch = batch_of(index);
    const uint8_t label = batch.content.labels[index - batch.first];
    if (label >= names_.size()) return std::nullopt;  // read() refuses it
    return label;
  }

 private:
  struct Batch {
    std::string path;
    int64_t first;  // index of its first image
    formats::CifarBatch content;
  };
  const Batch& batch_of(int64_t index) const {
    const auto after = std::upper_bound(batches_.begin(), batches_.end(), index,
                                        [](int64_t i, const Batch& batch) { return i < batch.first; });
    return *std::prev(after);
  }
  std::vector<std::string> names_;
  std::vector<Batch> batches_;
  int64_t size_ = 0;
};

bool holds_batches(const DatasetOptions& options, std::string_view prefix) {
  if (!is_directory(*options.files, options.directory)) return false;
  const std::vector<std::string> names = options.files->list(options.directory);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(prefix); });
}

std::unique_ptr<Dataset> open_cifar10(const DatasetOptions& options) {
  const bool training = holds_batches(options, "data_batch_"), test = holds_batches(options, "test_batch");
  if (!options.labels_csv.empty()) return open_stored_images(options, "", cifar10_labels());
  if (training || test) require_finished(*options.files, options.directory);
  if (options.subset == Subset::kTrain ? training : test) {
    refuse_index_files(options);
    refuse_division(options, "the images cannot be divided by their names", "CIFAR-10 batches");
    return std::make_unique<CifarBatches>(options);
  }
  if (training || test) {
    throw NoSuchSubset({.problem = "CIFAR-10 batches of the other subset only",
                        .where = options.directory,
                        .expected = training ? "test_batch" : "data_batch_1 to 5",
                        .remedy = "unpack cifar-10-python.tar.gz or cifar-10-binary.tar.gz there"});
  }
  return open_stored_images(options, tfrecord_prefix("cifar10", options.subset), cifar10_labels(),
                            ", or data_batch_1 to 5 and test_batch");
}

const core::Registration<DatasetFactory> kCifar10(datasets(), "cifar10", open_cifar10);

}  // namespace

const std::vector<std::string>& cifar10_class_names() {
  return cifar10_labels().names;
}

}  // namespace trainyard::data
