// Batches of samples that a test holds in memory, in their order, round and round or once.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::train {

class MemorySource : public data::BatchSource {
 public:
  // images [M, C, H, W], labels [M]. Without `repeat` the last batches are shorter, possibly empty.
  MemorySource(at::Tensor images, at::Tensor labels, int64_t batch_size, int replicas = 1, bool repeat = true)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        batch_size_(batch_size),
        replicas_(replicas),
        repeat_(repeat) {}

  int64_t batch_size() const override { return batch_size_; }
  int replicas() const override { return replicas_; }

  std::vector<data::Batch> next() override {
    const int64_t size = images_.size(0);
    if (position_.offset >= size) {
      if (!repeat_) return {};
      position_ = {position_.epoch + 1, 0};
    }
    std::vector<data::Batch> batches;
    for (int r = 0; r < replicas_; ++r) {
      const int64_t begin = std::min(position_.offset + r * batch_size_, size);
      const int64_t count = std::min(batch_size_, size - begin);
      batches.push_back({.tensors = {{"images", images_.narrow(0, begin, count).clone()},
                                     {"labels", labels_.narrow(0, begin, count).clone()}},
                         .first_sample = r * batch_size_});
    }
    position_.offset += batch_size_ * replicas_;
    for (data::Batch& batch : batches) batch.after = position_;
    return batches;
  }
  double waited_seconds() const override { return 0; }
  void stop() override {}
  data::Position position() const override { return position_; }
  void seek(data::Position position) override { position_ = position; }

 private:
  at::Tensor images_, labels_;
  int64_t batch_size_;
  int replicas_;
  bool repeat_;
  data::Position position_;
};

}  // namespace trainyard::train
