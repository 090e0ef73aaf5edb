// The simulated network: streams of bytes between machines, as TCP gives them, late and in pieces of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cluster_simulation/world.h"

namespace trainyard::cluster_simulation {

// The first number of a simulated descriptor. The system's own are smaller.
inline constexpr int kFirstDescriptor = 1'000'000;

class Socket;
class EventCounter;
class Stream;
class OpenFile;

// What a process has open: a socket, an event's counter, an end of a pipe, a file.
class Descriptor {
 public:
  virtual ~Descriptor() = default;
  // The events of poll() that hold.
  virtual short ready() const = 0;
  // Called once, when the last process that holds it closes it or ends.
  virtual void close() = 0;
  virtual Socket* as_socket() { return nullptr; }
  virtual EventCounter* as_counter() { return nullptr; }
  virtual Stream* as_stream() { return nullptr; }  // stream.h
  virtual OpenFile* as_file() { return nullptr; }  // stream.h
  // Counts the numbers that processes have for it.
  void hold() { ++holders_; }
  void release() {
    if (--holders_ == 0) close();
  }

  // Wakes this block of the thread when something changes.
  void watch(Fiber& thread, uint64_t block) { watchers_.emplace_back(&thread, block); }

 protected:
  void changed();

 private:
  std::vector<std::pair<Fiber*, uint64_t>> watchers_;
  int holders_ = 0;
};

class EventCounter final : public Descriptor {
 public:
  explicit EventCounter(uint64_t count) : count_(count) {}
  short ready() const override;
  void close() override {}
  EventCounter* as_counter() override { return this; }
  void add(uint64_t count);
  uint64_t take();

 private:
  uint64_t count_;
};

struct NetworkOptions {
  Nanos shortest = 20 * kMicrosecond, longest = 500 * kMicrosecond;  // time of a piece on its way
  double slow_chance = 0;                                            // that a piece takes up to `slowest`
  Nanos slowest = 20 * kMillisecond;
  size_t window = 65'536;       // bytes that are sent and not read yet; more do not leave
  double split_chance = 0;      // that a call sends or receives less than it could
  double interrupt_chance = 0;  // that a call is interrupted by a signal
};

class Network {
 public:
  Network(World& world, const NetworkOptions& options) : world_(world), options_(options) { world.network = this; }

  World& world() { return world_; }
  const NetworkOptions& options() const { return options_; }

  // Opens and closes the way from one machine to another. What is sent meanwhile comes later.
  void cut(int from, int to);
  void mend(int from, int to);
  bool is_cut(int from, int to) const { return cuts_.contains({from, to}); }
  // Resets all connections between two machines, as a firewall that forgets them does. What is on its way is lost.
  void reset(int one, int other);

  // Calls `arrive` when something that is sent now comes to the other machine, behind what was sent before on the same
  // line (`last` is its last arrival).
  void send(int from, int to, Nanos& last, std::function<void()> arrive);

  // The sockets that listen, by machine and port.
  std::map<std::pair<int, uint16_t>, std::weak_ptr<Socket>>& listeners() { return listeners_; }
  // Returns a port that no socket of the machine listens at: the lowest, so that ports are used again.
  uint16_t free_port(int machine) const;
  void add(const std::shared_ptr<Socket>& socket) { sockets_.push_back(socket); }

 private:
  void arrive(int from, int to, std::function<void()> what);

  World& world_;
  const NetworkOptions options_;
  std::set<std::pair<int, int>> cuts_;
  std::map<std::pair<int, int>, std::deque<std::function<void()>>> held_;  // what has come to a cut
  std::map<std::pair<int, uint16_t>, std::weak_ptr<Socket>> listeners_;
  std::vector<std::weak_ptr<Socket>> sockets_;
  static constexpr uint16_t kFirstFreePort = 40'000;
};

// One end of a connection, or a socket that listens. Does not block. Functions that fail return -1 and set errno.
class Socket final : public Descriptor, public std::enable_shared_from_this<Socket> {
 public:
  Socket(Network& network, Machine& machine) : network_(network), machine_(machine) {}

  short ready() const override;
  void close() override;
  Socket* as_socket() override { return this; }

  int bind(uint16_t port);
  int listen();
  std::shared_ptr<Socket> accept();
  int connect(int machine, uint16_t port);
  ssize_t send(const char* bytes, size_t count);
  ssize_t receive(char* bytes, size_t count);
  int take_error();
  uint16_t port() const { return port_; }
  Machine& machine() const { return machine_; }
  // The connection is gone, as by a packet with RST.
  void reset();
  // Returns the machine at the other end; below 0: none.
  int peer_machine() const { return peer_ ? peer_->machine_.number : -1; }
  bool is_connected() const { return state_ == State::kConnected; }
  // The connection fails when its other end does not answer for so long (SO_KEEPALIVE). As in Linux this holds only
  // while all that was sent has come; else for kRetransmission, or the limit that was set (TCP_USER_TIMEOUT).
  void keep_alive();
  void limit_silence(Nanos limit) { longest_unanswered_ = limit; }
  bool has_unanswered() const { return unanswered_ > 0; }
  Nanos silence() const;  // since when the other end cannot answer; 0: it can

 private:
  enum class State { kFresh, kListens, kConnects, kConnected, kFailed };
  static constexpr Nanos kKeepAlive = 60 * kSecond, kRetransmission = 924 * kSecond;

  void arrive(std::string bytes);
  void look_for_peer();
  void end();  // the other end sends no more

  Network& network_;
  Machine& machine_;
  State state_ = State::kFresh;
  uint16_t port_ = 0;
  int error_ = 0;
  bool ended_ = false, closed_ = false;
  std::shared_ptr<Socket> peer_;
  std::deque<std::string> arrived_;
  size_t taken_ = 0;      // bytes of the first piece
  size_t under_way_ = 0;  // bytes that were sent here and not read at the other end
  Nanos last_arrival_ = 0;
  bool keeps_alive_ = false;
  size_t unanswered_ = 0;  // bytes that have not come to the other end; counted for keep_alive()
  Nanos silent_since_ = kNever, longest_unanswered_ = kRetransmission;
  std::deque<std::shared_ptr<Socket>> waiting_;  // that were not accepted yet
};

}  // namespace trainyard::cluster_simulation
