// Fills the slots of batches: reads a sample, decodes and augments it, and finds a substitute for a bad sample.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/batch_job.h"

namespace trainyard::data {

struct SampleMakerOptions {
  int64_t image_bytes = 0;
  bool repeat = true;
  bool repeat_cached_sample = false;
  uint64_t seed = 0;
  int64_t label_offset = 0;
  int64_t label_set_size = 0;
  std::vector<size_t> target_bytes{};  // of a sample's part of each of the transform's targets()
  BadSampleOptions bad_samples{};
};

// Makes samples. Many threads may call make() at once.
class SampleMaker {
 public:
  SampleMaker(std::shared_ptr<const Dataset> dataset, const SampleMakerOptions& options,
              SubstituteSamples::SampleAt sample_at)
      : dataset_(std::move(dataset)), options_(options), sample_at_(std::move(sample_at)) {}

  // Fills a slot with its transform. Throws when a bad sample ends the run, and errors of the operating system.
  void make(BatchSlot& slot);
  // Returns how many encoded bytes were decoded so far.
  int64_t bytes() const { return bytes_; }

 private:
  void make_uncached(BatchSlot& slot);
  core::Result<void> set_label(const Record& record, BatchSlot& slot) const;
  core::Result<void> make_sample(const SampleKey& key, BatchSlot& slot);

  const std::shared_ptr<const Dataset> dataset_;
  const SampleMakerOptions options_;
  const SubstituteSamples::SampleAt sample_at_;
  std::atomic<int64_t> bytes_ = 0;

  // For repeat_cached_sample.
  std::once_flag cached_;
  std::vector<std::byte> cached_image_;
  std::vector<std::vector<std::byte>> cached_targets_;
  int64_t cached_label_ = 0;
  BatchSlot cached_slot_;
};

}  // namespace trainyard::data
