// An accelerator that only pretends, on the CPU. Work is done as it is handed over, copies as late as a mark allows:
// what does not wait for a copy reads old values. Which lane has to wait for what, the fake counts: it can say what
// each copy was held back behind.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include <ATen/ops/empty.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::train {

// Does what it "records" at once, and its first replay is that. `replays` counts, also of later ones, which do nothing.
class FakeAccelerator : public nn::Accelerator {
 public:
  // A copy, and how much of compute is done before it can begin.
  struct Copy {
    at::Tensor target;
    int64_t behind = 0;
  };

  at::Device device() const override { return at::kCPU; }
  std::string name() const override { return "fake"; }
  nn::AcceleratorScope use() override {
    ++uses;
    return nn::AcceleratorScope::by<int>(0);
  }
  void wait() override {}
  void end_step() override { ++steps; }
  std::unique_ptr<nn::Mark> make_mark() override { return std::make_unique<FakeMark>(*this); }
  at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) override { return at::empty(sizes, dtype); }
  void send(const at::Tensor& host, const at::Tensor& target) override {
    copies.push_back({target, lane(nn::Lane::kCopy).behind});
    waiting_.push_back({++lane(nn::Lane::kCopy).handed_over, host.clone(), target});
  }
  void will_read(const at::Tensor& tensor) override { kept.push_back(tensor); }
  // A piece of work is handed over to compute; returns how many there are.
  int64_t compute() { return ++lane(nn::Lane::kCompute).handed_over; }

  std::unique_ptr<nn::RecordedWork> record(const std::function<void()>& work) override {
    if (refuses) throw core::Error(core::ErrorCode::kUnsupported, "this cannot be recorded");
    ++records;
    work();
    struct Replay : nn::RecordedWork {
      explicit Replay(int& counted) : count(counted) {}
      void replay() override { ++count; }
      int& count;
    };
    return std::make_unique<Replay>(replays);
  }
  nn::DeviceMemory memory() override { return {.total = 1000, .limit = 1000, .free = 100, .held = 800, .used = 700}; }
  Refused refused() override { return {.asked = 300, .used = 650}; }

  int uses = 0, steps = 0, records = 0, replays = 0;
  bool refuses = false;
  std::vector<Copy> copies;
  std::vector<at::Tensor> kept;  // of will_read()

 private:
  struct LaneState {
    int64_t handed_over = 0;
    int64_t behind = 0;  // of the other lane's, what is done before anything that is handed over now
  };
  struct Waiting {
    int64_t number;
    at::Tensor host, target;
  };

  class FakeMark : public nn::Mark {
   public:
    explicit FakeMark(FakeAccelerator& fake) : fake_(fake) {}
    void set(nn::Lane lane) override {
      lane_ = lane;
      place_ = fake_.lane(lane).handed_over;
    }
    void hold_back(nn::Lane lane) override {
      if (lane == lane_) return;
      fake_.lane(lane).behind = std::max(fake_.lane(lane).behind, place_);
      if (lane == nn::Lane::kCompute) fake_.copy_until(place_);
    }

   private:
    FakeAccelerator& fake_;
    nn::Lane lane_ = nn::Lane::kCompute;
    int64_t place_ = 0;
  };

  LaneState& lane(nn::Lane which) { return lanes_[static_cast<size_t>(which)]; }
  void copy_until(int64_t number) {
    for (; !waiting_.empty() && waiting_.front().number <= number; waiting_.pop_front()) {
      waiting_.front().target.copy_(waiting_.front().host);
    }
  }

  std::array<LaneState, 2> lanes_;
  std::deque<Waiting> waiting_;
};

}  // namespace trainyard::train
