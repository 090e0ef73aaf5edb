// Memory that several processes of one machine map: a memfd, which needs no file system and is freed by the kernel with
// the last process that maps it.
#pragma once

#include <cstddef>

namespace trainyard::core {

// A mapping. Pages hold zeros and take no memory before they are first used.
class SharedMemory {
 public:
  // Makes and maps new memory. The size cannot change afterwards. Throws kUnsupported when the system refuses.
  static SharedMemory create(size_t bytes);
  // Maps the memory of a descriptor that another process got from create(). The descriptor may be closed afterwards.
  // Throws kUnsupported when the system refuses, kInvalidArgument for a file whose size can change.
  static SharedMemory map(int descriptor);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // The descriptor to send to other processes, in the process that made the memory and until close_descriptor().
  int descriptor() const { return descriptor_; }
  void close_descriptor();

  // Takes memory for the pages of a range, huge ones where the system permits it. Returns false when there is not
  // enough; using the range would end the process then. The range begins and ends at a page.
  [[nodiscard]] bool populate(size_t offset, size_t bytes);
  // Gives the memory of the range back to the system, for all processes. The range holds zeros afterwards.
  void release(size_t offset, size_t bytes);

 private:
  SharedMemory(int descriptor, size_t bytes);

  char* data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace trainyard::core
