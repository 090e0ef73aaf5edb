// One direction of the exchange with a neighbour in the chain: bytes in pieces of one size, in order, several of them
// pending at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>

#include "trainyard/parallel/collectives/message_transport.h"

namespace trainyard::parallel {

class ChainStream {
 public:
  // Pieces that are pending at a time. With fewer, a neighbour would wait for our next poll between two of them.
  static constexpr size_t kWindow = 4;

  // The memory of the bytes: piece i is at `base` + i * piece, or, in a ring of kWindow pieces, at `base` + (i %
  // kWindow) * piece.
  struct Options {
    char* base = nullptr;
    size_t bytes = 0, piece = 1;
    int peer = 0, tag = 0;
    bool ring = false;
  };

  ChainStream() = default;  // carries nothing
  explicit ChainStream(const Options& options) : options_(options) {}

  size_t bytes() const { return options_.bytes; }
  // Returns how many bytes from the front on have been received, or sent and may be overwritten.
  size_t through() const { return std::min(through_ * options_.piece, options_.bytes); }
  bool complete() const { return through() == options_.bytes; }
  // Returns whether no piece is pending.
  bool idle() const { return flying_.empty(); }

  // Sends the pieces within the first `available` bytes. Both return true when any bytes moved.
  bool send(MessageTransport& transport, size_t available) {
    return move(available,
                [&](void* data, size_t bytes) { return transport.send(options_.peer, options_.tag, data, bytes); });
  }
  // Receives pieces within the first `allowed` bytes.
  bool receive(MessageTransport& transport, size_t allowed) {
    return move(allowed,
                [&](void* data, size_t bytes) { return transport.receive(options_.peer, options_.tag, data, bytes); });
  }

 private:
  template <typename Post>
  bool move(size_t limit, Post post) {
    bool moved = false;
    while (!flying_.empty() && flying_.front()->done()) {
      flying_.pop_front();
      ++through_;
      moved = true;
    }
    while (flying_.size() < kWindow) {
      const size_t begin = posted_ * options_.piece;
      const size_t end = std::min(begin + options_.piece, options_.bytes);
      if (begin >= end || end > limit) break;
      const size_t place = options_.ring ? posted_ % kWindow : posted_;
      flying_.push_back(post(options_.base + place * options_.piece, end - begin));
      ++posted_;
      moved = true;
    }
    return moved;
  }

  Options options_;
  size_t posted_ = 0, through_ = 0;  // pieces
  std::deque<std::unique_ptr<Transfer>> flying_;
};

}  // namespace trainyard::parallel
