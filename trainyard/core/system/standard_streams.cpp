#include "trainyard/core/system/standard_streams.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace trainyard::core {

void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number, which is this one: those below it are open.
    const int opened = ::open("/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY);
    if (opened != -1 && opened != descriptor) ::close(opened);
  }
}

}  // namespace trainyard::core
