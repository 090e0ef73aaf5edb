// One parameter server: it owns a part of the values and of the optimizers' slots, and updates them with the gradients
// that workers push.
//
//   ParameterServer server({.cluster = {.workers = 2}, .address = "127.0.0.1:5000"}, {make_optimizer});
//   server.wait();  // until the last worker has left
//
// It needs no model: the first worker that registers says which tensors there are. Messages are received on gRPC's
// threads, which only copy; sums and updates run on one core::Thread, so that they have the bits of an update in one
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/parallel/servers/server_options.h"

namespace trainyard::parallel {

class ParameterServer {
 public:
  // Makes the optimizers as VariableUpdateOptions::make_optimizers do; the workers have the same ones.
  using MakeOptimizers = std::vector<std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)>>;

  // Listens. Throws kInvalidArgument, kIo when the address or the TLS files cannot be used, kUnsupported without gRPC.
  ParameterServer(ParameterServerOptions options, MakeOptimizers make_optimizers);
  // Closes all connections. Workers that have not left get an error that names this server.
  ~ParameterServer();

  uint16_t port() const;
  // Blocks until all workers have left. Throws the error that has ended the training: kPeerFailed names the worker that
  // has died, is frozen or makes no progress, kTimeout those that have never come.
  void wait();
  // Ends the training for all workers with this error, and lets wait() throw it. Any thread.
  void fail(const core::Error& error);

  // What it has done so far. Any thread.
  struct Status {
    int64_t updates = 0;                 // gradients applied, or steps; also those that found_inf has left out
    std::vector<int64_t> pushes{};       // by worker: complete ones
    int64_t begin = 0, end = 0;          // elements of the flat block that it owns; 0 before the first registration
    int64_t received_bytes = 0;          // of gradients and values, without what frames them
    int64_t copied_bytes = 0;            // of received and sent ones: copied within this process
    std::vector<std::string> workers{};  // names of those that are connected: "worker 0"
  };
  [[nodiscard]] Status status() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace trainyard::parallel
