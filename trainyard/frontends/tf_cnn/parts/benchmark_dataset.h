// A custom data set for BenchmarkCnn (benchmark_cnn.h), which makes the batches itself.
//
//   class Stripes : public BenchmarkDataset {
//     std::string name() const override { return "stripes"; }
//     int64_t num_classes() const override { return 2; }
//     int64_t num_examples_per_epoch(data::Subset) const override { return 1000; }
//     std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const override { ... }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/graph/ops.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// The batches that a run requests from its data set.
struct WantedBatches {
  data::Subset subset = data::Subset::kTrain;
  int64_t batch_size = 1;  // a replica
  int replicas = 1;        // batches that BatchSource::next() gives at once
  // When several processes train together, these are replicas [first_replica, first_replica + replicas) of
  // total_replicas, which share the samples: every process must be able to continue from the position of another one.
  int first_replica = 0, total_replicas = 1;
  nn::Size2d image_size = 0;  // of the model's images, pixels
  int64_t num_classes = 0;    // outputs of the model: labels are in [0, num_classes)
  uint64_t seed = 0;
  bool training = true;  // false: forward passes and evaluations, without augmentation
  bool repeat = true;    // false: one pass over the subset, the last batch shorter
};

class BenchmarkDataset {
 public:
  virtual ~BenchmarkDataset() = default;

  // Returns the data set's name: in the header, in logs, and in checkpoints, which only resume with data of that name.
  [[nodiscard]] virtual std::string name() const = 0;
  virtual int64_t num_classes() const = 0;
  // Returns how many samples an epoch of the subset has, at least 1.
  [[nodiscard]] virtual int64_t num_examples_per_epoch(data::Subset subset) const = 0;
  // Returns the data set whose registered models fit, "imagenet" or "cifar10". Called when the run has no custom model.
  [[nodiscard]] virtual std::string models_of() const { return "imagenet"; }
  // Returns a source of batches with "images" [N, 3, H, W] float, or the inputs of a custom model, and "labels" [N]
  // int64. Called once for each source that the run needs, which then has one thread at a time.
  [[nodiscard]] virtual std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const = 0;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
