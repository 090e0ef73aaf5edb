// A folder of its own for a test, gone when the test ends. For tests only.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

class TempDir {
 public:
  // Makes a new folder under $TEST_TMPDIR, $TMPDIR or /tmp. Throws kIo.
  TempDir() {
    const char* base = std::getenv("TEST_TMPDIR");
    if (base == nullptr) base = std::getenv("TMPDIR");
    path_ = join_path(base == nullptr ? "/tmp" : base, "trainyard-test-XXXXXX");
    if (::mkdtemp(path_.data()) == nullptr) throw system_error(errno, "make a temporary directory", path_);
  }
  ~TempDir() {
    try {
      local_file_system().remove_tree(path_);
    } catch (const Error&) {
      // A leftover in the temporary folder is no failure of the test.
    }
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // The path of `name` inside.
  std::string file(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

}  // namespace trainyard::core
