// The main program of a fuzz target where there is no libFuzzer: gives it each file of the folders that are named, so
// that a seed, or an input that once was a crash, stays a test. Fails when there is none.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

int main(int count, char** arguments) {
  namespace core = trainyard::core;
  core::FileSystem& files = core::local_file_system();
  int replayed = 0;
  try {
    for (int i = 1; i < count; ++i) {
      for (const std::string& name : files.list(arguments[i])) {
        const std::string input = files.read_file(core::join_path(arguments[i], name));
        std::fprintf(stderr, "%s\n", name.c_str());  // before it may crash
        // A copy of its own size, so that a sanitizer sees reads behind its end.
        const std::vector<uint8_t> bytes(input.begin(), input.end());
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        ++replayed;
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_replay: %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "%d inputs\n", replayed);
  return replayed > 0 ? 0 : 1;
}
