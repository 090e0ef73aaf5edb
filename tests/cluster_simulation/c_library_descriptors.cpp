// The C library's descriptors, pipes and events among them, as a simulated thread sees them (c_library_network.cpp has
// sockets, c_library_files.cpp has files).
#include "tests/cluster_simulation/c_library_descriptors.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/cluster_simulation/real_call.h"
#include "tests/cluster_simulation/stream.h"
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

// The headers say that some of these do not throw; the definitions need not repeat it.
#pragma GCC diagnostic ignored "-Wredundant-decls"

namespace trainyard::cluster_simulation {

bool is_simulated(int descriptor) {
  World* const world = World::entered();
  return world != nullptr && (descriptor >= kFirstDescriptor || world->own_process().descriptors.contains(descriptor));
}

bool is_interrupted(World& world) {
  if (!world.draws().chance(world.network->options().interrupt_chance)) return false;
  errno = EINTR;
  return true;
}

Descriptor* find_descriptor(World& world, int number) {
  const auto& all = world.own_process().descriptors;
  const auto found = all.find(number);
  return found == all.end() ? nullptr : found->second.get();
}

int add_descriptor(World& world, std::shared_ptr<Descriptor> descriptor) {
  auto& all = world.own_process().descriptors;
  int number = kFirstDescriptor;
  while (all.contains(number)) ++number;
  descriptor->hold();
  all[number] = std::move(descriptor);
  return number;
}

namespace {

EventCounter* find_counter(World& world, int number) {
  Descriptor* const found = find_descriptor(world, number);
  EventCounter* const counter = found == nullptr ? nullptr : found->as_counter();
  if (counter == nullptr) errno = EBADF;
  return counter;
}

// Calls `move`, which reads or writes a stream, until it has moved something or the stream does not block.
template <typename Move>
ssize_t move_bytes(World& world, int descriptor, const Move& move) {
  while (true) {
    Descriptor* const found = find_descriptor(world, descriptor);
    Stream* const stream = found == nullptr ? nullptr : found->as_stream();
    if (stream == nullptr) {
      errno = EBADF;
      return -1;
    }
    const ssize_t count = move(*stream);
    if (count >= 0 || errno != EAGAIN || !stream->blocks) return count;
    if (is_interrupted(world)) return -1;
    stream->watch(world.self(), world.next_block());
    world.block(nullptr, kNever);
  }
}

void close_descriptor(World& world, int number) {
  auto& all = world.own_process().descriptors;
  const auto found = all.find(number);
  if (found == all.end()) return;
  const std::shared_ptr<Descriptor> closed = found->second;
  all.erase(found);
  closed->release();
}

}  // namespace
}  // namespace trainyard::cluster_simulation

using namespace trainyard::cluster_simulation;  // NOLINT: the definitions below are outside of all namespaces

#pragma GCC visibility push(default)  // other libraries are to find these
extern "C" {

int eventfd(unsigned int count, int flags) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(eventfd, nullptr, count, flags);
  return add_descriptor(*world, std::make_shared<EventCounter>(count));
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(read, nullptr, descriptor, bytes, count);
  World& world = *World::entered();
  world.pass();
  Descriptor* const found = find_descriptor(world, descriptor);
  if (found != nullptr && found->as_stream() != nullptr) {
    return move_bytes(world, descriptor, [&](Stream& stream) { return stream.read(static_cast<char*>(bytes), count); });
  }
  EventCounter* const counter = find_counter(world, descriptor);
  if (!counter) return -1;
  const uint64_t value = counter->take();
  if (value == 0) {
    errno = EAGAIN;
    return -1;
  }
  std::memcpy(bytes, &value, std::min(count, sizeof(value)));
  return sizeof(value);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(write, nullptr, descriptor, bytes, count);
  World& world = *World::entered();
  world.pass();
  Descriptor* const found = find_descriptor(world, descriptor);
  if (found != nullptr && found->as_stream() != nullptr) {
    const ssize_t written = move_bytes(
        world, descriptor, [&](Stream& stream) { return stream.write(static_cast<const char*>(bytes), count); });
    Process& own = world.own_process();
    const bool ends = written < 0 && errno == EPIPE && own.handlers[SIGPIPE] != SIG_IGN;
    if (ends) world.end_own_process(SIGPIPE);
    return written;
  }
  EventCounter* const counter = find_counter(world, descriptor);
  if (!counter) return -1;
  uint64_t value = 0;
  std::memcpy(&value, bytes, std::min(count, sizeof(value)));
  counter->add(value);
  return sizeof(value);
}

int close(int descriptor) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(close, nullptr, descriptor);
  World& world = *World::entered();
  world.pass();
  if (find_descriptor(world, descriptor) == nullptr) {
    errno = EBADF;
    return -1;
  }
  close_descriptor(world, descriptor);
  return 0;
}

int pipe2(int* ends, int flags) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(pipe2, nullptr, ends, flags);
  world->pass();
  const auto [reads, writes] = make_pipe(*world);
  ends[0] = add_descriptor(*world, reads);
  ends[1] = add_descriptor(*world, writes);
  return 0;
}

int dup2(int from, int to) {
  if (!is_simulated(from)) TRAINYARD_REAL(dup2, nullptr, from, to);
  World& world = *World::entered();
  const std::shared_ptr<Descriptor> descriptor = world.own_process().descriptors.at(from);
  descriptor->hold();
  close_descriptor(world, to);
  world.own_process().descriptors[to] = descriptor;
  return to;
}

int fcntl(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (!is_simulated(descriptor)) TRAINYARD_REAL(fcntl, nullptr, descriptor, command, argument);
  World& world = *World::entered();
  if (command == F_DUPFD_CLOEXEC) return add_descriptor(world, world.own_process().descriptors.at(descriptor));
  Descriptor* const found = find_descriptor(world, descriptor);
  Stream* const stream = found == nullptr ? nullptr : found->as_stream();
  if (command == F_SETFL && stream != nullptr)
    stream->blocks = (reinterpret_cast<intptr_t>(argument) & O_NONBLOCK) == 0;
  return 0;
}

// World::exec() closes what these would have closed.
int close_range(unsigned int first, unsigned int last, int flags) {
  if (World::entered() == nullptr) TRAINYARD_REAL(close_range, nullptr, first, last, flags);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
