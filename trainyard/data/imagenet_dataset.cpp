// ImageNet in the TFRecords of TensorFlow's scripts: train-*-of-*, validation-*-of-*. Labels 1..1000; 0 is background.
#include <memory>

#include "trainyard/data/tfrecord_dataset.h"

namespace trainyard::data {
namespace {

constexpr int64_t kLabels = 1001;

const core::Registration<DatasetFactory> kImagenet(datasets(), "imagenet", [](const DatasetOptions& options) {
  return std::make_unique<TfRecordDataset>(options, find_shards(options, subset_name(options.subset)),
                                           Labels{.count = kLabels});
});

}  // namespace
}  // namespace trainyard::data
