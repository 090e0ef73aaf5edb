// CIFAR-10 (Krizhevsky, 2009): 60,000 images of 32 x 32 in ten classes, as JPEGs in TFRecords: train-*-of-*,
// test-*-of-*.
#include <memory>

#include "trainyard/data/tfrecord_dataset.h"

namespace trainyard::data {
namespace {

Labels cifar10_labels() {
  return {.count = 10,
          .names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
}

const core::Registration<DatasetFactory> kCifar10(datasets(), "cifar10", [](const DatasetOptions& options) {
  const std::string_view prefix = options.subset == Subset::kTrain ? "train" : "test";
  return std::make_unique<TfRecordDataset>(options, find_shards(options, prefix), cifar10_labels());
});

}  // namespace
}  // namespace trainyard::data
