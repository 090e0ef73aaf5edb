// The C library's sockets and events, as a simulated thread sees them (c_library_threads.cpp has the rest). Only what
// the library calls; all sockets are of TCP and do not block.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/cluster_simulation/c_library_descriptors.h"
#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/real_call.h"
#include "tests/cluster_simulation/stream.h"
#include "tests/cluster_simulation/world.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace trainyard::cluster_simulation {
namespace {

Socket* find_socket(World& world, int number) {
  Descriptor* const found = find_descriptor(world, number);
  Socket* const socket = found == nullptr ? nullptr : found->as_socket();
  if (socket == nullptr) errno = EBADF;
  return socket;
}

// Machine i has the address 10.0.0.(i + 1).
constexpr uint32_t kFirstAddress = 0x0a000001;

int machine_of(const World& world, const Machine& own, uint32_t address) {
  if (address >> 24 == IN_LOOPBACKNET) return own.number;
  const auto number = static_cast<int64_t>(address) - kFirstAddress;
  return number >= 0 && number < world.options().machines ? static_cast<int>(number) : -1;
}

// What getaddrinfo() gives and freeaddrinfo() takes back.
struct FoundAddress {
  addrinfo info{};
  sockaddr_in address{};
};

short ready_events(World& world, const pollfd& asked) {
  if (asked.fd < 0) return 0;
  const Descriptor* const descriptor = find_descriptor(world, asked.fd);
  if (descriptor == nullptr) return POLLNVAL;
  return static_cast<short>(descriptor->ready() & (asked.events | POLLERR | POLLHUP));
}

}  // namespace

uint32_t address_of(const Machine& machine) {
  return kFirstAddress + static_cast<uint32_t>(machine.number);
}

}  // namespace trainyard::cluster_simulation

using namespace trainyard::cluster_simulation;  // NOLINT: the definitions below are outside of all namespaces

#pragma GCC visibility push(default)  // other libraries are to find these
extern "C" {

int socket(int domain, int type, int protocol) {
  World* const world = World::entered();
  if (world == nullptr || domain != AF_INET) TRAINYARD_REAL(socket, nullptr, domain, type, protocol);
  world->pass();
  const auto made = std::make_shared<Socket>(*world->network, *world->own_process().machine);
  world->network->add(made);
  return add_descriptor(*world, made);
}

int bind(int descriptor, const sockaddr* address, socklen_t size) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(bind, nullptr, descriptor, address, size);
  World& world = *World::entered();
  Socket* const own = find_socket(world, descriptor);
  return own ? own->bind(ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port)) : -1;
}

int listen(int descriptor, int backlog) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(listen, nullptr, descriptor, backlog);
  World& world = *World::entered();
  Socket* const own = find_socket(world, descriptor);
  if (!own) return -1;
  world.trace("listens at port", own->port());
  return own->listen();
}

int accept4(int descriptor, sockaddr* address, socklen_t* size, int flags) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(accept4, nullptr, descriptor, address, size, flags);
  World& world = *World::entered();
  world.pass();
  Socket* const own = find_socket(world, descriptor);
  if (!own) return -1;
  if (auto accepted = own->accept()) {
    world.trace("accepts a connection of machine", accepted->peer_machine());
    return add_descriptor(world, std::move(accepted));
  }
  errno = EAGAIN;
  return -1;
}

int connect(int descriptor, const sockaddr* address, socklen_t size) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(connect, nullptr, descriptor, address, size);
  World& world = *World::entered();
  world.pass();
  Socket* const own = find_socket(world, descriptor);
  if (!own) return -1;
  const auto* const in = reinterpret_cast<const sockaddr_in*>(address);
  const int machine = machine_of(world, *world.own_process().machine, ntohl(in->sin_addr.s_addr));
  if (machine >= 0) return own->connect(machine, ntohs(in->sin_port));
  errno = ENETUNREACH;
  return -1;
}

int setsockopt(int descriptor, int level, int name, const void* value, socklen_t size) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(setsockopt, nullptr, descriptor, level, name, value, size);
  Socket* const own = find_socket(*World::entered(), descriptor);
  if (!own) return -1;
  if (level == SOL_SOCKET && name == SO_KEEPALIVE) own->keep_alive();
  if (level == IPPROTO_TCP && name == TCP_USER_TIMEOUT) {
    own->limit_silence(*static_cast<const unsigned int*>(value) * kMillisecond);
  }
  return 0;
}

int getsockopt(int descriptor, int level, int name, void* value, socklen_t* size) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(getsockopt, nullptr, descriptor, level, name, value, size);
  Socket* const own = find_socket(*World::entered(), descriptor);
  if (!own) return -1;
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    tcp_info info{};
    info.tcpi_unacked = own->has_unanswered() ? 1 : 0;
    info.tcpi_last_ack_recv = static_cast<uint32_t>(own->silence() / kMillisecond);
    std::memcpy(value, &info, std::min<size_t>(*size, sizeof(info)));
    return 0;
  }
  const int error = level == SOL_SOCKET && name == SO_ERROR ? own->take_error() : 0;
  std::memcpy(value, &error, std::min<size_t>(*size, sizeof(error)));
  return 0;
}

int getsockname(int descriptor, sockaddr* address, socklen_t* size) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(getsockname, nullptr, descriptor, address, size);
  Socket* const own = find_socket(*World::entered(), descriptor);
  if (!own) return -1;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(own->port());
  in.sin_addr.s_addr = htonl(address_of(own->machine()));
  std::memcpy(address, &in, std::min<size_t>(*size, sizeof(in)));
  *size = sizeof(in);
  return 0;
}

int getpeername(int descriptor, sockaddr* address, socklen_t* size) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(getpeername, nullptr, descriptor, address, size);
  World& world = *World::entered();
  Socket* const own = find_socket(world, descriptor);
  if (!own || own->peer_machine() < 0) {
    errno = ENOTCONN;
    return -1;
  }
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address_of(world.machine(own->peer_machine())));
  std::memcpy(address, &in, std::min<size_t>(*size, sizeof(in)));
  *size = sizeof(in);
  return 0;
}

ssize_t send(int descriptor, const void* bytes, size_t count, int flags) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(send, nullptr, descriptor, bytes, count, flags);
  World& world = *World::entered();
  world.pass();
  Socket* const own = find_socket(world, descriptor);
  if (!own || is_interrupted(world)) return -1;
  return own->send(static_cast<const char*>(bytes), count);
}

ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(sendmsg, nullptr, descriptor, message, flags);
  World& world = *World::entered();
  world.pass();
  Socket* const own = find_socket(world, descriptor);
  if (!own || is_interrupted(world)) return -1;
  std::string bytes;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    bytes.append(static_cast<const char*>(message->msg_iov[i].iov_base), message->msg_iov[i].iov_len);
  }
  return own->send(bytes.data(), bytes.size());
}

ssize_t recv(int descriptor, void* bytes, size_t count, int flags) {
  if (!is_simulated(descriptor)) TRAINYARD_REAL(recv, nullptr, descriptor, bytes, count, flags);
  World& world = *World::entered();
  world.pass();
  Socket* const own = find_socket(world, descriptor);
  if (!own || is_interrupted(world)) return -1;
  return own->receive(static_cast<char*>(bytes), count);
}

int poll(pollfd* asked, nfds_t count, int milliseconds) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(poll, nullptr, asked, count, milliseconds);
  world->pass();
  if (is_interrupted(*world)) return -1;
  const Nanos until = milliseconds < 0 ? kNever : world->now() + milliseconds * kMillisecond;
  while (true) {
    int found = 0;
    for (nfds_t i = 0; i < count; ++i) {
      asked[i].revents = ready_events(*world, asked[i]);
      if (asked[i].revents != 0) ++found;
    }
    if (found > 0) return found;
    if (world->now() >= until) return 0;
    for (nfds_t i = 0; i < count; ++i) {
      Descriptor* const descriptor = asked[i].fd < 0 ? nullptr : find_descriptor(*world, asked[i].fd);
      if (descriptor != nullptr) descriptor->watch(world->self(), world->next_block());
    }
    world->block(nullptr, until);
  }
}

// Names are numbers, or "machine-3".
int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(getaddrinfo, nullptr, node, service, hints, result);
  in_addr number{};
  int machine = 0;
  if (std::sscanf(node, "machine-%d", &machine) == 1) {
    number.s_addr = htonl(kFirstAddress + static_cast<uint32_t>(machine));
  } else if (::inet_pton(AF_INET, node, &number) != 1) {
    return EAI_NONAME;
  }
  auto* const found = new FoundAddress;
  found->address = {.sin_family = AF_INET,
                    .sin_port = htons(static_cast<uint16_t>(std::atoi(service))),
                    .sin_addr = number,
                    .sin_zero = {}};
  found->info.ai_family = AF_INET;
  found->info.ai_socktype = SOCK_STREAM;
  found->info.ai_addrlen = sizeof(found->address);
  found->info.ai_addr = reinterpret_cast<sockaddr*>(&found->address);
  found->info.ai_canonname = reinterpret_cast<char*>(found);  // for freeaddrinfo()
  *result = &found->info;
  return 0;
}

void freeaddrinfo(addrinfo* info) {
  if (World::entered() == nullptr) TRAINYARD_REAL(freeaddrinfo, nullptr, info);
  delete reinterpret_cast<FoundAddress*>(info->ai_canonname);
}

int gethostname(char* name, size_t size) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(gethostname, nullptr, name, size);
  std::snprintf(name, size, "%s", world->own_process().machine->name.c_str());
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
