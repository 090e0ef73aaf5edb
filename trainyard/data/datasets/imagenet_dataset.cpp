// ImageNet, or any other photographs: in the TFRecords of TensorFlow's scripts (labels 1..1000; 0 is background), in
// WebDataset shards, or in class folders (labels from 0).
#include <memory>

#include "trainyard/data/datasets/dataset_form.h"

namespace trainyard::data {
namespace {

constexpr int64_t kImagenetLabels = 1001;

const core::Registration<DatasetFactory> kImagenet(datasets(), "imagenet", [](const DatasetOptions& options) {
  return open_stored_images(options, tfrecord_prefix("imagenet", options.subset),
                            {.count = kImagenetLabels, .first = tfrecord_first_label("imagenet")});
});

}  // namespace
}  // namespace trainyard::data
