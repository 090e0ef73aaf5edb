#include "trainyard/core/system/standard_streams.h"

#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::standard_streams_test {
namespace {

bool is_null_device(int descriptor) {
  struct stat status {
  }, null{};
  return ::fstat(descriptor, &status) == 0 && ::stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev &&
         S_ISCHR(status.st_mode);
}

// In a child process without the descriptors in `closed` and number 3: opens them, then a file, which gets that number,
// writes to standard output and error, and returns the child's exit code: a sum of what went wrong.
int run_without(const std::vector<int>& closed, const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int descriptor : closed) ::close(descriptor);
    ::close(3);
    open_standard_streams();
    int faults = 0;
    for (const int descriptor : closed) faults |= is_null_device(descriptor) ? 0 : 1;
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    faults |= file == 3 ? 0 : 2;
    faults |= ::write(file, "row\n", 4) == 4 ? 0 : 4;
    for (const int descriptor : closed) {
      if (descriptor != 0) faults |= ::write(descriptor, "lost\n", 5) == 5 ? 0 : 8;
    }
    char byte = 0;
    const bool reads_nothing = closed.front() != 0 || ::read(0, &byte, 1) == 0;
    faults |= reads_nothing ? 0 : 16;
    ::_exit(faults);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardStreams, ClosedOnesBecomeTheNullDeviceAndFilesGetOtherNumbers) {
  const TempDir directory;
  const std::string path = directory.file("rows");
  for (const std::vector<int>& closed :
       std::vector<std::vector<int>>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    EXPECT_EQ(run_without(closed, path), 0) << closed.size() << " closed, the first is " << closed.front();
    EXPECT_EQ(local_file_system().read_file(path), "row\n");
  }
}

TEST(StandardStreams, OpenOnesStayWhatTheyAre) {
  struct stat before {
  }, after{};
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    const bool open = ::fstat(descriptor, &before) == 0;
    open_standard_streams();
    ASSERT_EQ(::fstat(descriptor, &after), 0);
    if (open) {
      EXPECT_EQ(before.st_ino, after.st_ino);
    }
  }
}

}  // namespace
}  // namespace trainyard::core::standard_streams_test
