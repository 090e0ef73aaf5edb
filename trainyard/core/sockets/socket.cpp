#include "trainyard/core/sockets/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error == 0) return {found, &::freeaddrinfo};
  throw Error(ErrorCode::kIo, {.problem = "an address cannot be resolved",
                               .where = address,
                               .actual = ::gai_strerror(error),
                               .remedy = "look whether the name is right, and known on this machine"});
}

bool is_loopback(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address.ai_addr);
    return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (address.ai_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr) != 0;
  }
  return false;
}

// Throws kNoSpace where errno says that no more files may be open.
void require_open_files() {
  if (errno == EMFILE) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    throw Error(ErrorCode::kNoSpace, {.problem = "no connection can be opened: too many files are open",
                                      .actual = fmt::format("{} files, as many as this process may open",
                                                            static_cast<uint64_t>(limit.rlim_cur)),
                                      .remedy = "raise the limit: ulimit -n"});
  }
  if (errno == ENFILE) {
    throw Error(ErrorCode::kNoSpace, {.problem = "no connection can be opened: too many files are open",
                                      .actual = "as many files as this machine may open",
                                      .remedy = "raise the limit: sysctl fs.file-max"});
  }
}

Socket open_for(const addrinfo& address) {
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
  if (!socket.valid()) require_open_files();
  return socket;
}

// Short messages must not wait for longer ones.
void send_at_once(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Returns whether the connection was made by `until`.
bool connect_until(const Socket& socket, const addrinfo& address, std::chrono::steady_clock::time_point until) {
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  pollfd writable{.fd = socket.descriptor(), .events = POLLOUT, .revents = 0};
  if (::poll(&writable, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000))) != 1) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// Returns the connection with the first of the addresses that answers by `until`. One that drops what it gets leaves
// time for those after it.
std::optional<Socket> connect_to_any(const Addresses& addresses, std::chrono::steady_clock::time_point until) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kMostForOne = std::chrono::seconds(3);
  int left = 0;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) ++left;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point turn = now + std::min(kMostForOne, (until - now) / left--);
    Socket socket = open_for(*each);
    if (!socket.valid() || !connect_until(socket, *each, turn)) continue;
    send_at_once(socket);
    return socket;
  }
  return std::nullopt;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (valid()) ::close(descriptor_);
    descriptor_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (valid()) ::close(descriptor_);
}

int Socket::release() {
  return std::exchange(descriptor_, -1);
}

bool is_loopback(const std::string& address) {
  const Addresses found = resolve(address, 0);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (!is_loopback(*each)) return false;
  }
  return true;
}

Socket listen_at(const std::string& address, uint16_t port) {
  const Addresses found = resolve(address, port);
  int error = 0;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    Socket socket = open_for(*each);
    const int on = 1;
    if (socket.valid() && ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(socket.descriptor(), each->ai_addr, each->ai_addrlen) == 0 &&
        ::listen(socket.descriptor(), SOMAXCONN) == 0) {
      return socket;
    }
    error = errno;
  }
  throw Error(
      ErrorCode::kIo,
      {.problem = "cannot listen", .where = fmt::format("{}:{}", address, port), .actual = std::strerror(error)});
}

uint16_t port_of(const Socket& listening) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(listening.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::optional<Socket> accept_from(const Socket& listening) {
  Socket socket(::accept4(listening.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    require_open_files();
    return std::nullopt;
  }
  send_at_once(socket);
  return socket;
}

std::optional<Socket> connect_once(const std::string& address, uint16_t port, std::chrono::milliseconds time) {
  const Addresses found = resolve(address, port);
  return connect_to_any(found, std::chrono::steady_clock::now() + time);
}

void allow_open_files(size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Socket connect_to(const std::string& address, uint16_t port, std::chrono::milliseconds time) {
  constexpr auto kAgain = std::chrono::milliseconds(20);
  const Addresses found = resolve(address, port);
  const auto until = std::chrono::steady_clock::now() + time;
  while (true) {
    if (std::optional<Socket> socket = connect_to_any(found, until)) return *std::move(socket);
    if (std::chrono::steady_clock::now() >= until) {
      throw Error(ErrorCode::kTimeout, {.problem = "no answer", .where = fmt::format("{}:{}", address, port)});
    }
    std::this_thread::sleep_for(kAgain);
  }
}

FrameConnection::FrameConnection(Socket socket, size_t longest_body)
    : socket_(std::move(socket)), reader_(longest_body) {}

void FrameConnection::send(uint8_t kind, std::string_view body) {
  // Also while the peer is behind: what is sent would be kept as long.
  constexpr size_t kMostSent = size_t{1} << 16;
  if (sent_ == unsent_.size() || sent_ > kMostSent) {
    unsent_.erase(0, sent_);
    sent_ = 0;
  }
  unsent_ += encode_frame(kind, body);
}

bool FrameConnection::flush() {
  while (has_unsent()) {
    const ssize_t written =
        ::send(socket_.descriptor(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) {
      sent_ += static_cast<size_t>(written);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool FrameConnection::receive(std::vector<Frame>& frames) {
  constexpr int kMostPieces = 16;  // whoever writes without a pause must not keep the caller from all else
  bool open = true;
  std::array<char, 1 << 16> bytes;
  for (int piece = 0; piece < kMostPieces; ++piece) {
    const ssize_t count = ::recv(socket_.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    open = count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    if (count <= 0) break;
    reader_.feed({bytes.data(), static_cast<size_t>(count)});
    while (auto frame = reader_.next()) frames.push_back(std::move(*frame));
  }
  return open;
}

}  // namespace trainyard::core
