#include "trainyard/parallel/collectives/shared_memory/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"
#include "trainyard/parallel/collectives/plan/tensor_place.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;
using Call = CollectiveCall;

namespace {

// Elements [first, second) of `count` that a rank reduces: whole cache lines, which no two ranks write to.
std::pair<int64_t, int64_t> part_of(int rank, int ranks, int64_t count) {
  constexpr int64_t kLine = 64;
  const int64_t share = (count + ranks - 1) / ranks, part = (share + kLine - 1) / kLine * kLine;
  return {std::min(count, rank * part), std::min(count, (rank + 1) * part)};
}

void reduce_by_threads(at::ScalarType type, core::ReduceOp op, const std::vector<void*>& tensors, int64_t begin,
                       int64_t end) {
  constexpr int64_t kGrain = int64_t{1} << 18;
  at::parallel_for(begin, end, kGrain,
                   [&](int64_t first, int64_t last) { reduce_range(type, op, tensors, first, last); });
}

}  // namespace

class SharedMemoryCommunicator::Started final : public core::PendingCollective {
 public:
  Started(SharedMemoryCommunicator& communicator, uint32_t number) : communicator_(communicator), number_(number) {}

  bool poll() override {
    return waited_ || communicator_.broken_ || static_cast<int32_t>(communicator_.finished_ - number_) > 0;
  }
  void wait() override {
    if (!std::exchange(waited_, true)) communicator_.finish(number_);
  }

 private:
  SharedMemoryCommunicator& communicator_;
  const uint32_t number_;
  bool waited_ = false;
};

SharedMemoryCommunicator::SharedMemoryCommunicator(int replica, std::shared_ptr<ExchangeWatch> watch,
                                                   std::shared_ptr<SharedGroup> group)
    : rank_(group->layout().first() + replica), watch_(std::move(watch)), group_(std::move(group)) {}

void SharedMemoryCommunicator::all_reduce(at::Tensor tensor, core::ReduceOp op) {
  finish(publish(Call::all_reduce(tensor, op)));
}

std::unique_ptr<core::PendingCollective> SharedMemoryCommunicator::start_all_reduce(at::Tensor tensor,
                                                                                    core::ReduceOp op) {
  Call call = Call::all_reduce(tensor, op);
  if (open_.size() >= kMostStarted) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "too many collectives are on their way",
                                              .where = fmt::format("rank {}, {}", rank_, describe(call)),
                                              .expected = fmt::format("at most {}", kMostStarted),
                                              .actual = fmt::format("{} and this one", open_.size()),
                                              .remedy = "wait for some of them first"});
  }
  return std::make_unique<Started>(*this, publish(std::move(call)));
}

void SharedMemoryCommunicator::broadcast(at::Tensor tensor, int root) {
  finish(publish(Call::broadcast(tensor, root, size())));
}

std::vector<at::Tensor> SharedMemoryCommunicator::all_gather(const at::Tensor& tensor) {
  return finish(publish(Call::all_gather(tensor))).unbind(0);
}

void SharedMemoryCommunicator::barrier() {
  finish(publish({.kind = Call::Kind::kBarrier}));
}

void SharedMemoryCommunicator::abort(const Error& error) {
  watch_->fail({ErrorCode::kPeerFailed, error.detail()});
}

at::Tensor SharedMemoryCommunicator::new_exchanged(int64_t elements, at::ScalarType type) {
  return group_->new_tensor(elements, type);
}

std::vector<at::Tensor> SharedMemoryCommunicator::peer_views(const at::Tensor& tensor) {
  const bool usable = tensor.is_cpu() && tensor.is_contiguous();
  int64_t offset = usable ? group_->offset_of(tensor.const_data_ptr(), tensor.nbytes()) : -1;
  if (offset >= 0) group_->keep(offset);
  if (tensor.numel() == 0) offset = 0;  // anywhere: it has no memory
  std::vector<at::Tensor> views;
  for (const TensorPlace& place : gather_places(*this, tensor, offset)) {
    views.push_back(group_->view(place.address, place.shape, tensor.scalar_type()));
  }
  return views;
}

uint32_t SharedMemoryCommunicator::publish(Call call) {
  watch_->throw_if_failed();
  if (broken_) throw Error(ErrorCode::kPeerFailed, broken_->detail());
  const bool usable = call.problem.empty() && call.tensor.defined();
  const int64_t offset = usable ? group_->offset_of(call.tensor.const_data_ptr(), call.tensor.nbytes()) : -1;
  SharedRank& own = group_->rank(rank_);
  const uint32_t number = own.called.value();
  own.call(number).set(call, offset);
  open_.push_back({.call = std::move(call), .offset = offset});
  group_->note_processor(rank_);
  own.called.increment();
  return number;
}

at::Tensor SharedMemoryCommunicator::finish(uint32_t number) {
  const auto longest = std::min<std::chrono::milliseconds>(deadline(), std::chrono::hours(24 * 365));
  const auto end = Clock::now() + longest;
  at::Tensor gathered;
  while (static_cast<int32_t>(finished_ - number) <= 0) {
    if (broken_) throw Error(ErrorCode::kPeerFailed, broken_->detail());
    try {
      const ExchangeTurns turns(*watch_);
      execute(open_.front(), end);
    } catch (const Error& error) {
      broken_ = error;
      throw;
    } catch (...) {
      broken_ = Error(ErrorCode::kInternal, "a collective has ended within its work");
      throw;
    }
    gathered = open_.front().gathered;
    open_.pop_front();
    ++finished_;
  }
  return gathered;
}

void SharedMemoryCommunicator::execute(Open& open, Clock::time_point end) {
  static constexpr const char* kNames[] = {"all-reduce", "broadcast", "gather", "barrier"};
  const Call& call = open.call;
  if (group_->begin(finished_)) watch_->begin_meeting(kNames[static_cast<size_t>(call.kind)]);
  const Clock::time_point came = Clock::now();
  await(&SharedRank::called, finished_ + 1, call, end);
  waiting_seconds_ += core::seconds_since(came);
  const std::optional<Error> refusal = compare();
  if (!refusal && call.kind == Call::Kind::kAllReduce) reduce(open, end);
  if (!refusal && call.kind == Call::Kind::kBroadcast) copy_from_root(open, end);
  if (!refusal && call.kind == Call::Kind::kAllGather) gather(open, end);
  if (group_->end(finished_)) watch_->end_meeting();
  if (refusal) throw Error(*refusal);
}

std::optional<Error> SharedMemoryCommunicator::compare() const {
  const SharedCall& first = call_of(0);
  bool fit = true;
  for (int r = 0; r < size(); ++r) fit = fit && call_of(r).fits(first);
  if (fit) return std::nullopt;
  std::vector<Call> calls;
  for (int r = 0; r < size(); ++r) calls.push_back(call_of(r).get());
  return disagreement(calls);
}

template <typename Step>
void SharedMemoryCommunicator::in_parts(const Open& open, Clock::time_point end, Staging staging, Step step) {
  const int64_t elements = open.call.tensor.numel();
  const size_t width = open.call.tensor.element_size();
  const bool staged = open.offset < 0;
  bool any_staged = false;
  for (int r = staging.first; r < staging.last; ++r) any_staged |= call_of(r).offset < 0;
  const int64_t longest = any_staged ? static_cast<int64_t>(SharedGroup::kStagingBytes / width) : elements;
  std::vector<void*> memory(static_cast<size_t>(size()));
  for (int64_t begin = 0; begin < elements; begin += longest) {
    const int64_t count = std::min(longest, elements - begin);
    const size_t offset = static_cast<size_t>(begin) * width, bytes = static_cast<size_t>(count) * width;
    for (int r = 0; r < size(); ++r) {
      const int64_t place = call_of(r).offset;
      memory[static_cast<size_t>(r)] =
          place < 0 ? group_->staging(r) : group_->at(place + static_cast<int64_t>(offset));
    }
    char* const own = static_cast<char*>(open.call.tensor.mutable_data_ptr()) + offset;
    const auto copy = [&](void* to, const void* from) {
      std::memcpy(to, from, bytes);
      group_->copied_bytes() += static_cast<int64_t>(bytes);
    };
    if (staged && staging.in) copy(group_->staging(rank_), own);
    if (any_staged) end_phase(open.call, end);
    step(memory, begin, count);
    end_phase(open.call, end);
    if (staged && staging.out) copy(own, group_->staging(rank_));
  }
}

void SharedMemoryCommunicator::reduce(const Open& open, Clock::time_point end) {
  const auto op = static_cast<core::ReduceOp>(open.call.argument);
  in_parts(open, end, {.first = 0, .last = size(), .in = true, .out = true},
           [&](const std::vector<void*>& memory, int64_t, int64_t count) {
             const auto [first, last] = part_of(rank_, size(), count);
             if (first < last) reduce_by_threads(open.call.type, op, memory, first, last);
           });
}

void SharedMemoryCommunicator::copy_from_root(const Open& open, Clock::time_point end) {
  const int root = open.call.argument;
  const size_t width = open.call.tensor.defined() ? open.call.tensor.element_size() : 1;
  in_parts(open, end, {.first = root, .last = root + 1, .in = rank_ == root, .out = false},
           [&](const std::vector<void*>& memory, int64_t begin, int64_t count) {
             if (rank_ == root) return;
             char* const own = static_cast<char*>(open.call.tensor.mutable_data_ptr());
             std::memcpy(own + static_cast<size_t>(begin) * width, memory[static_cast<size_t>(root)],
                         static_cast<size_t>(count) * width);
           });
}

void SharedMemoryCommunicator::gather(Open& open, Clock::time_point end) {
  std::vector<int64_t> shape = open.call.shape;
  shape.insert(shape.begin(), size());
  open.gathered = at::empty(shape, open.call.type);
  const size_t width = open.call.tensor.element_size(), bytes = open.call.tensor.nbytes();
  in_parts(open, end, {.first = 0, .last = size(), .in = true, .out = false},
           [&](const std::vector<void*>& memory, int64_t begin, int64_t count) {
             char* to = static_cast<char*>(open.gathered.mutable_data_ptr()) + static_cast<size_t>(begin) * width;
             for (const void* from : memory) {
               std::memcpy(to, from, static_cast<size_t>(count) * width);
               to += bytes;
             }
           });
}

void SharedMemoryCommunicator::end_phase(const Call& call, Clock::time_point end) {
  group_->note_processor(rank_);
  group_->rank(rank_).phase.increment();
  await(&SharedRank::phase, ++phase_, call, end);
}

void SharedMemoryCommunicator::await(SharedCount SharedRank::*count, uint32_t target, const Call& call,
                                     Clock::time_point end) {
  for (int r = 0; r < size(); ++r) {
    if ((group_->rank(r).*count).reached(target)) continue;
    group_->await(r, count, target, [&] {
      watch_->check();
      if (Clock::now() >= end) give_up(count, target, call);
    });
  }
}

void SharedMemoryCommunicator::give_up(SharedCount SharedRank::*count, uint32_t target, const Call& call) {
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    if (!(group_->rank(r).*count).reached(target)) missing.push_back(r);
  }
  // A rank whose phase is missing has called, or none would be within the work.
  const bool within = count == &SharedRank::phase;
  const std::string ranks = fmt::format("rank {}", fmt::join(missing, ", "));
  const Error error(ErrorCode::kTimeout,
                    {.problem = fmt::format("rank {} waited {:.3g} s for its peers", rank_,
                                            std::chrono::duration<double>(deadline()).count()),
                     .where = describe(call),
                     .actual = within ? ranks + " has called and has not done its part" : "no call from " + ranks,
                     .remedy = "look for what stopped them, or raise the deadline"});
  watch_->fail(error);
  throw Error(error);
}

}  // namespace trainyard::parallel
