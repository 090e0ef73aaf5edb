#include "trainyard/parallel/launch/terminal.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

constexpr size_t kMostUnwritten = 1 << 20;  // bytes of a stream

bool takes_more(int descriptor, int milliseconds) {
  pollfd stream{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&stream, 1, milliseconds) == 1;
}

}  // namespace

void TerminalStream::write_some() {
  // A pipe that says it takes more takes PIPE_BUF bytes without waiting.
  size_t written = 0;
  while (written < unwritten_.size() && takes_more(descriptor_, 0)) {
    const ssize_t count =
        ::write(descriptor_, unwritten_.data() + written, std::min<size_t>(PIPE_BUF, unwritten_.size() - written));
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      throw core::system_error(errno, "write the ranks' output to", descriptor_ == 1 ? "stdout" : "stderr");
    }
    written += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  unwritten_.erase(0, written);
}

void Terminal::write_line(std::string_view message) {
  error.add(fmt::format("launch: {}\n", message));
}

bool Terminal::is_behind() const {
  return output.unwritten_bytes() > kMostUnwritten || error.unwritten_bytes() > kMostUnwritten;
}

void Terminal::finish() {
  for (TerminalStream* stream : {&output, &error}) {
    while (stream->has_unwritten()) {
      takes_more(stream->descriptor(), -1);
      stream->write_some();
    }
  }
}

}  // namespace trainyard::parallel
