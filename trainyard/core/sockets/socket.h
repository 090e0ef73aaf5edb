// Sockets between the processes of a training and of what starts them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/sockets/frame.h"

namespace trainyard::core {

// Closes a descriptor in its destructor.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  bool valid() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  int release();

 private:
  int descriptor_;
};

// Returns whether only processes of this machine reach `address`, a name or a number. Throws kIo for a name that nobody
// knows.
bool is_loopback(const std::string& address);

// Listens for TCP at a name or number of this machine; port 0: any that is free. The socket does not block, and does
// not survive exec. Throws kIo.
Socket listen_at(const std::string& address, uint16_t port);
// Returns the port that it listens at.
uint16_t port_of(const Socket& listening);
// Returns the next connection, which does not block either; nullopt: there is none now.
std::optional<Socket> accept_from(const Socket& listening);
// Connects within `time`, asking again while nobody listens there. Throws kTimeout, and kIo for a name that nobody
// knows.
Socket connect_to(const std::string& address, uint16_t port, std::chrono::milliseconds time);

// Frames over a socket that does not block. One thread.
class FrameConnection {
 public:
  FrameConnection(Socket socket, size_t longest_body);

  int descriptor() const { return socket_.descriptor(); }
  void allow(size_t longest_body) { reader_.allow(longest_body); }
  // Keeps the frame until flush() can write it.
  void send(uint8_t kind, std::string_view body);
  // Writes what the system takes. Returns false when the other side has gone.
  bool flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  size_t unsent_bytes() const { return unsent_.size() - sent_; }
  // Adds the frames that have come, out of at most a mebibyte at a time: the socket stays readable while there is more.
  // Returns false when the other side has gone; what came before its end is added.
  // Throws kCorruptData as FrameReader does.
  bool receive(std::vector<Frame>& frames);

 private:
  Socket socket_;
  FrameReader reader_;
  std::string unsent_;
  size_t sent_ = 0;  // of unsent_
};

}  // namespace trainyard::core
