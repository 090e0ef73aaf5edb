#include "trainyard/core/memory/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Error refused(const std::string& call) {
  return {ErrorCode::kUnsupported,
          {.problem = "the system gives no shared memory", .where = call, .actual = std::strerror(errno)}};
}

// The system ends a process that makes a file larger than this.
bool within_file_limit(size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

}  // namespace

SharedMemory::SharedMemory(int descriptor, size_t bytes) : bytes_(bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (mapped == MAP_FAILED) throw refused("mmap of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<char*>(mapped);
  // Children, such as a shell that a callback starts, must not keep the memory of a process that has ended.
  ::madvise(mapped, bytes, MADV_DONTFORK);
}

SharedMemory SharedMemory::create(size_t bytes) {
  const int descriptor = ::memfd_create("trainyard", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) throw refused("memfd_create");
  try {
    if (!within_file_limit(bytes)) {
      errno = EFBIG;
      throw refused("a limit of the size of files (ulimit -f)");
    }
    if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) throw refused("ftruncate");
    if (::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) throw refused("F_ADD_SEALS");
    SharedMemory memory(descriptor, bytes);
    memory.descriptor_ = descriptor;
    return memory;
  } catch (const Error&) {
    ::close(descriptor);
    throw;
  }
}

SharedMemory SharedMemory::map(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw refused("fstat");
  // Reading behind the end of a file that has shrunk would end this process.
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the size of shared memory can change",
                                              .expected = "a memfd with seals against it",
                                              .actual = "another file"});
  }
  return {descriptor, static_cast<size_t>(status.st_size)};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedMemory::~SharedMemory() {
  close_descriptor();
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void SharedMemory::close_descriptor() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

bool SharedMemory::populate(size_t offset, size_t bytes) {
  ::madvise(data_ + offset, bytes, MADV_HUGEPAGE);
  // Kernels before 5.14 do not know it: pages come at their first use there.
  return ::madvise(data_ + offset, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

void SharedMemory::release(size_t offset, size_t bytes) {
  ::madvise(data_ + offset, bytes, MADV_REMOVE);
}

}  // namespace trainyard::core
