// Training: fit(), the trainers and callbacks that it is made of, metrics, evaluations, checkpoints, models that
// predict.
#pragma once

#include "trainyard/train/callbacks/callback_wrappers.h"          // IWYU pragma: export
#include "trainyard/train/callbacks/checkpoint_callback.h"        // IWYU pragma: export
#include "trainyard/train/callbacks/dump_tensors.h"               // IWYU pragma: export
#include "trainyard/train/callbacks/evaluation_callback.h"        // IWYU pragma: export
#include "trainyard/train/callbacks/hyperparameter_setters.h"     // IWYU pragma: export
#include "trainyard/train/callbacks/inference_runner.h"           // IWYU pragma: export
#include "trainyard/train/callbacks/progress_callback.h"          // IWYU pragma: export
#include "trainyard/train/callbacks/progress_trackers.h"          // IWYU pragma: export
#include "trainyard/train/callbacks/savers.h"                     // IWYU pragma: export
#include "trainyard/train/callbacks/step_guards.h"                // IWYU pragma: export
#include "trainyard/train/callbacks/summary_callback.h"           // IWYU pragma: export
#include "trainyard/train/checkpoint/checkpoint.h"                // IWYU pragma: export
#include "trainyard/train/checkpoint/weights.h"                   // IWYU pragma: export
#include "trainyard/train/devices/open_devices.h"                 // IWYU pragma: export
#include "trainyard/train/evaluation/batch_norm_recalibration.h"  // IWYU pragma: export
#include "trainyard/train/evaluation/evaluator.h"                 // IWYU pragma: export
#include "trainyard/train/evaluation/metric.h"                    // IWYU pragma: export
#include "trainyard/train/evaluation/metrics.h"                   // IWYU pragma: export
#include "trainyard/train/fit/fit.h"                              // IWYU pragma: export
#include "trainyard/train/loop/trainer.h"                         // IWYU pragma: export
#include "trainyard/train/model/model.h"                          // IWYU pragma: export
#include "trainyard/train/monitors/csv_monitor.h"                 // IWYU pragma: export
#include "trainyard/train/monitors/json_lines_monitor.h"          // IWYU pragma: export
#include "trainyard/train/monitors/scalar_printer.h"              // IWYU pragma: export
#include "trainyard/train/monitors/stats_json.h"                  // IWYU pragma: export
#include "trainyard/train/monitors/tensorboard_monitor.h"         // IWYU pragma: export
#include "trainyard/train/session/prune_training.h"               // IWYU pragma: export
#include "trainyard/train/step/classifier_loss.h"                 // IWYU pragma: export
#include "trainyard/train/step/distillation.h"                    // IWYU pragma: export
#include "trainyard/train/step/graph_tower.h"                     // IWYU pragma: export
#include "trainyard/train/step/tower.h"                           // IWYU pragma: export
#include "trainyard/train/step/tower_trainer.h"                   // IWYU pragma: export
