#include "trainyard/core/memory/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::core::shared_memory_test {
namespace {

constexpr size_t kPage = 4096;

TEST(SharedMemory, TwoMappingsAreOneMemory) {
  SharedMemory first = SharedMemory::create(64 * kPage);
  const SharedMemory second = SharedMemory::map(first.descriptor());
  EXPECT_EQ(second.bytes(), first.bytes());
  EXPECT_TRUE(std::all_of(second.data(), second.data() + second.bytes(), [](char byte) { return byte == 0; }));
  first.close_descriptor();
  EXPECT_EQ(first.descriptor(), -1);
  first.data()[10 * kPage] = 5;
  EXPECT_EQ(second.data()[10 * kPage], 5);
}

TEST(SharedMemory, ReleasedPagesHoldZerosForAll) {
  SharedMemory first = SharedMemory::create(64 * kPage);
  const SharedMemory second = SharedMemory::map(first.descriptor());
  EXPECT_TRUE(first.populate(0, 64 * kPage));
  std::fill(first.data(), first.data() + first.bytes(), 1);
  first.release(8 * kPage, 8 * kPage);
  EXPECT_EQ(second.data()[8 * kPage], 0);
  EXPECT_EQ(second.data()[16 * kPage - 1], 0);
  EXPECT_EQ(second.data()[8 * kPage - 1], 1);
  EXPECT_EQ(second.data()[16 * kPage], 1);
}

// Reading behind the end of a file that shrinks would end the process.
TEST(SharedMemory, ItsSizeCannotChange) {
  const SharedMemory memory = SharedMemory::create(64 * kPage);
  EXPECT_NE(::ftruncate(memory.descriptor(), kPage), 0);
  EXPECT_NE(::ftruncate(memory.descriptor(), 128 * kPage), 0);
  std::FILE* const file = std::tmpfile();
  EXPECT_THAT(message_of([&] { SharedMemory::map(::fileno(file)); }, ErrorCode::kInvalidArgument), core::Says("size"));
  std::fclose(file);
  EXPECT_THAT(message_of([] { SharedMemory::map(-1); }, ErrorCode::kUnsupported), core::Says("fstat"));
}

// Returns how many bytes this process has mapped: 20 TB of them are AddressSanitizer's own.
size_t mapped_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Returns whether a process with this limit gets an error, and no signal.
bool is_refused_with(decltype(RLIMIT_AS) resource, size_t limit) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit both{.rlim_cur = limit, .rlim_max = limit};
    if (::setrlimit(resource, &both) != 0) ::_exit(2);
    try {
      SharedMemory::create(size_t{1} << 40);
      ::_exit(1);
    } catch (const Error& error) {
      ::_exit(error.code() == ErrorCode::kUnsupported ? 0 : 3);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

TEST(SharedMemory, ALimitOfTheProcessIsAnError) {
  EXPECT_TRUE(is_refused_with(RLIMIT_AS, mapped_bytes() + (size_t{1} << 39)));
  EXPECT_TRUE(is_refused_with(RLIMIT_FSIZE, size_t{1} << 30));
}

TEST(SharedMemory, AMovedOneHasNothingLeft) {
  SharedMemory first = SharedMemory::create(2 * kPage);
  char* const data = first.data();
  const int descriptor = first.descriptor();
  const SharedMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.bytes(), 2 * kPage);
  EXPECT_EQ(second.descriptor(), descriptor);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.bytes(), 0U);
  EXPECT_EQ(first.descriptor(), -1);
}

TEST(SharedMemory, IsUnmappedAndClosedWithItsObject) {
  constexpr size_t kBytes = size_t{64} << 20;
  const size_t before = mapped_bytes();
  int descriptor = -1;
  {
    const SharedMemory memory = SharedMemory::create(kBytes);
    descriptor = memory.descriptor();
    EXPECT_GE(mapped_bytes(), before + kBytes);
    EXPECT_NE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_LT(mapped_bytes(), before + kBytes / 2);
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

// A shell that a callback starts must not keep the memory of a process that has ended.
TEST(SharedMemory, AChildDoesNotHaveIt) {
  const SharedMemory memory = SharedMemory::create(4 * kPage);
  memory.data()[0] = 1;
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(memory.data(), kPage, &resident), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::mincore(memory.data(), kPage, &resident) == -1 && errno == ENOMEM ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedMemory, MayBeAsLargeAsFilesMay) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr size_t kMost = size_t{1} << 20;
    const rlimit both{.rlim_cur = kMost, .rlim_max = kMost};
    if (::setrlimit(RLIMIT_FSIZE, &both) != 0) ::_exit(2);
    if (code_of([] { SharedMemory::create(kMost); })) ::_exit(3);
    const int free_before = ::dup(0);
    ::close(free_before);
    const std::optional<Error> error = error_of([] { SharedMemory::create(kMost + 1); });
    const int free_after = ::dup(0);
    if (!error || error->detail().where != "a limit of the size of files (ulimit -f)" ||
        error->detail().actual != std::strerror(EFBIG)) {
      ::_exit(4);
    }
    ::_exit(free_after == free_before ? 0 : 5);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace trainyard::core::shared_memory_test
