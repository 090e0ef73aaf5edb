#include "trainyard/parallel/launch/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace trainyard::parallel {
namespace {

constexpr unsigned int kMostUnacknowledged = 60'000;  // milliseconds
constexpr unsigned int kMostSilence = 150'000;        // milliseconds; above the system's longest time between repeats

}  // namespace

void keep_alive(int descriptor) {
  const int on = 1, idle = 30, interval = 10, count = 3;  // seconds, seconds, questions
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void give_up_unacknowledged(int descriptor) {
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &kMostUnacknowledged, sizeof kMostUnacknowledged);
}

bool peer_is_silent(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  // The second counts questions that a reader without room has not answered: what is sent to it waits here.
  const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
  return waits && info.tcpi_last_ack_recv > kMostSilence;
}

}  // namespace trainyard::parallel
