// Runs hostile cases in this process: tests/hostile/run.py starts it. A case that crashes, takes more than ten seconds
// of the processor or asks for more memory than a gigabyte ends the program, whose last words name the case.
//
//   trainyard_hostile_cases KIND SEED FIRST COUNT
//
// Runs the cases FIRST to FIRST + COUNT - 1 of a kind, from the source folder. Writes a line "case KIND NUMBER: FAULT"
// for each whose outcome is wrong, a line "drawn COUNT WHAT" for each thing that was drawn, and ends with 1 when there
// was a fault.
#include "tests/hostile/hostile.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/temp_dir.h"

namespace {

using namespace trainyard;
using namespace trainyard::hostile;

constexpr Kind kKinds[] = {
    {"images", run_images},   {"records", run_records},         {"weights", run_weights},
    {"configs", run_configs}, {"checkpoints", run_checkpoints},
};
constexpr int kProcessorSeconds = 10, kSeconds = 300;  // of a case
constexpr uint64_t kMemory = uint64_t{1} << 30;        // bytes beyond what the process has at its start

char current[128];  // the case that runs, for a handler of signals

void say_and_end(int number) {
  static const char kSlow[] = ": took too long\n", kCrash[] = ": crashed\n";
  static_cast<void>(!::write(STDOUT_FILENO, current, std::strlen(current)));
  const bool slow = number == SIGALRM || number == SIGPROF;
  static_cast<void>(!::write(STDOUT_FILENO, slow ? kSlow : kCrash, slow ? sizeof kSlow - 1 : sizeof kCrash - 1));
  ::_exit(3);
}

void limit_memory() {
  long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    static_cast<void>(!std::fscanf(file, "%ld", &pages));
    std::fclose(file);
  }
  const rlim_t limit = static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMemory;
  const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
  ::setrlimit(RLIMIT_AS, &limits);
}

// Returns what is wrong with a case's outcome, or an empty text; `what` gets what was drawn.
std::string fault_of(const Kind& kind, uint64_t seed, uint64_t number, std::string& what) {
  try {
    const core::TempDir folder;
    Case drawn{.draw = core::RandomStream(seed, kind.name, {number}), .folder = folder.path()};
    what = kind.run(drawn);
    return "";
  } catch (const std::bad_alloc&) {
    return "asked for more memory than it may have";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

int main(int count, char** arguments) {
  const Kind* kind = nullptr;
  for (const Kind& each : kKinds) {
    if (count == 5 && each.name == arguments[1]) kind = &each;
  }
  if (kind == nullptr) {
    std::fprintf(stderr,
                 "usage: trainyard_hostile_cases images|records|weights|configs|checkpoints SEED FIRST COUNT\n");
    return 2;
  }
  const uint64_t seed = std::strtoull(arguments[2], nullptr, 10), first = std::strtoull(arguments[3], nullptr, 10),
                 cases = std::strtoull(arguments[4], nullptr, 10);
  core::log::set_level(core::log::Level::kOff);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGPROF})
    std::signal(number, say_and_end);
  limit_memory();
  std::map<std::string, int> drawn;
  int faults = 0;
  for (uint64_t number = first; number < first + cases; ++number) {
    std::snprintf(current, sizeof current, "case %s %llu", arguments[1], static_cast<unsigned long long>(number));
    ::alarm(kSeconds);
    const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = kProcessorSeconds, .tv_usec = 0}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
    std::string what = "a fault";
    const std::string fault = fault_of(*kind, seed, number, what);
    ::alarm(0);
    ++drawn[what];
    if (fault.empty()) continue;
    ++faults;
    fmt::print("{}: {}\n", current, fault);
    std::fflush(stdout);
  }
  for (const auto& [what, times] : drawn) fmt::print("drawn {} {}\n", times, what);
  return faults > 0 ? 1 : 0;
}
