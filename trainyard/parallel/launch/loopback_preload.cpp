// Preloaded into mpirun (LD_PRELOAD): what it would listen for on all addresses of this machine, it listens for on the
// one address that TRAINYARD_BIND_ADDRESS names. Open MPI 4 takes connections of its daemons on all addresses whatever
// oob_tcp_if_include says, which only chooses what it tells them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" __attribute__((visibility("default"))) int bind(int descriptor, const sockaddr* address,
                                                           socklen_t size) noexcept {
  const char* const wanted = getenv("TRAINYARD_BIND_ADDRESS");
  if (wanted != nullptr && address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in replaced = *reinterpret_cast<const sockaddr_in*>(address);
    if (replaced.sin_addr.s_addr == htonl(INADDR_ANY) && inet_pton(AF_INET, wanted, &replaced.sin_addr) == 1) {
      return static_cast<int>(syscall(SYS_bind, descriptor, &replaced, sizeof replaced));
    }
  }
  if (wanted != nullptr && address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 replaced = *reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_UNSPECIFIED(&replaced.sin6_addr) != 0) {
      replaced.sin6_addr = in6addr_loopback;
      return static_cast<int>(syscall(SYS_bind, descriptor, &replaced, sizeof replaced));
    }
  }
  return static_cast<int>(syscall(SYS_bind, descriptor, address, size));
}
