// CIFAR-10 (Krizhevsky, 2009): 60,000 images of 32 x 32 in ten classes, in three forms: JPEGs in TFRecords
// (train-*-of-*, test-*-of-*), or the authors' own python or binary batches (data_batch_1 to 5, test_batch, with .bin
// behind the name or not).
#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "trainyard/data/tfrecord_dataset.h"
#include "trainyard/formats/cifar.h"

namespace trainyard::data {
namespace {

constexpr int kSide = 32;  // pixels

const Labels& cifar10_labels() {
  static const Labels labels{
      .count = formats::kCifar10Classes,
      .names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
  return labels;
}

// The authors' batches, all in memory (150 MB).
class CifarBatches : public Dataset {
 public:
  explicit CifarBatches(const DatasetOptions& options) {
    const auto split = options.subset == Subset::kTrain ? formats::CifarSplit::kTraining : formats::CifarSplit::kTest;
    for (const std::string& path : formats::find_cifar10_batches(*options.files, options.directory, split)) {
      batches_.push_back({path, size_, formats::read_cifar10_batch(*options.files, path)});
      size_ += static_cast<int64_t>(batches_.back().content.size());
    }
  }

  int64_t size() const override { return size_; }

  core::Result<Record> read(int64_t index) const override {
    const auto after = std::upper_bound(batches_.begin(), batches_.end(), index,
                                        [](int64_t i, const Batch& batch) { return i < batch.first; });
    const Batch& batch = *std::prev(after);
    const int64_t place = index - batch.first;
    const auto pixels = std::as_bytes(batch.content.image(place));
    return Record{.encoding = Encoding::kRawChw,
                  .bytes = {pixels.begin(), pixels.end()},
                  .height = kSide,
                  .width = kSide,
                  .label = batch.content.labels[place],
                  .where = fmt::format("{}, image {}", batch.path, place)};
  }

  int64_t label_count() const override { return cifar10_labels().count; }
  std::vector<std::string> label_names() const override { return cifar10_labels().names; }

 private:
  struct Batch {
    std::string path;
    int64_t first;  // index of its first image
    formats::CifarBatch content;
  };
  std::vector<Batch> batches_;
  int64_t size_ = 0;
};

bool holds_batches(const DatasetOptions& options) {
  const std::vector<std::string> names = options.files->list(options.directory);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("data_batch_") || name.starts_with("test_batch");
  });
}

const core::Registration<DatasetFactory> kCifar10(
    datasets(), "cifar10", [](const DatasetOptions& options) -> std::unique_ptr<Dataset> {
      const std::string_view prefix = options.subset == Subset::kTrain ? "train" : "test";
      if (list_shards(options, prefix).empty() && holds_batches(options))
        return std::make_unique<CifarBatches>(options);
      return std::make_unique<TfRecordDataset>(
          options, find_shards(options, prefix, " or data_batch_1 to 5 and test_batch"), cifar10_labels());
    });

}  // namespace
}  // namespace trainyard::data
