#include "trainyard/parallel/servers/transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trainyard::parallel {

std::string_view server_call_name(ServerCall call) {
  constexpr std::string_view kNames[] = {"Register", "Attend", "Beat", "Start",  "Write", "Push", "Apply",
                                         "Read",     "Hold",   "Meet", "Status", "Leave", "Fail"};
  static_assert(std::size(kNames) == kServerCalls);
  return kNames[static_cast<size_t>(call)];
}

void CallEnd::on_end(std::function<void()> function) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      function_ = std::move(function);
      return;
    }
  }
  function();
}

void CallEnd::end() {
  std::function<void()> function;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    function = std::exchange(function_, nullptr);
  }
  if (function) function();
}

IncomingMessage::IncomingMessage(std::vector<std::span<const std::byte>> pieces, std::shared_ptr<const void> keep)
    : pieces_(std::move(pieces)), keep_(std::move(keep)) {
  for (const auto& piece : pieces_) size_ += piece.size();
}

std::string IncomingMessage::prefix(size_t most) const {
  std::string bytes(std::min(most, size_), '\0');
  copy(0, bytes.data(), bytes.size());
  return bytes;
}

void IncomingMessage::copy(size_t offset, void* to, size_t bytes) const {
  auto* target = static_cast<std::byte*>(to);
  for (const auto& piece : pieces_) {
    if (bytes == 0) return;
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    const size_t count = std::min(bytes, piece.size() - offset);
    std::memcpy(target, piece.data() + offset, count);
    target += count;
    bytes -= count;
    offset = 0;
  }
}

}  // namespace trainyard::parallel
