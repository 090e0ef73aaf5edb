// Computes steps, rates and trainer options from the parameters and a data set.
#pragma once

#include <cstdint>

#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// ImageNet's numbers of samples in the example, for runs without a data_dir.
inline constexpr int64_t kCtlSyntheticTrainSamples = 1281982, kCtlSyntheticValidationSamples = 5000;
inline constexpr int64_t kCtlClasses = 1000;

struct CtlPlan {
  int64_t global_batch_size = 0;  // images per step, of all devices
  int64_t steps_per_epoch = 0;    // whole batches; remaining samples are dropped
  int64_t end_step = 0;           // steps of the whole training
  int64_t validation_steps = 0;   // of an evaluation; 0: none
  bool validates_each_epoch = false;
};

// Makes the plan. `validation_samples` is 0 when there are none; `ranks` is the number of processes that train
// together. Throws kInvalidArgument when an epoch has no whole batch.
CtlPlan make_ctl_plan(const TrainCtlParams& params, int64_t train_samples, int64_t validation_samples, int ranks = 1);

// Returns the example's rate: 0.1 for each 256 images of a step, rising linearly from 0 in the first 5 epochs, times
// 0.1, 0.01 and 0.001 after epochs 30, 60 and 80; the step of a boundary still has the rate before it.
optim::LearningRate ctl_learning_rate(const CtlPlan& plan);

// Returns a trainer's options: Keras' SGD, gradients averaged over devices, the loss scale with fp16.
train::TowerTrainerOptions ctl_trainer_options(const CtlModel& model, const TrainCtlParams& params, const CtlPlan& plan,
                                               const train::OpenDevices& device, const ThreadSettings& threads);

}  // namespace trainyard::frontends
