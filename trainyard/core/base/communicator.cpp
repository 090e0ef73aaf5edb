#include "trainyard/core/base/communicator.h"

#include <utility>

namespace trainyard::core {
namespace {

// An all-reduce of ranks that can only do it together, each within its call.
class AllReduceInWait final : public PendingCollective {
 public:
  AllReduceInWait(Communicator& communicator, at::Tensor tensor, ReduceOp op)
      : communicator_(communicator), tensor_(std::move(tensor)), op_(op) {}

  bool poll() override { return called_; }
  void wait() override {
    if (!std::exchange(called_, true)) communicator_.all_reduce(tensor_, op_);
  }

 private:
  Communicator& communicator_;
  const at::Tensor tensor_;
  const ReduceOp op_;
  bool called_ = false;
};

}  // namespace

std::unique_ptr<PendingCollective> Communicator::start_all_reduce(at::Tensor tensor, ReduceOp op) {
  return std::make_unique<AllReduceInWait>(*this, std::move(tensor), op);
}

}  // namespace trainyard::core
