#include "trainyard/parallel/simulation/plan_timeline.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

using Action = Step::Action;

class Timeline {
 public:
  Timeline(const std::vector<CollectivePlan>& plans, at::ScalarType type, const LinkModel& link)
      : plans_(plans), type_(type), link_(link), processes_(plans.size()) {
    for (size_t p = 0; p < plans.size(); ++p) {
      processes_[p].lanes.resize(plans[p].lanes.size());
      for (const Lane& lane : plans[p].lanes) processes_[p].left += lane.steps.size();
      wake(heard_at(p), p);
      wake(answered_at(p), p);
    }
  }

  double run() {
    double end = answered_at(0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.message) take_in(event);
      Process& process = processes_[event.process];
      if (event.message || process.left == 0) continue;
      advance(event.process, event.time);
      if (process.left == 0) end = std::max(end, event.time);
    }
    const auto stuck = std::find_if(processes_.begin(), processes_.end(), [](const Process& p) { return p.left > 0; });
    if (stuck == processes_.end()) return end;
    throw core::Error(core::ErrorCode::kInternal, {.problem = "the plans of a collective wait for each other",
                                                   .where = "process " + std::to_string(stuck - processes_.begin())});
  }

 private:
  // Times at which the messages between two processes on a stream arrive.
  using Arrivals = std::vector<double>;
  // A process may have something to do, or the first byte of a message comes to it.
  struct Event {
    double time = 0;
    size_t process = 0;
    Arrivals* message = nullptr;
    double on_link = 0;  // seconds for which the message passes the link
    bool operator>(const Event& other) const { return time > other.time; }
  };
  struct Transfer {
    double end = 0;                      // of one that sends
    const Arrivals* arrivals = nullptr;  // of one that receives: message `number` of these
    size_t number = 0;
    bool done(double now) const {
      return arrivals == nullptr ? end <= now : arrivals->size() > number && (*arrivals)[number] <= now;
    }
  };
  struct LaneRun {
    size_t begun = 0, done = 0;
    std::deque<Transfer> pending;
  };
  struct Process {
    std::vector<LaneRun> lanes;
    size_t left = 0;                             // steps
    double sends_until = 0, receives_until = 0;  // when the two directions of its link are free
  };

  // When the processes up to this one are known to agree, and when all are.
  double heard_at(size_t process) const { return link_.latency_seconds * static_cast<double>(process); }
  double answered_at(size_t process) const {
    return link_.latency_seconds * static_cast<double>(2 * (plans_.size() - 1) - process);
  }
  void wake(double time, size_t process) { events_.push({.time = time, .process = process}); }

  void advance(size_t p, double now) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t l = 0; l < processes_[p].lanes.size(); ++l) {
        const bool may = now >= (plans_[p].lanes[l].early ? heard_at(p) : answered_at(p));
        if (may) moved |= advance_lane(p, l, now);
      }
    }
  }

  bool advance_lane(size_t p, size_t l, double now) {
    const Lane& lane = plans_[p].lanes[l];
    LaneRun& run = processes_[p].lanes[l];
    bool moved = false;
    const auto step_done = [&] {
      ++run.done;
      --processes_[p].left;
      moved = true;
    };
    while (!run.pending.empty() && run.pending.front().done(now)) {
      run.pending.pop_front();
      step_done();
    }
    while (run.begun < lane.steps.size()) {
      const Step& step = lane.steps[run.begun];
      const bool sends = step.action == Action::kSend, transfers = is_transfer(step);
      const size_t most = transfers ? static_cast<size_t>(lane.window) : 1;
      if (run.pending.size() >= most || !may_begin(p, step)) break;
      ++run.begun;
      if (transfers) {
        run.pending.push_back(sends ? send(p, lane.stream, step, now) : receive(p, lane.stream, step));
        moved = true;
      } else {
        step_done();
      }
    }
    return moved;
  }

  bool may_begin(size_t p, const Step& step) const {
    return std::all_of(step.after.begin(), step.after.end(), [&](const After& after) {
      return after.steps <= 0 ||
             processes_[p].lanes[static_cast<size_t>(after.lane)].done >= static_cast<size_t>(after.steps);
    });
  }

  Transfer send(size_t p, int stream, const Step& step, double now) {
    const CollectivePlan& plan = plans_[p];
    const auto width = c10::elementSize(wire_type(plan, element_type(plan, step.from, type_)));
    const double on_link = link_.seconds(0, static_cast<double>(step.elements) * static_cast<double>(width));
    const auto to = static_cast<size_t>(step.peer);
    const double begin = std::max(now, processes_[p].sends_until);
    processes_[p].sends_until = begin + on_link;
    wake(begin + on_link, p);
    events_.push({.time = begin + link_.latency_seconds,
                  .process = to,
                  .message = &arrivals_[{p, to, stream}],
                  .on_link = on_link});
    return {.end = begin + on_link};
  }

  // The first byte of a message has come: the others follow when the link has room for them.
  void take_in(const Event& event) {
    double& until = processes_[event.process].receives_until;
    until = std::max(until, event.time) + event.on_link;
    event.message->push_back(until);
    wake(until, event.process);
  }

  Transfer receive(size_t p, int stream, const Step& step) {
    const auto channel = std::tuple(static_cast<size_t>(step.peer), p, stream);
    return {.arrivals = &arrivals_[channel], .number = received_[channel]++};
  }

  using Channel = std::tuple<size_t, size_t, int>;  // from, to, stream
  const std::vector<CollectivePlan>& plans_;
  const at::ScalarType type_;
  const LinkModel link_;
  std::vector<Process> processes_;
  std::map<Channel, Arrivals> arrivals_;
  std::map<Channel, size_t> received_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

double plan_seconds(const std::vector<CollectivePlan>& plans, at::ScalarType type, const LinkModel& link) {
  link.validate();
  return plans.empty() ? 0 : Timeline(plans, type, link).run();
}

}  // namespace trainyard::parallel
