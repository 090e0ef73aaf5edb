#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;
using core::ReduceOp;
using Clock = std::chrono::steady_clock;

std::string_view name_of(ReduceOp op) {
  static constexpr std::string_view kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<size_t>(op)];
}

// Short at first: what is in progress is mostly a launch on another thread of NCCL.
void pause(int times) {
  if (times < 1000) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(200));
}

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclLibrary> library, std::shared_ptr<NcclWatch> watch,
                   std::shared_ptr<NcclMember> member, at::Device device)
      : library_(std::move(library)), watch_(std::move(watch)), member_(std::move(member)), device_(device) {}

  int rank() const override { return member_->rank; }
  int size() const override { return member_->size; }

  void all_reduce(at::Tensor tensor, ReduceOp op) override {
    const std::string operation = fmt::format("all_reduce({}) of {}", name_of(op), describe(tensor));
    require_usable(tensor, operation);
    if (!can_reduce(tensor.scalar_type(), op)) throw unusable(operation, "a dtype that cannot be reduced so");
    call(operation, [&](NcclRank& handle) {
      return handle.all_reduce(tensor.mutable_data_ptr(), tensor.numel(), tensor.scalar_type(), op);
    });
  }

  void broadcast(at::Tensor tensor, int root) override {
    const std::string operation = fmt::format("broadcast(root {}) of {}", root, describe(tensor));
    require_usable(tensor, operation);
    if (root < 0 || root >= size()) throw unusable(operation, "a root that is no rank");
    call(operation, [&](NcclRank& handle) {
      return handle.broadcast(tensor.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes()), root);
    });
  }

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    const std::string operation = "all_gather of " + describe(tensor);
    require_usable(tensor, operation);
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin(), size());
    const at::Tensor all = at::empty(shape, tensor.options());
    call(operation, [&](NcclRank& handle) {
      return handle.all_gather(tensor.const_data_ptr(), all.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    });
    return all.unbind(0);
  }

  void barrier() override {
    if (!barrier_.defined()) barrier_ = at::zeros({1}, at::TensorOptions(device_).dtype(at::kInt));
    call("barrier",
         [&](NcclRank& handle) { return handle.all_reduce(barrier_.mutable_data_ptr(), 1, at::kInt, ReduceOp::kSum); });
    wait();
  }

  void abort(const Error& error) override { watch_->fail({ErrorCode::kPeerFailed, error.detail()}); }

  void replayed() override {
    watch_->throw_if_failed();
    mark("captured step");
  }
  void check() override { watch_->throw_if_failed(); }
  void wait() override {
    for (int times = 0;; ++times) {
      {
        std::lock_guard lock(member_->mutex);
        // After a failure nothing here will be reached; what it was is thrown below.
        if (!member_->ended) member_->drop_reached();
        if (!member_->ended && member_->pending.empty()) break;
      }
      watch_->throw_if_failed();
      pause(times);
    }
    watch_->throw_if_failed();
  }

  // Until the call that is in progress is handed over.
  void settle(const std::string& operation, NcclAnswer answer) {
    const auto began = Clock::now();
    for (int times = 0; answer.state == NcclAnswer::State::kInProgress; ++times) {
      watch_->throw_if_failed();
      if (Clock::now() - began > deadline()) give_up(watch_->timeout(*member_, operation, deadline()));
      pause(times);
      std::lock_guard lock(member_->mutex);
      if (!member_->ended) answer = member_->handle->state();
    }
    if (answer.state == NcclAnswer::State::kDone) return;
    give_up({ErrorCode::kPeerFailed,
             {.problem = "NCCL refused a collective",
              .where = fmt::format("rank {} of {}, {}", rank(), size(), operation),
              .actual = answer.error,
              .remedy = "look at the other ranks; NCCL_DEBUG=WARN says more"}});
  }

 private:
  static std::string describe(const at::Tensor& tensor) {
    if (!tensor.defined()) return "no tensor";
    return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  }

  Error unusable(const std::string& operation, std::string what) const {
    return {ErrorCode::kInvalidArgument,
            {.problem = "a collective cannot be done",
             .where = fmt::format("rank {}, {}", rank(), operation),
             .actual = std::move(what)}};
  }

  void require_usable(const at::Tensor& tensor, const std::string& operation) const {
    if (!tensor.defined()) throw unusable(operation, "an undefined tensor");
    if (tensor.device() != device_) {
      throw unusable(operation, fmt::format("a tensor on {}, not on {}", tensor.device().str(), device_.str()));
    }
    if (!tensor.is_contiguous()) throw unusable(operation, "a tensor that is not contiguous");
  }

  // Ends all ranks, and this call.
  [[noreturn]] void give_up(const Error& error) {
    watch_->fail(error);
    watch_->throw_if_failed();
    throw error;
  }

  template <typename Issue>
  void call(const std::string& operation, Issue issue) {
    watch_->throw_if_failed();
    NcclAnswer answer;
    bool recording = false;
    {
      std::lock_guard lock(member_->mutex);
      if (!member_->ended) {
        recording = member_->handle->recording();
        answer = issue(*member_->handle);
        ++member_->calls;
      }
    }
    settle(fmt::format("{}, call {}", operation, member_->calls.load()), answer);
    watch_->throw_if_failed();
    if (!recording) mark(operation);
  }

  void mark(const std::string& operation) {
    std::lock_guard lock(member_->mutex);
    if (member_->ended) return;
    member_->pending.push_back({member_->handle->mark(), operation, Clock::now(), deadline()});
  }

  const std::shared_ptr<NcclLibrary> library_;  // outlives what it has made
  const std::shared_ptr<NcclWatch> watch_;
  const std::shared_ptr<NcclMember> member_;
  const at::Device device_;
  at::Tensor barrier_;
};

void require_a_gpu_each(NcclLibrary& library, const NcclGroup& group) {
  std::map<std::string, int> rank_of;
  for (size_t i = 0; i < group.devices.size(); ++i) {
    const int rank = group.first_rank + static_cast<int>(i);
    const auto [other, is_new] = rank_of.emplace(library.identity(group.devices[i]), rank);
    if (is_new) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "two ranks have the same GPU, which NCCL does not do",
                                              .where = fmt::format("ranks {} and {}", other->second, rank),
                                              .expected = "a GPU for each rank",
                                              .actual = fmt::format("{} for both", group.devices[i].str()),
                                              .remedy = "give each rank a GPU of its own, or train on fewer"});
  }
}

}  // namespace

std::vector<std::unique_ptr<core::Communicator>> make_nccl_communicators(const std::shared_ptr<NcclLibrary>& library,
                                                                         const NcclGroup& group) {
  const int here = static_cast<int>(group.devices.size());
  if (here < 1 || group.first_rank < 0 || group.first_rank + here > group.size) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the ranks of this process are not ranks of the group",
                                              .expected = fmt::format("some of 0 to {}", group.size - 1),
                                              .actual = fmt::format("{} from {} on", here, group.first_rank)});
  }
  require_a_gpu_each(*library, group);
  const auto watch = std::make_shared<NcclWatch>(group.peer_failure);
  auto handles = library->join(group.id, group.size, group.first_rank, group.devices);
  std::vector<std::unique_ptr<NcclCommunicator>> joined;
  for (int i = 0; i < here; ++i) {
    auto member = std::make_shared<NcclMember>();
    member->rank = group.first_rank + i;
    member->size = group.size;
    member->handle = std::move(handles[static_cast<size_t>(i)]);
    watch->add(member);
    joined.push_back(std::make_unique<NcclCommunicator>(library, watch, member, group.devices[static_cast<size_t>(i)]));
    joined.back()->set_deadline(group.deadline);
  }
  for (const auto& communicator : joined) communicator->settle("joining", {NcclAnswer::State::kInProgress});
  return {std::make_move_iterator(joined.begin()), std::make_move_iterator(joined.end())};
}

}  // namespace trainyard::parallel
