// How replicas share variables: which ParameterSet each of them reads, and how their gradients are reduced. One trainer
// serves one device, many devices and many processes; changing between them is a change of the VariableUpdate alone.
//
// In a step, each replica's thread calls, in this order: forward and backward on parameters(replica), reduce(replica),
// update(replica, state). reduce() and update() are collective over all replicas, unless a mode says otherwise. Between
// processes, the all-reduce of gradients overlaps with the backward: ready(replica, parameter) says which gradients are
// complete, and reduce() waits for the rest.
//
// Several optimizers, each of a part of the parameters (OptimizerOptions::parameters), train models that take turns, as
// the generator and the discriminator of a GAN do: after a backward of the one's loss come reduce(replica) and
// update(replica, state, 0), after that of the other's reduce(replica) and update(replica, state, 1).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/parallel/variable_update/gradient_compression.h"

namespace trainyard::nn {
class Accelerator;
}

namespace trainyard::parallel {
class ServerGroup;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

enum class GradientReduction { kMean, kSum };

// Which gradients are joined into one tensor before they are all-reduced: tf_cnn_benchmarks' gradient_repacking,
// agg_small_grads_max_bytes and agg_small_grads_max_group.
struct GradientPacking {
  static constexpr int64_t kMostParts = 1 << 16;
  // Above 0: all gradients are split into this many tensors of one size, to the last of which the remainder belongs.
  // At most kMostParts.
  int64_t parts = 0;
  // Above 0: consecutive gradients of at most this many bytes each are joined. With `parts`, the parts are.
  int64_t small_bytes = 0;
  int64_t small_group = 10;  // most of them in one tensor
  // Each gradient is a tensor of its own where the members above do not join it, so that an algorithm can be chosen by
  // its size.
  bool separate = false;

  [[nodiscard]] bool joins_small() const { return small_bytes > 0 && small_group > 0; }
  // Returns true when gradients leave in buckets (VariableUpdateOptions::bucket_bytes).
  [[nodiscard]] bool is_default() const { return parts == 0 && !joins_small() && !separate; }
  void validate() const;  // throws kInvalidArgument
};

// Whether each replica updates its part of the parameters straight from the gradients of all, and keeps the optimizer's
// slots of that part alone, instead of reducing gradients for all replicas first. The values have the same bits, and
// states that are saved are the same. It works between replicas with a copy of the values each that share memory:
// threads, and processes of one machine. One optimizer, of a formula that needs nothing but the element, is required.
// Gradients are not reduced on any replica then, so that code which reads them after reduce() excludes it.
struct Sharding {
  enum class Use {
    kNever,
    kAuto,   // where it works, from kLeastBytes of parameters on; a line of the log says where it does not, and why
    kAlways  // kUnsupported where it does not work
  } use = Use::kNever;
  static constexpr int64_t kLeastBytes = int64_t{4} << 20;
  std::string
      obstacle{};  // why the caller's replicas need whole gradients: "a hook reads gradients"; empty: they do not
  // Whether gradients are finite is known after reduce() (VariableUpdate::gradients_finite), so that update() can leave
  // a step out. Otherwise it is known after update(), which saves a pass over the gradients.
  bool decides_before_update = true;
};

struct VariableUpdateOptions {
  int replicas = 1;                      // local replicas, each on a thread of its own
  nn::ParameterSetOptions parameters{};  // without accelerators this also selects the device
  // The device of each replica's parameters. Empty: all in one memory, that of parameters.device.
  std::vector<std::shared_ptr<nn::Accelerator>> accelerators{};
  // Makes one communicator for each replica here, between these replicas and, in modes with several processes, with the
  // replicas of other processes. Called when gradients are exchanged. Empty: make_thread_communicators(replicas).
  std::function<std::vector<std::unique_ptr<core::Communicator>>()> make_communicators{};
  // Make the optimizers, which share no parameter. Most trainings have one: {make}.
  std::vector<std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)>> make_optimizers{};
  std::optional<GradientReduction> reduction{};  // overrides the mode's own
  uint64_t seed = 0;
  std::function<void(nn::ParameterSet&)> start{};                 // changes initial values before they are broadcast
  std::chrono::milliseconds deadline = std::chrono::minutes(10);  // how long a replica waits for the others
  // Gradients are all-reduced in buckets of at least this many bytes when that can overlap with the backward. The same
  // on all ranks.
  int64_t bucket_bytes = int64_t{4} << 20;
  // Gradients that are packed are all-reduced in these tensors instead, each started as soon as its gradients are ready
  // where that can overlap with the backward. The same on all ranks.
  GradientPacking packing{};
  Sharding sharding{};  // the same on all ranks
  // Gradients are exchanged in this compressed form instead, when the backward has ended, by the modes whose replicas
  // have a copy of the values each and exchange gradients. Without `packing`.
  GradientCompression compression{};
  // Servers hold the values, and update them with the gradients of all processes (served_update.h). The modes with
  // servers are parameter_server, distributed_replicated, staged_parameter_server and asynchronous.
  std::shared_ptr<ServerGroup> servers{};
  void validate() const;  // throws kInvalidArgument
};

class VariableUpdate : public core::Stateful {
 public:
  // Returns the set that replica `replica` binds to. Executors declare in it before allocate().
  virtual nn::ParameterSet& parameters(int replica) = 0;

  // Call it after all executors have declared. Allocates and initialises, broadcasts replica 0's values to all others,
  // and makes the optimizers. The weight decay of an optimizer counts once in the loss whatever the reduction is: where
  // gradients are summed over n replicas it is applied n times, as tf_cnn_benchmarks does. Throws kInvalidArgument when
  // two optimizers own one parameter.
  virtual void allocate() = 0;

  // Says that the gradient of a parameter is complete: the caller neither reads nor changes it from now until reduce()
  // has returned. With several processes, starts the all-reduce of its bucket when all of the bucket's gradients are
  // ready. Optional for each parameter: reduce() starts the rest. Called on the replica's thread, once per reduce() for
  // each parameter; throws kInternal for more calls, and what reduce() throws.
  virtual void ready(int /*replica*/, nn::ParameterId /*parameter*/) {}
  // Turns the gradients of all replicas into their sum or mean. With sharded(), no replica has more than its part of
  // them, but where one is not finite.
  virtual void reduce(int replica) = 0;
  // Sets the factor that the replica's next gradients have, a loss scale, before reduce(). What compression keeps of
  // earlier gradients is converted to it. Called on the replica's thread.
  virtual void set_gradient_scale(int /*replica*/, double /*scale*/) {}
  // Applies the gradients of parameters(replica) with the optimizer of this index in make_optimizers.
  virtual void update(int replica, const optim::StepState& state, int optimizer = 0) = 0;
  // Returns true when each replica updates its part of the parameters (VariableUpdateOptions::sharding). After
  // allocate().
  [[nodiscard]] virtual bool sharded() const { return false; }
  // Returns whether the reduced gradients of the step are finite on all replicas. With sharded() it is known after
  // reduce(), or without Sharding::decides_before_update after update(). With servers it is known after update(): false
  // when a worker's were not, so that the servers have left the update out. Nothing otherwise:
  // parameters(replica).gradients() hold them. On the replica's thread.
  [[nodiscard]] virtual std::optional<bool> gradients_finite(int /*replica*/) const { return std::nullopt; }
  // Called by the replica's thread instead of reduce() and update(), each time that it has launched a recording of them
  // on the device.
  virtual void replayed(int) {}

  // Devices run asynchronously, so errors of their exchange occur later. check() throws errors that have occurred;
  // wait() blocks until all calls are done, and then does the same. Any thread. Both do nothing for replicas in host
  // memory.
  virtual void check() {}
  virtual void wait() {}

  // Calls `change` with each copy of the values, once when sets share one, and copies the result, masks included, to
  // the replicas that read it. For changes outside of a step, such as pruning. `change` must turn equal copies into
  // equal ones. After allocate(), between steps.
  virtual void change_values(const std::function<void(nn::ParameterSet&)>& change) = 0;

  // Broadcasts the variables of rank 0's first replica to all others: values, masks, statistics and the slots of
  // optimizers. All replicas are equal afterwards. After allocate(), between steps; collective when there are several
  // processes. Throws kUnsupported when a server holds the values.
  virtual void broadcast() = 0;

  // Returns the set that is saved, evaluated and exported: replica 0's, unless the mode has a separate one. Between
  // steps.
  virtual nn::ParameterSet& saved_parameters() { return parameters(0); }
  // Returns the optimizer, by its index in make_optimizers, that updates parameters(replica); null when another
  // replica's does. After allocate().
  [[nodiscard]] virtual optim::Optimizer* optimizer(int replica, int index = 0) const = 0;
  // Returns the bytes of the slots of all optimizers here, with sharded() of the parts of these replicas, and of what
  // compression keeps.
  [[nodiscard]] virtual int64_t optimizer_bytes() const = 0;
  // Returns how gradients are reduced, and kMean when they are not.
  [[nodiscard]] virtual GradientReduction reduction() const = 0;

  // Returns true when processes keep something of their own that belongs to a checkpoint: what compression has lost of
  // their gradients. The same on all ranks.
  [[nodiscard]] virtual bool gathers_state() const { return false; }
  // Collects it in rank 0's process, which saves it as long as no further step has run; it is not saved otherwise.
  // Collective over processes. Between steps.
  virtual void gather_state() {}
  // Returns the bytes of gradients that replica 0 has exchanged; nullopt when they are not compressed.
  [[nodiscard]] virtual std::optional<GradientBytes> gradient_bytes() const { return std::nullopt; }

  // Wakes the replicas that wait for a failed one, with its error.
  virtual void abort(const core::Error& error) = 0;

  // Returns the seconds that `replica` has spent waiting for others and moving gradients.
  [[nodiscard]] virtual double communication_seconds(int replica) const = 0;
  // Returns how many of these seconds passed until all others had come (core::Communicator::waiting_seconds).
  [[nodiscard]] virtual double waiting_seconds(int replica) const = 0;

  // Saves "model/<parameter or buffer>" and "optimizer/<slot>", of all optimizers, of replica 0. Loading copies them to
  // every replica. With compression also "compression/..." (gradient_compressor.h), of all ranks. Throws kUnsupported
  // for masks that would have to be kept on a device.
  void save(core::StateWriter& writer) const override = 0;
  void load(const core::StateReader& reader) override = 0;
};

// The modes:
//
//   parameter_server   one copy of the values; gradients are averaged
//   staged_parameter_server
//                      parameter_server whose replicas read the values of one update before
//   replicated         a copy each; gradients are summed, as in tf_cnn_benchmarks
//   independent        a copy each, no exchange; the others' copies are saved behind "replica/<r>/"
//   horovod            one replica a process, a copy each; gradients are averaged
//   collective_all_reduce
//                      a copy for each replica of all processes; gradients are summed
//   distributed_all_reduce
//                      collective_all_reduce, and replicated where there is one process
//   distributed_replicated
//                      a copy each; parameter servers average the gradients of all processes and hold the values
//   asynchronous       a copy each, and one of a server, which applies each replica's gradients as they come
//   (asynchronous.h)
using VariableUpdateFactory = std::function<std::unique_ptr<VariableUpdate>(const VariableUpdateOptions&)>;
using VariableUpdateRegistry = core::Registry<VariableUpdateFactory>;
VariableUpdateRegistry& variable_updates();

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
