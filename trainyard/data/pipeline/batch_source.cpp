#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

int64_t Batch::samples() const {
  if (tensors.empty()) return 0;
  const at::Tensor& first = tensors.begin()->tensor;
  return first.dim() == 0 ? 1 : first.size(0);
}

void BatchSource::save(core::StateWriter& writer) const {
  const Position place = position();
  writer.integer("epoch", place.epoch);
  writer.integer("offset", place.offset);
}

void BatchSource::load(const core::StateReader& reader) {
  seek({reader.integer("epoch"), reader.integer("offset")});
}

}  // namespace trainyard::data
