#include "trainyard/train/session/rank_batches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/data/sources/with_epoch_size.h"

namespace trainyard::train {
namespace {

class RankBatches : public data::SourceDecorator {
 public:
  RankBatches(std::shared_ptr<data::BatchSource> all, int first, int count)
      : SourceDecorator(std::move(all)), first_(first), count_(count) {}
  int replicas() const override { return count_; }
  std::vector<data::Batch> next() override {
    const std::vector<data::Batch> all = source()->next();
    // What ends for one process ends for all, or the others would wait for it in their next step.
    const auto missing = std::count_if(
        all.begin(), all.end(), [](const data::Batch& batch) { return batch.tensors.empty() || batch.samples() == 0; });
    if (static_cast<int>(all.size()) < source()->replicas() || (missing > 0 && missing < std::ssize(all))) return {};
    return {all.begin() + first_, all.begin() + first_ + count_};
  }

 private:
  int first_, count_;
};

}  // namespace

std::shared_ptr<data::BatchSource> batches_of_rank(std::shared_ptr<data::BatchSource> all, const OpenDevices& devices) {
  if (devices.ranks() == 1) return all;
  const int first = devices.rank() * devices.replicas;
  if (data::batches_in_epoch(*all) == 0) return std::make_shared<RankBatches>(std::move(all), first, devices.replicas);
  return std::make_shared<data::WithEpochSize<RankBatches>>(data::batches_in_epoch(*all), all, first, devices.replicas);
}

}  // namespace trainyard::train
