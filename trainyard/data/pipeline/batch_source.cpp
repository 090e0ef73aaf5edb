#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

void BatchSource::save(core::StateWriter& writer) const {
  const Position place = position();
  writer.integer("epoch", place.epoch);
  writer.integer("offset", place.offset);
}

void BatchSource::load(const core::StateReader& reader) {
  seek({reader.integer("epoch"), reader.integer("offset")});
}

}  // namespace trainyard::data
