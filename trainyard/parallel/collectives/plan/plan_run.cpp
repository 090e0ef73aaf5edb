#include "trainyard/parallel/collectives/plan/plan_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;
using Action = Step::Action;
using Memory = Place::Memory;

}  // namespace

PlanMemory memory_of(const std::vector<CollectiveCall>& calls, int ranks) {
  const CollectiveCall& call = calls[0];
  PlanMemory memory{.type = call.type, .ranks = ranks};
  if (call.kind == CollectiveCall::Kind::kAllReduce) memory.op = static_cast<core::ReduceOp>(call.argument);
  if (call.kind == CollectiveCall::Kind::kAllGather) {
    std::vector<int64_t> shape = call.shape;
    shape.insert(shape.begin(), ranks);
    memory.gathered = at::empty(shape, call.type);
  }
  for (const CollectiveCall& each : calls) {
    if (each.tensor.defined()) memory.replicas.push_back(each.tensor.mutable_data_ptr());
  }
  return memory;
}

CollectiveRequest request_of(const CollectiveCall& call, const RankLayout& layout) {
  return {.kind = call.kind,
          .root = call.kind == CollectiveCall::Kind::kBroadcast ? call.argument : 0,
          .elements = call.tensor.defined() ? call.tensor.numel() : 0,
          .type = call.type,
          .layout = layout};
}

PlanRun::PlanRun(CollectivePlan plan, PlanMemory memory)
    : plan_(std::move(plan)), memory_(std::move(memory)), lanes_(plan_.lanes.size()) {
  for (const CollectivePlan::Scratch& scratch : plan_.scratch) {
    const at::ScalarType type = scratch.sums ? partial_type(memory_.type) : memory_.type;
    const bool own = scratch.in_place && type == memory_.type;
    scratch_.push_back(own ? at::Tensor() : at::empty({scratch.elements}, type));
  }
  for (const Lane& lane : plan_.lanes) left_ += static_cast<int64_t>(lane.steps.size());
}

char* PlanRun::address(const Place& place) const {
  void* base = nullptr;
  switch (place.memory) {
    case Memory::kNone:
    case Memory::kAllReplicas:
      return nullptr;
    case Memory::kReplica:
      base = memory_.replicas[static_cast<size_t>(place.index)];
      break;
    case Memory::kGathered:
      base = memory_.gathered.mutable_data_ptr();
      break;
    case Memory::kScratch: {
      const at::Tensor& scratch = scratch_[static_cast<size_t>(place.index)];
      base = scratch.defined()
                 ? scratch.mutable_data_ptr()
                 : memory_.replicas[static_cast<size_t>(plan_.scratch[static_cast<size_t>(place.index)].replica)];
      break;
    }
  }
  return static_cast<char*>(base) + static_cast<size_t>(place.begin) * element_bytes(plan_, place, memory_.type);
}

bool PlanRun::advance(MessageTransport& transport, int first_tag, bool agreed) {
  bool moved = false;
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (agreed || plan_.lanes[l].early) moved |= advance_lane(l, &transport, first_tag);
  }
  return moved;
}

void PlanRun::run_locally() {
  while (!complete()) {
    bool moved = false;
    for (size_t l = 0; l < lanes_.size(); ++l) moved |= advance_lane(l, nullptr, 0);
    if (!moved) throw Error(ErrorCode::kInternal, "the plan of a collective waits for itself");
  }
}

bool PlanRun::may_begin(const Step& step) const {
  return std::all_of(step.after.begin(), step.after.end(), [this](const After& after) {
    return after.steps <= 0 || lanes_[static_cast<size_t>(after.lane)].done >= after.steps;
  });
}

bool PlanRun::advance_lane(size_t lane, MessageTransport* transport, int first_tag) {
  const Lane& plan = plan_.lanes[lane];
  LaneRun& run = lanes_[lane];
  bool moved = false;
  const auto step_done = [&] {
    ++run.done;
    --left_;
    moved = true;
  };
  while (!run.on_their_way.empty() && run.on_their_way.front().transfer->done()) {
    end_transfer(plan.steps[static_cast<size_t>(run.done)], run.on_their_way.front());
    run.on_their_way.erase(run.on_their_way.begin());
    step_done();
  }
  while (run.begun < static_cast<int64_t>(plan.steps.size())) {
    const Step& step = plan.steps[static_cast<size_t>(run.begun)];
    const size_t most = is_transfer(step) ? static_cast<size_t>(plan.window) : 1;
    if (run.on_their_way.size() >= most || !may_begin(step)) break;
    if (is_transfer(step)) {
      run.on_their_way.push_back(begin_transfer(step, transport, first_tag + plan.stream));
      ++run.begun;
      moved = true;
      continue;
    }
    execute(step);
    ++run.begun;
    step_done();
    break;
  }
  return moved;
}

PlanRun::Message PlanRun::begin_transfer(const Step& step, MessageTransport* transport, int tag) {
  if (transport == nullptr) throw Error(ErrorCode::kInternal, "the plan of threads of one process has a message");
  const bool sends = step.action == Action::kSend;
  const Place& place = sends ? step.from : step.to;
  const at::ScalarType type = element_type(plan_, place, memory_.type), wire = wire_type(plan_, type);
  const size_t bytes = static_cast<size_t>(step.elements) * c10::elementSize(wire);
  Message message;
  void* memory = address(place);
  if (wire != type) {
    message.wire = at::empty({step.elements}, wire);
    if (sends) convert(type, memory, wire, message.wire.mutable_data_ptr(), step.elements);
    memory = message.wire.mutable_data_ptr();
  }
  if (sends) {
    ++sent_.messages;
    sent_.bytes += static_cast<int64_t>(bytes);
    message.transfer = transport->send(step.peer, tag, memory, bytes);
  } else {
    message.transfer = transport->receive(step.peer, tag, memory, bytes);
  }
  return message;
}

void PlanRun::end_transfer(const Step& step, const Message& message) {
  if (!message.wire.defined() || step.action == Action::kSend) return;
  convert(message.wire.scalar_type(), message.wire.const_data_ptr(), element_type(plan_, step.to, memory_.type),
          address(step.to), step.elements);
}

void PlanRun::execute(const Step& step) {
  switch (step.action) {
    case Action::kReduce:
      return reduce(step);
    case Action::kFinish:
      return finish(step);
    default:
      return copy(step);
  }
}

void PlanRun::finish(const Step& step) {
  void* const sums = address(step.from);
  void* const result = address(step.to);
  // A sum that lies in its place already has no other type.
  if (sums != result || memory_.op == core::ReduceOp::kMean) {
    void* const replica = memory_.replicas[static_cast<size_t>(step.to.index)];
    store_result(memory_.type, memory_.op, sums, std::span(&replica, 1), step.to.begin, step.to.begin + step.elements,
                 memory_.ranks);
  }
  round_result(step.to, step.elements);
}

void PlanRun::round_result(const Place& place, int64_t elements) {
  const at::ScalarType wire = wire_type(plan_, memory_.type);
  if (wire == memory_.type) return;
  const at::Tensor rounded = at::empty({elements}, wire);
  const auto round = [&](void* result) {
    convert(memory_.type, result, wire, rounded.mutable_data_ptr(), elements);
    convert(wire, rounded.const_data_ptr(), memory_.type, result, elements);
  };
  if (place.memory != Memory::kAllReplicas) return round(address(place));
  const size_t begin = static_cast<size_t>(place.begin) * c10::elementSize(memory_.type);
  for (void* replica : memory_.replicas) round(static_cast<char*>(replica) + begin);
}

void PlanRun::reduce(const Step& step) {
  const int64_t begin = step.values.memory == Memory::kAllReplicas ? step.values.begin : 0, end = begin + step.elements;
  const void* const before = address(step.from);
  if (step.to.memory == Memory::kAllReplicas) {
    if (step.values.memory == Memory::kNone) {
      store_result(memory_.type, memory_.op, before, memory_.replicas, step.to.begin, step.to.begin + step.elements,
                   memory_.ranks);
    } else {
      finish_reduction(memory_.type, memory_.op, before, memory_.replicas, begin, end, memory_.ranks);
    }
    return round_result(step.to, step.elements);
  }
  void* const single = address(step.values);
  const bool all = single == nullptr;
  const bool sums = element_bytes(plan_, step.values, memory_.type) != c10::elementSize(memory_.type);
  const std::span<void* const> values = all ? std::span<void* const>(memory_.replicas) : std::span(&single, 1);
  void* const to = address(step.to);
  // The partial sums of one replica without any before it are its values, and may lie where these do.
  const size_t width = element_bytes(plan_, step.values, memory_.type);
  const void* const first = static_cast<const char*>(values[0]) + static_cast<size_t>(begin) * width;
  const bool is_there = before == nullptr && values.size() == 1 && to == first;
  if (!is_there) {
    reduce_partly(sums ? partial_type(memory_.type) : memory_.type, memory_.op, before, values, begin, end, to);
  }
}

void PlanRun::copy(const Step& step) {
  const char* const from = address(step.from);
  const size_t width = element_bytes(plan_, step.to, memory_.type);
  const size_t bytes = static_cast<size_t>(step.elements) * width;
  const auto put = [&](void* to) {
    if (to != from) std::memcpy(to, from, bytes);
  };
  if (step.to.memory != Memory::kAllReplicas) return put(address(step.to));
  for (void* replica : memory_.replicas) put(static_cast<char*>(replica) + static_cast<size_t>(step.to.begin) * width);
}

bool PlanRun::quiet() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const LaneRun& lane) { return lane.on_their_way.empty(); });
}

int PlanRun::waits_for() const {
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (!lanes_[l].on_their_way.empty()) return plan_.lanes[l].steps[static_cast<size_t>(lanes_[l].done)].peer;
  }
  return -1;
}

}  // namespace trainyard::parallel
