#include "trainyard/core/threads/thread.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/cpu_topology.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/sanitizer.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/threads/shared_cores.h"
#include "trainyard/core/threads/thread_limit.h"

namespace trainyard::core::thread_test {
namespace {

// Members of an OpenMP team and of an ATen one, as the calling thread starts them.
int openmp_team() {
  int members = 0;
#pragma omp parallel
  {
#pragma omp single
    members = omp_get_num_threads();
  }
  return members;
}

int aten_team() {
  std::atomic<int> highest = 0;
  at::parallel_for(0, 64, 1, [&](int64_t, int64_t) {
    int seen = highest;
    while (seen < at::get_thread_num() && !highest.compare_exchange_weak(seen, at::get_thread_num())) {
    }
  });
  return highest + 1;
}

// A denormal result, computed where the compiler cannot.
bool flushes_to_zero() {
  volatile float tiny = std::numeric_limits<float>::min();
  return tiny * 0.5f == 0.0f;
}

TEST(Thread, IntraOpCountIsItsOwn) {
  if (kThreadSanitizer) GTEST_SKIP() << core::skip::kNeedsOpenMpTeams;
  apply_thread_options({.intra_op_threads = 2});
  EXPECT_EQ(openmp_team(), 2);
  EXPECT_EQ(aten_team(), 2);
  Thread thread({.name = "one", .intra_op_threads = 1}, [] {
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(openmp_team(), 1);
    EXPECT_EQ(aten_team(), 1);
  });
  thread.join();
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(openmp_team(), 2);
  EXPECT_EQ(aten_team(), 2);

  Thread wide({.name = "three", .intra_op_threads = 3}, [] { EXPECT_EQ(openmp_team(), 3); });
  wide.join();
  EXPECT_EQ(at::get_num_threads(), 2);
}

// An owner that has not used ATen yet must not take over the count of a thread that it starts.
TEST(Thread, OwnerKeepsItsCountWhenItUsesAtenLater) {
  apply_thread_options({.intra_op_threads = 2});
  std::atomic<int> count = 0;
  std::thread owner([&] {
    Thread thread({.name = "one", .intra_op_threads = 1}, [] { EXPECT_EQ(at::get_num_threads(), 1); });
    thread.join();
    count = at::get_num_threads();
  });
  owner.join();
  EXPECT_EQ(count, 2);
}

TEST(Thread, BringsAnExceptionToItsOwnerOnce) {
  Thread thread({.name = "throws"}, [] { throw Error(ErrorCode::kCorruptData, "bad record"); });
  try {
    thread.join();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  }
  EXPECT_NO_THROW(thread.join());
}

TEST(Thread, DestructorJoinsAndLogsTheError) {
  std::atomic<bool> ran = false;
  testing::internal::CaptureStderr();
  {
    Thread thread({.name = "lost"}, [&] {
      ran = true;
      throw std::runtime_error("went wrong");
    });
    Thread moved = std::move(thread);
  }
  EXPECT_TRUE(ran);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("thread 'lost' ended with an error that nobody waited for: went wrong"), std::string::npos);
}

TEST(Thread, HasItsNameCutToTheSystemsLength) {
  Thread thread({.name = "a name that is too long"}, [] {
    char name[16];
    ASSERT_EQ(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    EXPECT_STREQ(name, "a name that is ");
  });
  thread.join();
}

TEST(Thread, RunsOnItsCpusAndSoDoesItsTeam) {
  if (kThreadSanitizer) GTEST_SKIP() << core::skip::kNeedsOpenMpTeams;
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) cpu = i;
  }
  std::atomic<int> strays = 0;
  Thread thread({.name = "pinned", .intra_op_threads = 2, .placement = {.cpus = {cpu}}}, [&] {
#pragma omp parallel
    {
      if (sched_getcpu() != cpu) strays += 1;
    }
  });
  thread.join();
  EXPECT_EQ(strays, 0);
}

// The CPUs of each member of a team, as the kernel has them.
std::vector<CpuList> team_cpus(int members) {
  std::vector<CpuList> cpus(static_cast<size_t>(members));
#pragma omp parallel num_threads(members)
  cpus[static_cast<size_t>(omp_get_thread_num())] = allowed_cpus();
  return cpus;
}

TEST(Thread, TeamRunsOnItsPlaces) {
  if (kThreadSanitizer) GTEST_SKIP() << core::skip::kNeedsOpenMpTeams;
  const CpuList all = allowed_cpus();
  const CpuList a{all.front()}, b{all.back()};
  CpuList both = a;
  if (b != a) both.push_back(b.front());
  Thread thread({.name = "placed", .intra_op_threads = 3, .placement = {.places = {a, b}}}, [&] {
    EXPECT_EQ(team_cpus(3), (std::vector<CpuList>{both, b, a}));
    // gcc's runtime ends the third member here, and starts another one.
    team_cpus(2);
    apply_team_affinity();
    EXPECT_EQ(team_cpus(3), (std::vector<CpuList>{both, b, a}));
    // Placed anew, and let go.
    apply_thread_options({.name = "placed", .intra_op_threads = 3, .placement = {.places = {b, a}}});
    EXPECT_EQ(team_cpus(3), (std::vector<CpuList>{both, a, b}));
    apply_thread_options({.name = "free", .intra_op_threads = 3});
    EXPECT_EQ(team_cpus(3), (std::vector<CpuList>{all, all, all}));
  });
  thread.join();
}

// Ends the process with 7 where the second member of a team runs on the second place.
[[noreturn]] void place_a_team() {
  const CpuList all = allowed_cpus();
  const CpuList a{all.front()}, b{all.back()};
  bool placed = false;
  Thread thread({.name = "placed", .intra_op_threads = 2, .placement = {.places = {a, b}}},
                [&] { placed = team_cpus(2).at(1) == b; });
  thread.join();
  _exit(placed ? 7 : 1);
}

// In a process of its own, which has placed no thread before.
TEST(ThreadDeathTest, TheFirstPlacingOfAProcessIsForTheTeamToo) {
  if (kThreadSanitizer) GTEST_SKIP() << core::skip::kNeedsOpenMpTeams;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(place_a_team(), testing::ExitedWithCode(7), "");
}

TEST(Thread, AloneOnItsFirstPlaceAndItsOwnThreadsAnywhere) {
  const CpuList all = allowed_cpus();
  Thread thread({.name = "placed", .placement = {.places = {{all.back()}, {all.front()}}}}, [&] {
    EXPECT_EQ(allowed_cpus(), CpuList{all.back()});
    Thread free({.name = "free"}, [&] { EXPECT_EQ(allowed_cpus(), all); });
    free.join();
    EXPECT_EQ(allowed_cpus(), CpuList{all.back()});
  });
  thread.join();
}

TEST(Thread, BadOptionsAreErrorsOfJoin) {
  const auto code_of = [](ThreadOptions options) {
    Thread thread(std::move(options), [] { ADD_FAILURE() << "the body ran"; });
    try {
      thread.join();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of({.placement = {.cpus = {-1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.placement = {.cpus = {CPU_SETSIZE}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.placement = {.places = {{CPU_SETSIZE - 1}}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.intra_op_threads = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.intra_op_threads = 100'000}), ErrorCode::kInvalidArgument);
}

TEST(Thread, MayHaveAsManyIntraOpThreadsAsIsSaid) {
  const int most = most_threads();
  EXPECT_EQ(most, std::max(4 * available_cores(), 256));
  Thread last({.intra_op_threads = most}, [most] { EXPECT_EQ(at::get_num_threads(), most); });
  last.join();
  Thread more({.name = "more", .intra_op_threads = most + 1}, [] { ADD_FAILURE() << "the body ran"; });
  EXPECT_EQ(core::message_of([&] { more.join(); }),
            "a thread cannot have so many intra-op threads: thread 'more': expected 1 to " + std::to_string(most) +
                ", got " + std::to_string(most + 1));
  // Threads that are not ours begin with the last count that any thread has set.
  Thread one({.intra_op_threads = 1}, [] {});
  one.join();
}

TEST(Thread, APlaceOfItsTeamThatDoesNotExistIsAnErrorOfJoin) {
  if (kThreadSanitizer) GTEST_SKIP() << core::skip::kNeedsOpenMpTeams;
  Thread thread({.intra_op_threads = 2, .placement = {.places = {{allowed_cpus().front()}, {CPU_SETSIZE - 1}}}},
                [] { ADD_FAILURE() << "the body ran"; });
  EXPECT_EQ(core::problem_of([&] { thread.join(); }), "a team's thread cannot run on its place");
}

TEST(Thread, FlushesDenormalsToZeroAlsoInItsTeam) {
  if (kThreadSanitizer) GTEST_SKIP() << core::skip::kNeedsOpenMpTeams;
  std::atomic<int> kept = 0;
  Thread flushing({.name = "flush", .intra_op_threads = 2}, [&] {
    EXPECT_TRUE(flushes_to_zero());
#pragma omp parallel
    {
      if (!flushes_to_zero()) kept += 1;
    }
  });
  flushing.join();
  EXPECT_EQ(kept, 0);
  Thread keeping({.name = "keep", .flush_to_zero = false}, [] { EXPECT_FALSE(flushes_to_zero()); });
  keeping.join();
}

TEST(AvailableCores, AtLeastOneAndWithinAffinity) {
  EXPECT_GE(available_cores(), 1);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_LE(available_cores(), CPU_COUNT(&allowed));
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  Thread pinned({.name = "pinned", .placement = {.cpus = {first}}}, [] { EXPECT_EQ(available_cores(), 1); });
  pinned.join();
}

TEST(AvailableCores, AreSharedByProcesses) {
  const int all = available_cores();
  for (const int processes : {2, 3, 1000, 1}) {
    share_cores(processes);
    EXPECT_EQ(available_cores(), std::max(all / processes, 1)) << processes;
  }
  EXPECT_EQ(core::message_of([] { share_cores(0); }), "cores are shared by processes: expected at least 1, got 0");
}

// The memory policy of the calling thread, -1 where the kernel may not be asked.
int memory_policy() {
  int mode = -1;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode : -1;
}

TEST(Thread, PrefersTheMemoryOfItsNodeOnlyWhereItHasOne) {
  std::atomic<bool> settable = false;
  std::thread([&] { settable = ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0; }).join();
  const int node = numa_nodes(allowed_cpus()).front().number;
  std::atomic<int> without = -1, with_node = -1;
  Thread plain({.name = "plain"}, [&] { without = memory_policy(); });
  plain.join();
  Thread placed({.name = "placed", .placement = {.memory_node = node}}, [&] { with_node = memory_policy(); });
  placed.join();
  EXPECT_NE(without.load(), static_cast<int>(MPOL_PREFERRED));
  if (settable && memory_policy() != -1) {
    EXPECT_EQ(with_node.load(), static_cast<int>(MPOL_PREFERRED));
  }
}

TEST(Thread, SaysOnWhichCpusItCannotRun) {
  Thread thread({.placement = {.cpus = {-1, 7}}}, [] { ADD_FAILURE() << "the body ran"; });
  EXPECT_EQ(core::message_of([&] { thread.join(); }),
            std::string("a thread cannot run on the CPUs that were asked for: got CPUs -1, 7 (") +
                std::strerror(EINVAL) + "); choose from those that `taskset -p $$` shows");
}

TEST(Thread, TellsEachCpuOfItsPlacesOnce) {
  Thread thread({.intra_op_threads = 2, .placement = {.places = {{7, -1}, {-1}}}}, [] { ADD_FAILURE() << "it ran"; });
  const std::string message = core::message_of([&] { thread.join(); });
  EXPECT_TRUE(message.starts_with("a thread cannot run on the CPUs that were asked for: got CPUs -1, 7 (")) << message;
}

// One that has not used ATen begins with the last count that any thread has set, and its scopes end with that.
TEST(ScopedIntraOpThreads, GiveAnotherCountAndThenTheOneBefore) {
  const int last = omp_get_num_procs() + 3;  // no runtime's own
  Thread ours({.intra_op_threads = last}, [] {});
  ours.join();
  const auto counts = [] { return std::vector<int>{at::get_num_threads(), omp_get_max_threads()}; };
  std::vector<std::vector<int>> seen;
  std::thread other([&] {
    {
      const ScopedIntraOpThreads two(2);
      seen.push_back(counts());
      { const ScopedIntraOpThreads own(0); }
      { const ScopedIntraOpThreads same(2); }
      seen.push_back(counts());
      { const ScopedIntraOpThreads one(1); }
      seen.push_back(counts());
    }
    seen.push_back(counts());
  });
  other.join();
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{{2, 2}, {2, 2}, {2, 2}, {last, last}}));
  const int most = most_threads();
  for (const int wrong : {-1, most + 1}) {
    EXPECT_EQ(core::message_of([&] { const ScopedIntraOpThreads scope(wrong); }),
              "a thread cannot have so many intra-op threads: thread '': expected 1 to " + std::to_string(most) +
                  ", got " + std::to_string(wrong));
  }
  Thread one({.intra_op_threads = 1}, [] {});
  one.join();
}

TEST(Thread, OneThatIsNotOursBeginsWithTheLastCount) {
  const int last = omp_get_num_procs() + 3;
  Thread ours({.intra_op_threads = last}, [] {});
  ours.join();
  int count = 0;
  std::thread other([&] { count = at::get_num_threads(); });
  other.join();
  EXPECT_EQ(count, last);
  Thread one({.intra_op_threads = 1}, [] {});
  one.join();
}

}  // namespace
}  // namespace trainyard::core::thread_test
