// The loss of classifiers.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/step/graph_tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Returns softmax cross-entropy of each output with the batch's "labels" [N] int64, summed by the outputs' weights.
// When a batch has "labels_mixed" [N] int64 and "label_shares" [N], as mixup and CutMix make them
// (data/pipeline/pipeline.h), the target is share * label + (1 - share) * mixed label.
[[nodiscard]] LossModule classifier_loss(const nn::CrossEntropyOptions& options = {});

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
