#include "tests/cluster_simulation/stream.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <poll.h>

namespace trainyard::cluster_simulation {
namespace {

constexpr size_t kPipeBytes = 65'536;

}  // namespace

short NullDevice::ready() const {
  return POLLIN | POLLOUT;
}

std::pair<std::shared_ptr<PipeEnd>, std::shared_ptr<PipeEnd>> make_pipe(World& world) {
  const auto shared = std::shared_ptr<PipeEnd::Shared>(new PipeEnd::Shared{.world = world});
  const auto reads = std::shared_ptr<PipeEnd>(new PipeEnd(shared, false));
  const auto writes = std::shared_ptr<PipeEnd>(new PipeEnd(shared, true));
  shared->reads = reads.get();
  shared->writes = writes.get();
  return {reads, writes};
}

short PipeEnd::ready() const {
  int events = 0;
  if (writes_) {
    if (shared_->bytes.size() + PIPE_BUF <= kPipeBytes) events |= POLLOUT;
    if (shared_->reads == nullptr) events |= POLLOUT | POLLERR;
  } else {
    if (!shared_->bytes.empty()) events |= POLLIN;
    if (shared_->writes == nullptr) events |= POLLHUP;
  }
  return static_cast<short>(events);
}

void PipeEnd::close() {
  PipeEnd*& own = writes_ ? shared_->writes : shared_->reads;
  PipeEnd* const other = writes_ ? shared_->reads : shared_->writes;
  own = nullptr;
  if (other != nullptr) other->changed();
}

size_t PipeEnd::short_of(size_t count) {
  RandomDraws& draws = shared_->world.draws();
  const double chance = shared_->world.network->options().split_chance;
  return count > 1 && draws.chance(chance) ? 1 + draws.below(count - 1) : count;
}

ssize_t PipeEnd::read(char* bytes, size_t count) {
  std::string& held = shared_->bytes;
  if (held.empty()) {
    if (shared_->writes == nullptr) return 0;
    errno = EAGAIN;
    return -1;
  }
  const size_t taken = short_of(std::min(count, held.size()));
  std::copy_n(held.data(), taken, bytes);
  held.erase(0, taken);
  if (shared_->writes != nullptr) shared_->writes->changed();
  return static_cast<ssize_t>(taken);
}

ssize_t PipeEnd::write(const char* bytes, size_t count) {
  if (shared_->reads == nullptr) {
    errno = EPIPE;
    return -1;
  }
  const size_t space = kPipeBytes - shared_->bytes.size();
  if (count == 0) return 0;
  if (space == 0 || (count <= PIPE_BUF && space < count)) {
    errno = EAGAIN;
    return -1;
  }
  const size_t taken = count <= PIPE_BUF ? count : short_of(std::min(count, space));
  shared_->bytes.append(bytes, taken);
  if (shared_->record != nullptr) shared_->record->append(bytes, taken);
  shared_->reads->changed();
  return static_cast<ssize_t>(taken);
}

void OpenFile::lock(bool locked) {
  if (locked == locked_) return;
  locked_ = locked;
  machine_.file_locks[path] += locked ? 1 : -1;
}

bool OpenFile::is_locked_by_others() const {
  const auto found = machine_.file_locks.find(path);
  return found != machine_.file_locks.end() && found->second > (locked_ ? 1 : 0);
}

}  // namespace trainyard::cluster_simulation
