// A training loop that consists of callbacks with defaults. They work unchanged on one or many devices.
//
//   Callbacks callbacks = standard_callbacks();
//   callbacks.create_dataset = [](int64_t batch_size) { return std::make_shared<MyData>(batch_size); };
//   callbacks.create_model = [](train::TowerContext& context) { return graph_model(context, my_graph()); };
//   callbacks.create_loss = [](train::TowerContext&) { return loss_of(summed_cross_entropy); };
//   train(1000, {"cpu:0", "cpu:1"}, {.batch_size = 64, .ckpt_path = "out"}, callbacks);
//
// A step, for each replica on its own thread:
//
//   batch -> input_pre -> model -> loss_pre -> loss -> grad_pre -> backward
//         -> sum over replicas -> update_pre -> update
//
// and then, after all replicas have finished the step, for one replica after the other: every_steps in the order of N,
// then at_step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/callback_loop/callbacks.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::callback_loop {

// The gradients that update_pre gets.
enum class UpdateScope {
  // The sum over replicas of the gradients of (loss_per_batch / global batch + extra_loss / replicas): one device and
  // many give the same.
  kGlobal,
  // Each replica's own, of (loss_per_batch / global batch + extra_loss), which are then summed: a clip by norm clips
  // less on more replicas, and extra_loss counts once a replica.
  kReplica,
};

struct Options {
  int64_t batch_size = 8;  // of all devices together; a multiple of their number
  double learning_rate = 0.01;
  std::string ckpt_path{};     // the folder of checkpoints; empty: none
  std::string summary_path{};  // the folder of TensorBoard's event files; empty: none
  UpdateScope update_scope = UpdateScope::kGlobal;
  uint64_t seed = 0;      // seed of initial values and of random numbers in the model
  void validate() const;  // throws kInvalidArgument
};

// Trains until `steps` steps are done over all runs, and returns the trainer. First it restores the newest checkpoint,
// if there is one, and continues its steps and data. It saves none: callbacks do. Data repeat forever.
//
// The trainer's inference_tower() runs input_pre and the model and returns the outputs "output", "output_1", ...
//
// Processes that mpirun has started train together, each on `devices` of its own, with the same steps, options and
// callbacks: two processes of a device each give what one process gives on two devices, bit for bit. batch_size is then
// that of the devices of all processes. create_dataset is called on each process and gives the batches of all.
// StepInput numbers devices over all processes, so that device 0 is that of one process alone, the one that loads the
// checkpoint, gives it to the others and has the monitors: save there. What a callback sets, it sets in each process.
//
// Throws kInvalidArgument for devices, options and callbacks that cannot be used, and for processes that do not begin
// alike; kUnsupported for a missing GPU; and what callbacks throw, with the callback's name, step and replica.
std::unique_ptr<train::TowerTrainer> train(int64_t steps, const std::vector<std::string>& devices,
                                           const Options& options, Callbacks callbacks);

}  // namespace trainyard::frontends::callback_loop
TRAINYARD_EXPORT_END
