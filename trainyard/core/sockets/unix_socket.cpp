#include "trainyard/core/sockets/unix_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

constexpr size_t kLongestName = 100;

struct NameAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

NameAddress address_of(const std::string& name) {
  NameAddress result;
  result.address.sun_family = AF_UNIX;
  // A zero in front makes the name abstract.
  const size_t length = std::min(name.size(), kLongestName);
  std::memcpy(result.address.sun_path + 1, name.data(), length);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

Socket open_unix() {
  return Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// A message of one byte with room for one descriptor.
struct DescriptorMessage {
  char byte = 1;
  iovec bytes{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  DescriptorMessage() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
};

}  // namespace

Socket listen_at_name(const std::string& name) {
  Socket socket = open_unix();
  const NameAddress address = address_of(name);
  if (name.size() <= kLongestName && socket.valid() && ::bind(socket.descriptor(), address.get(), address.size) == 0 &&
      ::listen(socket.descriptor(), SOMAXCONN) == 0) {
    return socket;
  }
  throw Error(ErrorCode::kIo,
              {.problem = "cannot listen at a name",
               .where = name,
               .actual = name.size() > kLongestName ? "a name of more than 100 bytes" : std::strerror(errno)});
}

std::optional<Socket> connect_to_name(const std::string& name) {
  if (name.size() > kLongestName) return std::nullopt;
  Socket socket = open_unix();
  const NameAddress address = address_of(name);
  if (!socket.valid() || ::connect(socket.descriptor(), address.get(), address.size) != 0) return std::nullopt;
  return socket;
}

bool is_own_user(const Socket& connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(connection.descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

bool send_descriptor(const Socket& connection, int descriptor) {
  DescriptorMessage message;
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof(descriptor));
  return ::sendmsg(connection.descriptor(), &message.header, MSG_NOSIGNAL) == 1;
}

std::optional<Socket> receive_descriptor(const Socket& connection) {
  DescriptorMessage message;
  if (::recvmsg(connection.descriptor(), &message.header, MSG_CMSG_CLOEXEC) != 1) return std::nullopt;
  const cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
      control->cmsg_len != CMSG_LEN(sizeof(int))) {
    return std::nullopt;
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof(descriptor));
  return Socket(descriptor);
}

}  // namespace trainyard::core
