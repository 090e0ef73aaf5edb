// The main program of a fuzz target where there is no libFuzzer. Gives it each file of the folders that are named, so
// that a seed, or an input that once was a crash, stays a test. Fails when there is none.
//
//   trainyard_jpeg_fuzz [--mutations=N] [--first=N] [--seed=N] [--write=FILE] FOLDER...
//
// With --mutations it also gives it as many damaged copies of those files, without looking at what they reach: weaker
// than libFuzzer, but at the speed of the build and in each of its kinds. The n-th copy depends on seed, n and files
// alone; a crash names n, and --first=n --mutations=1 --write=FILE gives it again and keeps it.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <sys/time.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

namespace core = trainyard::core;
using Bytes = std::vector<uint8_t>;

constexpr size_t kLongest = size_t{1} << 16;
uint64_t current = 0;  // the mutation that runs

void say_which(int number) {
  char text[64];
  const int length =
      std::snprintf(text, sizeof text, "fuzz_replay: %s in mutation %llu\n",
                    number == SIGPROF ? "took 10 s" : "crashed", static_cast<unsigned long long>(current));
  static_cast<void>(!::write(STDERR_FILENO, text, static_cast<size_t>(length)));
  ::_exit(3);
}

// One change: a bit, a byte, an extreme value, a run of bytes removed, repeated, or taken from another file.
void change(Bytes& bytes, const std::vector<Bytes>& files, std::mt19937_64& random) {
  if (bytes.empty()) bytes.push_back(0);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  const auto iterator = [](Bytes& of, size_t at) { return of.begin() + static_cast<std::ptrdiff_t>(at); };
  const size_t place = below(bytes.size());
  const size_t run = std::min(bytes.size() - place, size_t{1} << below(8));
  switch (below(8)) {
    case 0:
    case 1:
      bytes[place] ^= static_cast<uint8_t>(1 << below(8));
      break;
    case 2:
      bytes[place] = static_cast<uint8_t>(random());
      break;
    case 3: {
      static constexpr uint8_t kExtremes[] = {0, 1, 0x7f, 0x80, 0xff};
      std::fill_n(iterator(bytes, place), std::min<size_t>(run, 4), kExtremes[below(std::size(kExtremes))]);
      break;
    }
    case 4:
      bytes.erase(iterator(bytes, place), iterator(bytes, place + run));
      break;
    case 5: {
      const Bytes copy(iterator(bytes, place), iterator(bytes, place + run));
      bytes.insert(iterator(bytes, below(bytes.size() + 1)), copy.begin(), copy.end());
      break;
    }
    case 6: {
      const Bytes& other = files[below(files.size())];
      if (other.empty()) break;
      const size_t from = below(other.size());
      const size_t count = std::min({other.size() - from, bytes.size() - place, run});
      std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), count, iterator(bytes, place));
      break;
    }
    default:
      if (below(8) == 0) bytes.resize(place);
  }
  if (bytes.size() > kLongest) bytes.resize(kLongest);
}

Bytes mutated(const std::vector<Bytes>& files, uint64_t seed, uint64_t number) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + number);
  Bytes bytes = files[random() % files.size()];
  for (uint64_t left = 1 + random() % 5; left > 0; --left) change(bytes, files, random);
  bytes.shrink_to_fit();
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  uint64_t mutations = 0, first = 0, seed = 1;
  std::string write_to;
  core::FileSystem& files = core::local_file_system();
  std::vector<Bytes> contents;
  try {
    for (int i = 1; i < count; ++i) {
      const std::string_view argument = arguments[i];
      const std::string value(argument.substr(std::min(argument.find('=') + 1, argument.size())));
      if (argument.starts_with("--mutations=")) {
        mutations = std::stoull(value);
      } else if (argument.starts_with("--first=")) {
        first = std::stoull(value);
      } else if (argument.starts_with("--seed=")) {
        seed = std::stoull(value);
      } else if (argument.starts_with("--write=")) {
        write_to = value;
      } else {
        for (const std::string& name : files.list(arguments[i])) {
          const std::string input = files.read_file(core::join_path(arguments[i], name));
          std::fprintf(stderr, "%s\n", name.c_str());  // before it may crash
          // A copy of its own size, so that a sanitizer sees reads behind its end.
          contents.emplace_back(input.begin(), input.end());
          LLVMFuzzerTestOneInput(contents.back().data(), contents.back().size());
        }
      }
    }
    if (contents.empty()) return 1;
    if (mutations > 0) {
      for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGPROF}) std::signal(number, say_which);
    }
    for (current = first; current < first + mutations; ++current) {
      const Bytes bytes = mutated(contents, seed, current);
      if (!write_to.empty()) {
        files.write_file_atomically(write_to, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }
      // Seconds of the processor: other programs may keep this one waiting.
      const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = 10, .tv_usec = 0}};
      ::setitimer(ITIMER_PROF, &limit, nullptr);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    const itimerval none{};
    ::setitimer(ITIMER_PROF, &none, nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_replay: %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "%zu inputs, %llu mutations\n", contents.size(), static_cast<unsigned long long>(mutations));
  return 0;
}
