// Batches without data: one fixed batch of random images for each replica, by default with new random labels at every
// step. Pixels are not normalised, because tf_cnn_benchmarks feeds them as they are. Measures everything but the input.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/pipeline/sample_sequence.h"

namespace trainyard::data {

// The distribution of synthetic samples. The defaults are tf_cnn_benchmarks'.
struct SyntheticSamples {
  float mean = 127, standard_deviation = 60;  // of pixels, which are normal, truncated at two deviations
  bool clipped = false;                       // pixels are then clipped to [0, 255]
  bool fixed_labels = false;                  // each image keeps its label, as if one batch was repeated
};

struct SyntheticOptions {
  int64_t batch_size = 32;  // a replica
  int local_replicas = 1;
  int first_replica = 0;
  int total_replicas = 1;
  int64_t height = 224, width = 224;
  int64_t classes =
      1001;  // labels are uniform in [0, classes - 1); as in tf_cnn_benchmarks, the last class never occurs
  int64_t epoch_size = 1281167;  // samples, for positions
  SyntheticSamples samples{};
  uint64_t seed = 0;
  void validate() const;  // throws kInvalidArgument
};

// Image i of the global batch and the labels are functions of the seed and of their position, so they do not depend on
// the number of replicas.
class SyntheticSource : public BatchSource {
 public:
  explicit SyntheticSource(const SyntheticOptions& options);

  int64_t batch_size() const override { return options_.batch_size; }
  int replicas() const override { return options_.local_replicas; }
  // The images are the same tensors every time: consumers must not write to them.
  std::vector<Batch> next() override;
  double waited_seconds() const override { return 0; }
  void stop() override {}
  Position position() const override { return position_; }
  void seek(Position position) override { position_ = sequence_.normalized(position); }

 private:
  SyntheticOptions options_;
  SampleSequence sequence_;
  std::vector<at::Tensor> images_;
  Position position_;
};

}  // namespace trainyard::data
