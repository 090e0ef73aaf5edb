#include "trainyard/data/pipeline/batch_job.h"

#include <utility>

namespace trainyard::data {

void BatchJob::fail(size_t slot, std::exception_ptr failure) {
  if (error && error_slot <= slot) return;
  error = std::move(failure);
  error_slot = slot;
}

void BatchJob::leave_out() {
  auto slot = slots.begin();
  for (Batch& batch : batches) {
    const int64_t samples = batch.images().size(0);
    int64_t kept = 0;
    batch.sample_indices.clear();
    batch.sample_indices.reserve(static_cast<size_t>(samples));
    for (int64_t place = 0; place < samples; ++place, ++slot) {
      if (slot->left_out) continue;
      if (place != kept) {
        for (const auto& [name, tensor] : batch.tensors) tensor.select(0, kept).copy_(tensor.select(0, place));
      }
      batch.sample_indices.push_back(slot->sample);
      ++kept;
    }
    if (kept == samples) continue;
    for (const std::string& name : batch.tensors.names()) {
      batch.tensors.set(name, batch.tensors[name].narrow(0, 0, kept));
    }
  }
}

}  // namespace trainyard::data
