// The input pipeline: worker threads read, decode and augment samples into batches ahead of their use.
//
//   data::Pipeline pipeline(dataset, transform, {.batch_size = 64, .height = 32, .width = 32, .worker_threads = 2});
//   for (const data::Batch& batch : pipeline.next()) step(batch.images(), batch.labels());
//
// The k-th sample of an epoch is a pure function of (seed, epoch, k), and its augmentation a pure
// function of (seed, epoch, sample). So the bytes of every batch are the same for any number of threads and any
// prefetch, and a run resumes in mid-epoch from a Position. Replica r takes the r-th slice of the global batch
// (batch_size x total replicas). With `repeat` a global batch continues into the next epoch.
//
// With options.mix the images at places 2 i and 2 i + 1 of the global batch are mixed with each other, in place, by the
// worker that has made both. Batches then hold two more tensors than "images" and "labels": "labels_mixed" [N] int64
// and "label_shares" [N] float32, the weight of "labels" in the target; "labels_mixed" has the rest. "labels" is the
// label of the larger weight, so that accuracy can be counted on it.
//
// A transform with targets() makes the batches' tensors itself: they hold "images" and those instead of "labels".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/base/stage_times.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {
class LabelTexts;  // data/datasets/label_texts.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The order in which an epoch visits the samples (sample_order.h).
struct OrderOptions {
  bool shuffle = true;
  int64_t shuffle_buffer = 10000;
  double shift_ratio = 0.0;  // worker's task_index / num_workers: the position in the set at which its order begins
  void validate() const;     // throws kInvalidArgument
};

// What becomes of a sample that cannot be read or decoded (bad_samples.h): the run ends, the next good sample takes its
// place, or a sample drawn from the whole data set does.
enum class OnBadSample { kFail, kSkip, kSubstitute };

struct BadSampleOptions {
  OnBadSample policy = OnBadSample::kFail;
  // How many bad samples a run tolerates: values up to 1 are a fraction of the data set, larger ones a number. Unset:
  // 0.0001, but at least ten, or half of a set of fewer than twenty.
  std::optional<double> budget{};
  void validate() const;  // throws kInvalidArgument
  // Returns the budget in samples, rounded down, but at least one. A budget of 0 is 0 samples.
  [[nodiscard]] int64_t allowed(int64_t dataset_size) const;
};

// Images of another size from an epoch on.
struct EpochTransform {
  int64_t from_epoch = 0;
  std::shared_ptr<const Transform> transform{};
};

struct PipelineOptions {
  int64_t batch_size = 32;  // a replica
  int local_replicas = 1;   // replicas whose batches next() returns
  int first_replica = 0;    // index of the first local replica among all
  int total_replicas = 1;
  int64_t height = 224, width = 224;
  int worker_threads = 1;
  int prefetch_batches = 2;           // global batches made ahead, at least 1
  bool repeat = true;                 // false: one epoch, the last batch shorter (exact evaluation)
  bool repeat_cached_sample = false;  // repeats one decoded sample: measures everything but the input
  uint64_t seed = 0;
  OrderOptions order{};
  int64_t repeated_augmentation =
      1;  // how often each sample is repeated (SampleSequence), each time with new random numbers
  // The label of each sample, -1 for one that is never drawn: each class is then drawn equally often, whatever its
  // number of samples (balanced_order.h). An epoch keeps its number of samples. Needs order.shuffle, `repeat` and no
  // repeated augmentation. Classes that label_offset makes negative are drawn only to fail, with OnBadSample::kFail.
  // Null: each sample comes once an epoch.
  std::shared_ptr<const std::vector<int64_t>> balanced_labels{};
  // For a data set with has_label_sets(), the number of outputs: "labels" is then [N, label_set_size] float, 1 at each
  // of a sample's labels and else 0. 0: one label a sample.
  int64_t label_set_size = 0;
  MixOptions mix{};  // needs an even batch_size, `repeat`, and images that check_mixing() takes
  // Sizes by epoch, which ascend: a global batch, of all replicas, has the size of the last entry whose epoch is not
  // after that of its first sample; before the first entry, and without entries, height x width. All transforms have
  // the same form.
  std::vector<EpochTransform> transforms_by_epoch{};
  // Added to the data set's labels: -1 turns ImageNet's 1..1000 into the 0..999 of a model of 1,000 classes. A sample
  // whose label becomes negative is kCorruptData.
  int64_t label_offset = 0;
  // `label_texts` records the class names in the records of the batches. They are compared with `known_texts`, those of
  // other data, such as the training's in an evaluation. next() throws kInvalidArgument when they contradict. Null: not
  // recorded, or not compared.
  std::shared_ptr<LabelTexts> label_texts{};
  std::shared_ptr<const LabelTexts> known_texts{};
  BadSampleOptions bad_samples{};
  // Allocates the memory of batches. Empty: the program's caching allocator. Worker threads call it.
  std::function<at::Tensor(at::IntArrayRef sizes, at::ScalarType dtype)> allocate{};
  void validate() const;  // throws kInvalidArgument
};

// The work of the worker threads so far.
struct PipelineStatistics {
  StageSeconds seconds{};  // all threads together
  int64_t samples = 0;     // samples made, including those ahead of the consumer
  int64_t bytes = 0;       // encoded bytes read for them
};

// Makes batches of a data set ahead, on threads that start with the first next(); so a seek() before it costs nothing.
//
// After a bad sample that is not skipped or substituted, next() throws the same error until seek() moves elsewhere. The
// same holds for errors of the operating system and files that changed while they are read; these are not bad samples
// and always end the run.
class Pipeline : public BatchSource {
 public:
  // Throws kInvalidArgument for bad options, an empty data set, or a transform of another size.
  Pipeline(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Transform> transform, PipelineOptions options);
  ~Pipeline() override;

  int64_t batch_size() const override { return options_.batch_size; }
  int replicas() const override { return options_.local_replicas; }
  std::vector<Batch> next() override;
  double waited_seconds() const override;
  void stop() override;
  Position position() const override;
  void seek(Position position) override;
  int64_t bad_samples() const override;
  PipelineStatistics statistics() const;
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  class Workers;
  PipelineOptions options_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
