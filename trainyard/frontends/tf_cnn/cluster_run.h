// The processes of a cluster that train nothing themselves: a parameter server, and the controller of
// distributed_all_reduce. Also a worker's connection with that controller.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <sstream>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::parallel {
class ProcessGroup;
}

namespace trainyard::frontends {

// Serves the workers of a cluster until the last of them has left, and prints tf_cnn_benchmarks' line. A stop ends the
// training for all workers. Throws what parallel::ParameterServer throws.
RunStatistics run_parameter_server(const TfCnnOptions& options, std::ostream& out, const core::StopToken& stop);

// Prints the lines of worker 0 until the workers have ended, and returns its statistics. A stop is passed on to the
// workers, who end behind their step. Throws kPeerFailed, which names the worker that has failed, and kTimeout when one
// has not come.
RunStatistics run_controller(const TfCnnOptions& options, std::ostream& out, const core::StopToken& stop);

// A worker's side. Collective calls are made by all workers in one order, the trainer's thread.
class ControllerLink {
 public:
  // Connects with the controller. Throws kTimeout when it does not come.
  explicit ControllerLink(const DeviceOptions& options);
  ~ControllerLink();

  // Returns the stream whose lines the controller prints; those of workers other than 0 go nowhere.
  std::ostream& out() { return lines_; }
  // Collective: sends the lines so far. Returns true when the controller was asked to stop. Throws kPeerFailed.
  bool report(int64_t step);
  // Collective, the last call: sends the rest, and the results.
  void end(const RunStatistics& statistics);
  // Tells the controller and the other workers that this one has failed.
  void fail(const core::Error& error);

 private:
  std::string take_lines();

  const bool prints_;
  std::ostringstream lines_;
  std::unique_ptr<parallel::ProcessGroup> group_;
};

// Reports behind each step, and before the first one. Add it behind what prints.
class ControllerReport : public train::Callback {
 public:
  explicit ControllerReport(std::shared_ptr<ControllerLink> link) : link_(std::move(link)) {}
  std::string name() const override { return "controller_report"; }
  void before_train(train::Trainer& trainer) override;
  void after_step(train::Trainer& trainer, const train::StepView& view) override;

 private:
  std::shared_ptr<ControllerLink> link_;
};

}  // namespace trainyard::frontends
