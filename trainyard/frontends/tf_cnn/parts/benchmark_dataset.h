// A data set of the caller's own for BenchmarkCnn (benchmark_cnn.h): it makes the batches itself.
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

// The batches that a run asks its data set for.
struct WantedBatches {
  data::Subset subset = data::Subset::kTrain;
  int64_t batch_size = 1;  // a replica
  int replicas = 1;        // batches that BatchSource::next() gives at once
  // Where several processes train together, those are replicas [first_replica, first_replica + replicas) of
  // total_replicas, which share the samples: with the position of one process another one must go on.
  int first_replica = 0, total_replicas = 1;
  nn::Size2d image_size = 0;  // of the model's images, pixels
  int64_t num_classes = 0;    // outputs of the model: labels are in [0, num_classes)
  uint64_t seed = 0;
  bool training = true;  // false: forward passes and evaluations, which take the samples as they are
  bool repeat = true;    // false: one pass over the subset, the last batch shorter
};

class BenchmarkDataset {
 public:
  virtual ~BenchmarkDataset() = default;

  // Returns the data set's name: in the header, in logs, and in checkpoints, which only go on with data of that name.
  [[nodiscard]] virtual std::string name() const = 0;
  virtual int64_t num_classes() const = 0;
  // Returns how many samples an epoch of the subset has, at least 1.
  [[nodiscard]] virtual int64_t num_examples_per_epoch(data::Subset subset) const = 0;
  // Returns the data set whose registered models fit, "imagenet" or "cifar10". Asked where the run has no model of the
  // caller's own.
  [[nodiscard]] virtual std::string models_of() const { return "imagenet"; }
  // Returns a source of batches with "images" [N, 3, H, W] float, or what a model of the caller's own takes, and
  // "labels" [N] int64. Called once for each source that the run needs, which then has one thread at a time.
  [[nodiscard]] virtual std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const = 0;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
