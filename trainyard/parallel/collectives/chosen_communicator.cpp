#include "trainyard/parallel/collectives/chosen_communicator.h"

#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/measured_all_reduce.h"
#include "trainyard/parallel/collectives/process_communicator.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;
using core::ReduceOp;

// The choice that is in force, for all replicas of this process and the engine's thread.
class CurrentChoice {
 public:
  CurrentChoice(AutomaticAllReduce automatic, RankLayout layout)
      : automatic_(std::move(automatic)),
        layout_(std::move(layout)),
        what_(fmt::format("all-reduce of gradients, {} ranks in {} processes on {} machine{}", layout_.ranks(),
                          layout_.processes(), layout_.ranks_by_host().size(),
                          layout_.ranks_by_host().size() == 1 ? "" : "s")),
        choose_(choose_algorithm) {}

  // Looks for the run's choice. Returns true when it is an exchange as without a spec, of which this process has
  // communicators of their own.
  bool refresh() {
    const std::lock_guard lock(mutex_);
    const std::string spec = automatic_.choices->add(what_, automatic_.spec);
    if (spec == spec_) return by_default_;
    const bool by_default = spec == "default";
    AlgorithmChoice choose;
    try {
      choose = AllReduceOptions{.spec = by_default ? "" : spec, .wire = automatic_.wire}.choice();
      (void)choose({.kind = CollectiveCall::Kind::kAllReduce, .layout = layout_});
    } catch (const Error& error) {
      throw Error(ErrorCode::kCorruptData, {.problem = "the run's choice of an all-reduce cannot be used",
                                            .where = fmt::format("kernels/choices of the checkpoint, {}", what_),
                                            .actual = error.what(),
                                            .remedy = "pass the all_reduce_spec of the run instead of auto"});
    }
    if (spec != automatic_.spec) {
      core::log::info("gradients are all-reduced by {}, which the checkpoint says, not by {}, which was measured here",
                      spec, automatic_.spec);
    }
    choose_ = std::move(choose);
    by_default_ = by_default && !automatic_.wire;
    spec_ = spec;
    return by_default_;
  }

  // All-reduces of messages are begun after refresh(), and end before the next choice.
  const CollectiveAlgorithm& choose(const CollectiveRequest& request) const {
    const std::lock_guard lock(mutex_);
    return choose_(request);
  }

 private:
  const AutomaticAllReduce automatic_;
  const RankLayout layout_;
  const std::string what_;
  mutable std::mutex mutex_;
  AlgorithmChoice choose_;
  std::string spec_;  // empty: not known yet
  bool by_default_ = false;
};

class ChosenCommunicator final : public core::Communicator {
 public:
  ChosenCommunicator(std::shared_ptr<CurrentChoice> choice, std::unique_ptr<core::Communicator> by_default,
                     std::unique_ptr<core::Communicator> messages)
      : choice_(std::move(choice)), by_default_(std::move(by_default)), messages_(std::move(messages)) {
    set_deadline(by_default_->deadline());
  }

  int rank() const override { return by_default_->rank(); }
  int size() const override { return by_default_->size(); }
  void all_reduce(at::Tensor tensor, ReduceOp op) override { reducing().all_reduce(std::move(tensor), op); }
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, ReduceOp op) override {
    return reducing().start_all_reduce(std::move(tensor), op);
  }
  bool progresses_in_background() const override { return true; }
  at::Tensor new_exchanged(int64_t elements, at::ScalarType type) override {
    return by_default_->new_exchanged(elements, type);
  }
  void broadcast(at::Tensor tensor, int root) override { other().broadcast(std::move(tensor), root); }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return other().all_gather(tensor); }
  void barrier() override { other().barrier(); }
  void abort(const Error& error) override { by_default_->abort(error); }
  double waiting_seconds() const override { return by_default_->waiting_seconds() + messages_->waiting_seconds(); }

 private:
  core::Communicator& with_deadline(core::Communicator& communicator) {
    communicator.set_deadline(deadline());
    return communicator;
  }
  core::Communicator& other() { return with_deadline(*by_default_); }
  core::Communicator& reducing() { return with_deadline(choice_->refresh() ? *by_default_ : *messages_); }

  const std::shared_ptr<CurrentChoice> choice_;
  const std::unique_ptr<core::Communicator> by_default_, messages_;
};

}  // namespace

std::vector<std::unique_ptr<core::Communicator>> make_automatic_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas, std::chrono::milliseconds deadline,
    const AutomaticAllReduce& automatic, const std::string& machine) {
  RankLayout layout = gather_layout(*make_communicator_of_processes(engine, deadline), replicas, machine);
  const auto choice = std::make_shared<CurrentChoice>(automatic, std::move(layout));
  auto by_default = make_measured_communicators(engine, replicas, deadline, automatic.in_rank_order, machine);
  auto messages = make_process_communicators(
      engine, replicas, deadline,
      [choice](const CollectiveRequest& request) -> const CollectiveAlgorithm& { return choice->choose(request); },
      HostExchange::kMessages, machine);
  std::vector<std::unique_ptr<core::Communicator>> communicators;
  for (size_t r = 0; r < messages.size(); ++r) {
    communicators.push_back(
        std::make_unique<ChosenCommunicator>(choice, std::move(by_default[r]), std::move(messages[r])));
  }
  return communicators;
}

}  // namespace trainyard::parallel
