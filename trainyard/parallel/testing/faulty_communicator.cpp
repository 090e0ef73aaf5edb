#include "trainyard/parallel/testing/faulty_communicator.h"

#include <atomic>
#include <thread>
#include <utility>

#include <fmt/core.h>

namespace trainyard::parallel {
namespace {

// What this rank believes that it has started.
class NothingPending final : public core::PendingCollective {
 public:
  bool poll() override { return true; }
  void wait() override {}
};

class FaultyCommunicator final : public core::Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<core::Communicator> inner, const CommunicatorFault& fault)
      : inner_(std::move(inner)), fault_(fault) {
    set_deadline(inner_->deadline());
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  void all_reduce(at::Tensor tensor, core::ReduceOp op) override {
    if (arrives()) inner_->all_reduce(std::move(tensor), op);
  }
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, core::ReduceOp op) override {
    if (!arrives()) return std::make_unique<NothingPending>();
    return inner_->start_all_reduce(std::move(tensor), op);
  }
  bool progresses_in_background() const override { return inner_->progresses_in_background(); }
  void broadcast(at::Tensor tensor, int root) override {
    if (arrives()) inner_->broadcast(std::move(tensor), root);
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    if (!arrives()) return std::vector<at::Tensor>(size(), tensor);
    return inner_->all_gather(tensor);
  }
  void barrier() override {
    if (arrives()) inner_->barrier();
  }
  void abort(const core::Error& error) override { inner_->abort(error); }
  at::Tensor new_exchanged(int64_t elements, at::ScalarType dtype) override {
    return inner_->new_exchanged(elements, dtype);
  }
  double waiting_seconds() const override { return inner_->waiting_seconds(); }

 private:
  // Counts a call and does what the fault says; false when the call is to be left out.
  bool arrives() {
    inner_->set_deadline(deadline());
    if (++calls_ != fault_.call) return true;
    switch (fault_.kind) {
      case CommunicatorFault::Kind::kFail:
        throw failure();
      case CommunicatorFault::Kind::kDelay:
        std::this_thread::sleep_for(fault_.delay);
        return true;
      case CommunicatorFault::Kind::kDrop:
        return false;
    }
    return true;
  }

  core::Error failure() const {
    return {core::ErrorCode::kIo,
            {.problem = "injected communication fault", .where = fmt::format("rank {}, call {}", rank(), fault_.call)}};
  }

  const std::unique_ptr<core::Communicator> inner_;
  const CommunicatorFault fault_;
  std::atomic<int> calls_ = 0;
};

}  // namespace

std::unique_ptr<core::Communicator> make_faulty_communicator(std::unique_ptr<core::Communicator> communicator,
                                                             const CommunicatorFault& fault) {
  return std::make_unique<FaultyCommunicator>(std::move(communicator), fault);
}

}  // namespace trainyard::parallel
