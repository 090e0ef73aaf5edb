#include "trainyard/parallel/launch/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace trainyard::parallel {
namespace {

constexpr unsigned int kMostSilence = 60'000;  // milliseconds

}  // namespace

void keep_alive(int descriptor) {
  const int on = 1, idle = 30, interval = 10, count = 3;  // seconds, seconds, questions
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void give_up_unacknowledged(int descriptor) {
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &kMostSilence, sizeof kMostSilence);
}

bool peer_is_silent(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  // With keep_alive(), the last acknowledgement of a connection that is at rest is half a minute old at most.
  return info.tcpi_unacked > 0 && info.tcpi_last_ack_recv > kMostSilence;
}

}  // namespace trainyard::parallel
