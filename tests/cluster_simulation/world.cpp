#include "tests/cluster_simulation/world.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tests/cluster_simulation/network.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <unistd.h>

namespace trainyard::cluster_simulation {

namespace {

// Returns a line for each function that the calling thread is in: "program+0x1234".
std::string own_stack() {
  constexpr int kMost = 30;
  void* places[kMost];
  const int count = ::backtrace(places, kMost);
  std::string text;
  for (int i = 1; i < count; ++i) {
    Dl_info found{};
    if (::dladdr(places[i], &found) == 0 || found.dli_fname == nullptr) continue;
    const std::string_view path(found.dli_fname);
    text += fmt::format("      {}+{:#x} {}\n", path.substr(path.rfind('/') + 1),
                        static_cast<char*>(places[i]) - static_cast<char*>(found.dli_fbase),
                        found.dli_sname == nullptr ? "" : found.dli_sname);
  }
  return text;
}

}  // namespace

World* World::entered_ = nullptr;

World::World(const WorldOptions& options) : options_(options), draws_(options.seed) {
  constexpr Nanos kYear = 365 * 86'400 * kSecond;
  for (int i = 0; i < options.machines; ++i) {
    machines_.push_back({.number = i,
                         .name = fmt::format("machine-{}", i),
                         .steady_offset = draws_.between(kSecond, kYear),
                         .calendar_offset = 50 * kYear + draws_.between(0, kYear)});
  }
}

Fiber& World::add_fiber(Process& process, std::function<void()> body) {
  process.fibers.push_back(std::make_unique<Fiber>(process, fibers_++, std::move(body)));
  Fiber& fiber = *process.fibers.back();
  fiber.name = process.name;
  ready_.push_back(&fiber);
  return fiber;
}

Process& World::add_process(const std::string& name, Machine& machine) {
  processes_.push_back(std::make_unique<Process>());
  Process& process = *processes_.back();
  process.number = static_cast<int>(processes_.size());
  process.name = name;
  process.world = this;
  process.machine = &machine;
  trace("process starts:", name);
  return process;
}

Process& World::start_process(const std::string& name, int machine_number, std::function<void()> main) {
  Process& process = add_process(name, machine(machine_number));
  add_fiber(process, [this, main = std::move(main)] {
    main();
    end_own_process();
  });
  return process;
}

Fiber& World::start_thread(std::function<void*()> body) {
  Fiber& starter = self();
  Fiber& fiber = add_fiber(starter.process, [this, body = std::move(body)] {
    Fiber& own = self();
    own.result = body();
    own.state = Fiber::State::kEnded;
    wake_all(&own);
    own.leave();
  });
  pass();
  return fiber;
}

void World::join(Fiber& thread) {
  while (thread.state != Fiber::State::kEnded) block(&thread, kNever);
}

void World::close_all(Process& process) {
  while (!process.descriptors.empty()) {
    const std::shared_ptr<Descriptor> descriptor = process.descriptors.begin()->second;
    process.descriptors.erase(process.descriptors.begin());
    descriptor->release();
  }
}

void World::kill(Process& process) {
  if (process.ended) return;
  trace("process is killed:", process.name);
  process.was_killed = true;
  finish(process, SIGKILL);
}

void World::end_own_process(int wait_status) {
  Process& process = own_process();
  trace("process ends:", process.name, "with status", wait_status);
  finish(process, wait_status);
  if (std::exchange(self().forked, nullptr) != nullptr) self().end_fork();
  self().leave();
  std::abort();
}

void World::freeze(Process& process) {
  if (process.ended || process.frozen) return;
  trace("process freezes:", process.name);
  process.frozen = true;
}

void World::thaw(Process& process) {
  if (process.ended || !process.frozen) return;
  trace("process continues:", process.name);
  process.frozen = false;
  ready_.insert(ready_.end(), process.held.begin(), process.held.end());
  process.held.clear();
}

void World::at(Nanos time, std::function<void()> event) {
  events_.push_back({std::max(time, now_), order_++, std::move(event)});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

void World::make_ready(Fiber& fiber) {
  fiber.state = Fiber::State::kReady;
  ready_.push_back(&fiber);
}

bool World::run(Nanos until, const std::function<bool()>& over) {
  while (!over()) {
    if (now_ > until) return false;
    while (!events_.empty() && events_.front().time <= now_) {
      std::pop_heap(events_.begin(), events_.end(), std::greater<>());
      const std::function<void()> call = std::move(events_.back().call);
      events_.pop_back();
      call();
    }
    if (ready_.empty()) {
      if (events_.empty()) return false;
      now_ = std::min(events_.front().time, until + 1);
      continue;
    }
    const size_t chosen = draws_.below(ready_.size());
    Fiber* const fiber = ready_[chosen];
    ready_[chosen] = ready_.back();
    ready_.pop_back();
    if (fiber->process.ended) continue;
    if (fiber->process.frozen) {
      fiber->process.held.push_back(fiber);
      continue;
    }
    run_fiber(*fiber);
  }
  return true;
}

void World::run_fiber(Fiber& fiber) {
  ++switches_;
  note("switch", static_cast<uint64_t>(fiber.number));
  running_ = &fiber;
  entered_ = this;
  char** const real = environ;
  if (!fiber.process.environment.empty()) environ = fiber.process.environment_pointers.data();
  fiber.enter();
  environ = real;
  entered_ = nullptr;
  running_ = nullptr;
}

bool World::block(const void* key, Nanos until) {
  Fiber& fiber = self();
  fiber.state = Fiber::State::kBlocked;
  fiber.timed_out = false;
  const uint64_t block = ++fiber.block;
  if (key != nullptr) waiters_[key].push_back({&fiber, block});
  if (until != kNever) {
    at(until, [this, &fiber, block] {
      if (fiber.state != Fiber::State::kBlocked || fiber.block != block) return;
      fiber.timed_out = true;
      make_ready(fiber);
    });
  }
  fiber.leave();
  while (described_ != nullptr) {
    *described_ = own_stack();
    fiber.leave();
  }
  return !fiber.timed_out;
}

void World::wake_block(Fiber& fiber, uint64_t block) {
  if (fiber.state == Fiber::State::kBlocked && fiber.block == block && !fiber.process.ended) make_ready(fiber);
}

void World::wake_all(const void* key) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::vector<Waiter> waiters = std::move(found->second);
  waiters_.erase(found);
  for (const Waiter& waiter : waiters) wake_block(*waiter.fiber, waiter.block);
}

void World::wake_one(const void* key) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  std::vector<Waiter>& waiters = found->second;
  std::erase_if(waiters, [](const Waiter& waiter) {
    return waiter.fiber->state != Fiber::State::kBlocked || waiter.fiber->block != waiter.block ||
           waiter.fiber->process.ended;
  });
  if (waiters.empty()) {
    waiters_.erase(found);
    return;
  }
  const size_t chosen = draws_.below(waiters.size());
  const Waiter waiter = waiters[chosen];
  waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(chosen));
  if (waiters.empty()) waiters_.erase(found);
  wake_block(*waiter.fiber, waiter.block);
}

void World::pass() {
  now_ += draws_.between(50, 400);
  if (self().forked != nullptr) return;
  if (self().static_locks == 0 && options_.switch_chance > 0 && draws_.chance(options_.switch_chance)) yield();
}

void World::yield() {
  Fiber& fiber = self();
  now_ += draws_.between(100, 1000);
  make_ready(fiber);
  fiber.leave();
}

void World::sleep_until(Nanos time) {
  block(nullptr, std::max(time, now_ + kMicrosecond));
}

void World::note(const char* /*what*/, uint64_t value) {
  hash_ = (hash_ ^ value ^ static_cast<uint64_t>(now_)) * 0x100000001b3;
}

void World::print_trace(const std::string& text) const {
  std::printf("%12.6f  %-10s  %s\n", static_cast<double>(now_) / kSecond,
              running_ == nullptr ? "-" : running_->process.name.c_str(), text.c_str());
}

std::string World::stack_of(Fiber& blocked) {
  std::string text;
  described_ = &text;
  blocked.enter();
  described_ = nullptr;
  return text;
}

std::string World::describe_threads() {
  std::string text;
  for (const auto& process : processes_) {
    text += fmt::format("  {} on {}{}{}\n", process->name, process->machine->name, process->ended ? ", ended" : "",
                        process->frozen ? ", frozen" : "");
    if (process->ended) continue;
    for (const auto& fiber : process->fibers) {
      const char* const does = fiber->state == Fiber::State::kEnded     ? "has ended"
                               : fiber->state == Fiber::State::kBlocked ? "blocks"
                                                                        : "is ready";
      text += fmt::format("    thread {} ({}) {}\n", fiber->number, fiber->name, does);
      if (fiber->state == Fiber::State::kBlocked) text += stack_of(*fiber);
    }
  }
  return text;
}

}  // namespace trainyard::cluster_simulation
