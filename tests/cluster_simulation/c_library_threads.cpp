// The C library's threads, mutexes, conditions and clocks, as a simulated thread sees them. The program defines them,
// so that the dynamic linker takes these for all libraries, the C++ library among them.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "tests/cluster_simulation/real_call.h"
#include "tests/cluster_simulation/world.h"
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

// The headers say that some of these do not throw, or are given by attributes; the definitions need not repeat it.
#pragma GCC diagnostic ignored "-Wredundant-decls"

using trainyard::cluster_simulation::Fiber;
using trainyard::cluster_simulation::kNever;
using trainyard::cluster_simulation::kSecond;
using trainyard::cluster_simulation::Nanos;
using trainyard::cluster_simulation::World;

namespace trainyard::cluster_simulation {
namespace {

// The memory of global variables.
const std::vector<std::pair<uintptr_t, uintptr_t>>& static_memory() {
  static const auto ranges = [] {
    std::vector<std::pair<uintptr_t, uintptr_t>> found;
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
            const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            static_cast<std::vector<std::pair<uintptr_t, uintptr_t>>*>(data)->emplace_back(begin,
                                                                                           begin + segment.p_memsz);
          }
          return 0;
        },
        &found);
    return found;
  }();
  return ranges;
}

bool is_static(const void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return std::any_of(static_memory().begin(), static_memory().end(),
                     [&](const auto& range) { return address >= range.first && address < range.second; });
}

Nanos nanos(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

timespec timespec_of(Nanos time) {
  return {.tv_sec = time / kSecond, .tv_nsec = time % kSecond};
}

Nanos offset_of(World& world, clockid_t clock) {
  const Machine& machine = *world.own_process().machine;
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? machine.calendar_offset : machine.steady_offset;
}

Nanos clock_now(World& world, clockid_t clock) {
  world.pass();
  return world.now() + offset_of(world, clock);
}

// Returns the world's time of an absolute time of a clock.
Nanos until(World& world, clockid_t clock, const timespec& time) {
  return nanos(time) - offset_of(world, clock);
}

// A mutex of a global variable is one of each process: Process::static_locks. No other thread runs while one is held,
// unless its holder blocks, because all processes share what it guards.
int try_static_lock(Fiber& own, const pthread_mutex_t* mutex) {
  Process::Lock& lock = own.process.static_locks[mutex];
  const bool again = lock.owner == &own && (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE_NP;
  if (lock.owner != nullptr && !again) return EBUSY;
  lock.owner = &own;
  ++lock.count;
  ++own.static_locks;
  return 0;
}

void unlock_static(Fiber& own, const pthread_mutex_t* mutex) {
  const auto lock = own.process.static_locks.find(mutex);
  if (lock == own.process.static_locks.end()) return;
  --own.static_locks;
  if (--lock->second.count == 0) own.process.static_locks.erase(lock);
}

// Unlocks, and lets no other thread run meanwhile.
int unlock(World& world, pthread_mutex_t* mutex) {
  if (is_static(mutex)) {
    unlock_static(world.self(), mutex);
    world.wake_all(mutex);
    return 0;
  }
  static auto* const function = real<decltype(pthread_mutex_unlock)>("pthread_mutex_unlock");
  const int result = function(mutex);
  world.wake_one(mutex);
  return result;
}

int wait_for_condition(World& world, pthread_cond_t* condition, pthread_mutex_t* mutex, Nanos time) {
  world.pass();
  const bool spurious = world.draws().chance(world.options().spurious_chance);
  unlock(world, mutex);
  bool woken = true;
  if (spurious) {
    world.yield();
  } else {
    woken = world.block(condition, time);
  }
  pthread_mutex_lock(mutex);
  return woken ? 0 : ETIMEDOUT;
}

}  // namespace

// Called before the first world begins, outside of it.
void prepare_c_library() {
  (void)static_memory();
}

}  // namespace trainyard::cluster_simulation

using namespace trainyard::cluster_simulation;  // NOLINT: the definitions below are outside of all namespaces

#pragma GCC visibility push(default)  // other libraries are to find these
extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_create, "GLIBC_2.34", thread, attributes, routine, argument);
  Fiber& fiber = world->start_thread([routine, argument] { return routine(argument); });
  *thread = reinterpret_cast<pthread_t>(&fiber);
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_join, "GLIBC_2.34", thread, result);
  auto& fiber = *reinterpret_cast<Fiber*>(thread);
  world->join(fiber);
  if (result != nullptr) *result = fiber.result;
  return 0;
}

int pthread_detach(pthread_t thread) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_detach, "GLIBC_2.34", thread);
  reinterpret_cast<Fiber*>(thread)->detached = true;
  return 0;
}

pthread_t pthread_self() {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_self, nullptr);
  return reinterpret_cast<pthread_t>(&world->self());
}

int pthread_setname_np(pthread_t thread, const char* name) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_setname_np, "GLIBC_2.34", thread, name);
  reinterpret_cast<Fiber*>(thread)->name = name;
  return 0;
}

int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  if (World::entered() == nullptr) TRAINYARD_REAL(pthread_sigmask, "GLIBC_2.32", how, set, before);
  return 0;
}

// A mutex is the C library's own: all simulated threads are one thread to it, and one that is locked stays so.
int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_mutex_trylock, "GLIBC_2.34", mutex);
  world->pass();
  if (is_static(mutex)) return try_static_lock(world->self(), mutex);
  static auto* const function = real<decltype(pthread_mutex_trylock)>("pthread_mutex_trylock", "GLIBC_2.34");
  return function(mutex);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_mutex_lock, nullptr, mutex);
  while (true) {
    const int result = pthread_mutex_trylock(mutex);
    if (result != EBUSY) return result;
    world->block(mutex, kNever);
  }
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_mutex_unlock, nullptr, mutex);
  const int result = unlock(*world, mutex);
  world->pass();
  return result;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_cond_wait, "GLIBC_2.3.2", condition, mutex);
  return wait_for_condition(*world, condition, mutex, kNever);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* time) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_cond_clockwait, nullptr, condition, mutex, clock, time);
  return wait_for_condition(*world, condition, mutex, until(*world, clock, *time));
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* time) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_cond_timedwait, "GLIBC_2.3.2", condition, mutex, time);
  return wait_for_condition(*world, condition, mutex, until(*world, CLOCK_REALTIME, *time));
}

int pthread_cond_signal(pthread_cond_t* condition) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_cond_signal, "GLIBC_2.3.2", condition);
  world->wake_one(condition);
  world->pass();
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pthread_cond_broadcast, "GLIBC_2.3.2", condition);
  world->wake_all(condition);
  world->pass();
  return 0;
}

int clock_gettime(clockid_t clock, timespec* time) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(clock_gettime, "GLIBC_2.17", clock, time);
  *time = timespec_of(clock_now(*world, clock));
  return 0;
}

int gettimeofday(timeval* time, void* zone) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(gettimeofday, nullptr, time, zone);
  const timespec now = timespec_of(clock_now(*world, CLOCK_REALTIME));
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(time, nullptr, result);
  const time_t now = clock_now(*world, CLOCK_REALTIME) / kSecond;
  if (result != nullptr) *result = now;
  return now;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(clock_nanosleep, "GLIBC_2.17", clock, flags, time, rest);
  world->sleep_until((flags & TIMER_ABSTIME) != 0 ? until(*world, clock, *time) : world->now() + nanos(*time));
  return 0;
}

int nanosleep(const timespec* time, timespec* rest) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(nanosleep, nullptr, time, rest);
  // A loaded machine wakes threads later than they ask for; it also keeps the number of turns of a thread that looks
  // for news every 200 us low.
  const Nanos asked = nanos(*time);
  world->sleep_until(world->now() + asked + world->draws().between(0, 2 * kMillisecond));
  return 0;
}

int usleep(useconds_t microseconds) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(usleep, nullptr, microseconds);
  world->sleep_until(world->now() + microseconds * kMicrosecond);
  return 0;
}

int sched_yield() {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(sched_yield, nullptr);
  world->yield();
  return 0;
}

pid_t getpid() {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(getpid, nullptr);
  return 1000 + world->own_process().number;
}

// Atomic waits of the C++ library are futexes by this call. They bear to be woken without a reason.
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(list, long);
  va_end(list);
  World* const world = World::entered();
  if (world != nullptr && number == SYS_futex) {
    const auto operation = static_cast<int>(arguments[1]) & FUTEX_CMD_MASK;
    if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) world->sleep_until(world->now() + kMicrosecond * 50);
    return 0;
  }
  TRAINYARD_REAL(syscall, nullptr, number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                 arguments[5]);
}

}  // extern "C"
#pragma GCC visibility pop
