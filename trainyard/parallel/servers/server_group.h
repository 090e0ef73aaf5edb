// A worker's side of all parameter servers of a cluster: registers, pushes gradients and reads values. Each server owns
// a contiguous part of the flat blocks of nn::ParameterSet; calls act on all servers at once, in chunks that are
// smaller than gRPC's limit of 4 MB.
//
//   ServerGroup servers({.cluster = {.workers = 2}, .worker = 1, .addresses = {"127.0.0.1:5000"}});
//   servers.join(set, {optimizer.get()});  // waits for servers that are late
//   servers.push(set.gradients(), {.learning_rate = 0.1}, ...);
//   servers.read_values(set.values());
//   servers.leave();
//
// Errors: kPeerFailed names the server or the worker that has failed, kTimeout a server that has never come.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/step_state.h"
#include "trainyard/parallel/servers/server_options.h"

namespace trainyard::parallel {

class ProcessGroup;

// For one thread, apart from abort() and updates().
class ServerGroup {
 public:
  // Opens no connection yet. Throws kInvalidArgument, kIo for TLS files that cannot be read, kUnsupported without gRPC.
  explicit ServerGroup(ServerGroupOptions options);
  // Servers hear that this worker has failed, unless it has left.
  ~ServerGroup();

  const ServerGroupOptions& options() const;

  // Registers at all servers with the parameters of `set` and the settings of its optimizers, and waits for servers
  // that are late: a line of the log says which. Throws kTimeout when one has not come within the start's deadline,
  // kInvalidArgument when a server refuses: another cluster, other optimizers than its own, other parameters than those
  // of the first worker, a worker that is there already.
  void join(const nn::ParameterSet& set, const std::vector<optim::Optimizer*>& optimizers);
  // Starts the training: the chief writes the values, slots and counts of updates of its optimizers to the servers. The
  // others wait until it has, and read the values. After join(), and on the chief also between steps to replace all.
  void start(nn::ParameterSet& set, const std::vector<optim::Optimizer*>& optimizers, int64_t updates);

  // Pushes `gradients` [total], of the set's dtype and in host memory, for this worker's next step, and returns when
  // the values of the mode can be read: kSynchronous behind the update of all, kStaged behind the one before, and
  // kAsynchronous behind that of this push. `optimizer` carries the hyperparameters, and which parameters are
  // trainable. Returns whether the update was left out because a worker had found gradients that are not finite;
  // always false in kStaged, where it is not known yet.
  bool push(const at::Tensor& gradients, const optim::StepValues& values, const optim::Optimizer& optimizer, int index);
  // Reads the values that this worker's next step uses into `values` [total].
  void read_values(const at::Tensor& values);
  // Reads the servers' own values, slots and counts of updates, which a checkpoint holds. `values` [total] may be that
  // of another set. No update happens meanwhile. Returns the number of updates so far.
  int64_t read_state(const at::Tensor& values, const std::vector<optim::Optimizer*>& optimizers);
  // kStaged, on the chief: replaces the values that workers read in their next step.
  void write_staged(const at::Tensor& values);
  // The chief writes values that it has changed between steps.
  void write_values(const at::Tensor& values);
  // Returns when all workers have called it. Collective, between steps; not in kAsynchronous.
  void meet();

  // Returns the number of updates of server 0, 0 before join(): in kAsynchronous the global step of all workers. Any
  // thread.
  [[nodiscard]] int64_t updates();

  // Ends this worker's part: servers end when all workers have left. Does not throw.
  void leave();
  // Ends the training for all workers with this error, and wakes the thread that waits here. Any thread.
  void abort(const core::Error& error);
  // Lets this and the workers' process group fail together: an error of one ends the other. So servers, and workers
  // that hear of the error by one of the two only, learn the reason before connections close.
  void fail_with(std::shared_ptr<ProcessGroup> processes);

  // Seconds that push() has waited for other workers and for updates, of all its time.
  [[nodiscard]] double waiting_seconds() const;
  // Bytes of tensors that were copied within this process since it was made; what is received is copied once.
  [[nodiscard]] int64_t copied_bytes() const;
  // Parts of the flat block by server: begin of each, and the end of the last. After join().
  [[nodiscard]] std::vector<int64_t> boundaries() const;

 private:
  class Connections;
  std::unique_ptr<Connections> connections_;
};

}  // namespace trainyard::parallel
