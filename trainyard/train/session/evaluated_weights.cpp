#include "trainyard/train/session/evaluated_weights.h"

namespace trainyard::train {

nn::ParameterSet& evaluated_weights(TowerTrainer& trainer, bool averaged) {
  return averaged && trainer.average() != nullptr ? trainer.average()->weights() : trainer.parameters();
}

bool has_stale_statistics(const TowerTrainer& trainer) {
  const optim::WeightAverage* const average = trainer.average();
  return average != nullptr && average->options().kind != optim::AverageKind::kExponential && average->updates() > 0;
}

}  // namespace trainyard::train
