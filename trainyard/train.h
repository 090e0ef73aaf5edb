// Training: fit(), the trainers and callbacks that it is made of, metrics, evaluations, checkpoints, models that
// predict.
#pragma once

#include "trainyard/formats/tensors/tensor_file.h"                      // IWYU pragma: export
#include "trainyard/train/callbacks/callback_wrappers.h"                // IWYU pragma: export
#include "trainyard/train/callbacks/debugging.h"                        // IWYU pragma: export
#include "trainyard/train/callbacks/evaluation_callback.h"              // IWYU pragma: export
#include "trainyard/train/callbacks/hyperparameter_setters.h"           // IWYU pragma: export
#include "trainyard/train/callbacks/progress_callbacks.h"               // IWYU pragma: export
#include "trainyard/train/callbacks/savers.h"                           // IWYU pragma: export
#include "trainyard/train/checkpoint/checkpoint.h"                      // IWYU pragma: export
#include "trainyard/train/devices/open_devices.h"                       // IWYU pragma: export
#include "trainyard/train/evaluation/detection/coco_metric.h"           // IWYU pragma: export
#include "trainyard/train/evaluation/detection/detection_evaluation.h"  // IWYU pragma: export
#include "trainyard/train/evaluation/detection/detections.h"            // IWYU pragma: export
#include "trainyard/train/evaluation/detection/write_detector.h"        // IWYU pragma: export
#include "trainyard/train/evaluation/evaluator.h"                       // IWYU pragma: export
#include "trainyard/train/evaluation/metrics.h"                         // IWYU pragma: export
#include "trainyard/train/fit/fit.h"                                    // IWYU pragma: export
#include "trainyard/train/loop/trainer.h"                               // IWYU pragma: export
#include "trainyard/train/model/model.h"                                // IWYU pragma: export
#include "trainyard/train/model/quantize_model.h"                       // IWYU pragma: export
#include "trainyard/train/monitors/monitors.h"                          // IWYU pragma: export
#include "trainyard/train/step/graph_tower.h"                           // IWYU pragma: export
#include "trainyard/train/step/tower.h"                                 // IWYU pragma: export
#include "trainyard/train/step/tower_trainer.h"                         // IWYU pragma: export
