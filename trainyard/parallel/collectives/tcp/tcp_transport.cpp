#include "trainyard/parallel/collectives/tcp/tcp_transport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;
using core::Socket;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostTokenBytes = 64;
// Bytes that are read before the caller has its turn. It asks for the next messages then, which would be kept
// otherwise.
constexpr size_t kMostReadAtOnce = 256 * 1024;

// The first bytes of a connection, from the process that has made it, and of its answer.
struct Greeting {
  std::array<char, 4> magic{'T', 'Y', 'M', 'T'};
  int32_t from = -1, to = -1;
  std::array<char, kMostTokenBytes> token{};

  bool operator==(const Greeting&) const = default;
};

Greeting greeting(int from, int to, const std::string& token) {
  Greeting made{.from = from, .to = to};
  std::memcpy(made.token.data(), token.data(), token.size());
  return made;
}

// In front of each message.
struct Header {
  uint32_t tag = 0, magic = 0;
  uint64_t bytes = 0;
};
constexpr uint32_t kMagic = 0x4d545954, kEndTag = 0xffffffff;  // the last message of a process

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// A connection whose greeting has not come completely.
struct Pending {
  Socket socket;
  Greeting said{};
  size_t have = 0;
  bool closed = false;
  Clock::time_point since = Clock::now();

  // Returns whether the greeting is complete.
  bool take() {
    while (have < sizeof(said)) {
      const ssize_t count =
          ::recv(socket.descriptor(), reinterpret_cast<char*>(&said) + have, sizeof(said) - have, MSG_DONTWAIT);
      if (count <= 0) {
        closed = count == 0 || !would_block();
        return false;
      }
      have += static_cast<size_t>(count);
    }
    return true;
  }
};

bool write_greeting(const Socket& socket, const Greeting& text) {
  // A fresh connection has room for it.
  return ::send(socket.descriptor(), &text, sizeof(text), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(text));
}

class Sending final {
 public:
  Sending(int tag, const void* data, size_t bytes)
      : header_{.tag = static_cast<uint32_t>(tag), .magic = kMagic, .bytes = bytes},
        data_(static_cast<const char*>(data)) {}

  // Writes as much as the system takes. Throws errno's text.
  bool write(const Socket& socket) {
    while (sent_ < sizeof(Header) + header_.bytes) {
      std::array<iovec, 2> parts{};
      size_t count = 0;
      if (sent_ < sizeof(Header)) {
        parts[count++] = {.iov_base = reinterpret_cast<char*>(&header_) + sent_, .iov_len = sizeof(Header) - sent_};
      }
      const size_t of_data = sent_ < sizeof(Header) ? 0 : sent_ - sizeof(Header);
      if (of_data < header_.bytes) {
        parts[count++] = {.iov_base = const_cast<char*>(data_) + of_data, .iov_len = header_.bytes - of_data};
      }
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      const ssize_t written = ::sendmsg(socket.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written < 0 && would_block()) return false;
      if (written < 0) throw Error(ErrorCode::kPeerFailed, std::strerror(errno));
      sent_ += static_cast<size_t>(written);
    }
    return true;
  }
  bool done = false;

 private:
  Header header_;
  const char* const data_;
  size_t sent_ = 0;  // of the header and of what follows
};

struct Receiving {
  char* data = nullptr;
  size_t bytes = 0;
  bool done = false;
};

// The connection with one other process.
class TcpPeer {
 public:
  TcpPeer(int process, size_t most_kept) : process_(process), most_kept_(most_kept) {}

  void connect(Socket socket) {
    constexpr int kBufferBytes = 4 << 20;
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof(kBufferBytes));
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof(kBufferBytes));
    socket_ = std::move(socket);
  }
  bool connected() const { return socket_.valid(); }

  std::shared_ptr<Sending> send(int tag, const void* data, size_t bytes) {
    auto sending = std::make_shared<Sending>(tag, data, bytes);
    sendings_.push_back(sending);
    write();
    return sending;
  }

  std::shared_ptr<Receiving> receive(uint32_t tag, void* data, size_t bytes) {
    auto receiving = std::make_shared<Receiving>(Receiving{static_cast<char*>(data), bytes});
    Line& line = lines_[tag];
    if (line.posted.empty() && !line.kept.empty()) {
      deliver(line.kept.front(), *receiving);
      kept_bytes_ -= line.kept.front().size();
      line.kept.pop_front();
    } else {
      line.posted.push_back(receiving);
    }
    return receiving;
  }

  // Moves what can be moved.
  void advance() {
    write();
    read();
  }
  bool has_ended() const { return ended_; }
  bool is_closed() const { return closed_; }
  bool has_unsent() const { return !sendings_.empty(); }

 private:
  struct Line {
    std::deque<std::shared_ptr<Receiving>> posted;
    std::deque<std::vector<char>> kept;
  };

  [[noreturn]] void fail(ErrorCode code, const std::string& problem) const {
    throw Error(code, {.problem = problem, .where = fmt::format("the exchange with rank {}", process_)});
  }

  void write() {
    try {
      while (!sendings_.empty() && sendings_.front()->write(socket_)) {
        sendings_.front()->done = true;
        sendings_.pop_front();
      }
    } catch (const Error& error) {
      fail(ErrorCode::kPeerFailed, fmt::format("a message cannot be sent ({})", error.what()));
    }
  }

  // Returns whether bytes have come.
  bool take(char* into, size_t size, size_t& have) {
    const ssize_t count = ::recv(socket_.descriptor(), into + have, size - have, MSG_DONTWAIT);
    if (count > 0) {
      have += static_cast<size_t>(count);
      read_at_once_ += static_cast<size_t>(count);
      return true;
    }
    if (count < 0 && would_block()) return false;
    closed_ = true;
    if (ended_) return false;
    fail(ErrorCode::kPeerFailed, fmt::format("rank {} has closed its connection", process_));
  }

  void read() {
    read_at_once_ = 0;
    while (!closed_ && read_at_once_ < kMostReadAtOnce) {
      if (header_bytes_ < sizeof(Header)) {
        if (!take(reinterpret_cast<char*>(&header_), sizeof(Header), header_bytes_)) return;
        if (header_bytes_ < sizeof(Header)) continue;
        begin_message();
      }
      char* const into = target_ ? target_->data : incoming_.data();
      while (have_ < header_.bytes) {
        if (read_at_once_ >= kMostReadAtOnce || !take(into, header_.bytes, have_)) return;
      }
      end_message();
    }
  }

  void begin_message() {
    have_ = 0;
    if (header_.magic != kMagic) fail(ErrorCode::kCorruptData, "what comes is no message");
    if (header_.tag == kEndTag) {
      if (header_.bytes != 0) fail(ErrorCode::kCorruptData, "the last message is not empty");
      return;
    }
    Line& line = lines_[header_.tag];
    if (!line.posted.empty()) {
      target_ = line.posted.front();
      line.posted.pop_front();
      require_room(header_.bytes, target_->bytes);
      return;
    }
    if (header_.bytes > most_kept_ - kept_bytes_) {
      fail(ErrorCode::kCorruptData, fmt::format("more than {} bytes have come that nothing has asked for", most_kept_));
    }
    kept_bytes_ += header_.bytes;
    incoming_.resize(header_.bytes);
  }

  void require_room(size_t bytes, size_t room) const {
    if (bytes <= room) return;
    fail(ErrorCode::kCorruptData,
         fmt::format("a message of {} bytes comes where at most {} are expected", bytes, room));
  }

  void end_message() {
    header_bytes_ = 0;
    if (header_.tag == kEndTag) {
      ended_ = true;
      return;
    }
    if (target_) {
      target_->done = true;
      target_.reset();
      return;
    }
    Line& line = lines_[header_.tag];
    if (line.posted.empty()) {
      line.kept.push_back(std::move(incoming_));
    } else {
      kept_bytes_ -= incoming_.size();
      deliver(incoming_, *line.posted.front());
      line.posted.pop_front();
    }
    incoming_ = {};
  }

  void deliver(const std::vector<char>& message, Receiving& receiving) const {
    require_room(message.size(), receiving.bytes);
    std::copy(message.begin(), message.end(), receiving.data);
    receiving.done = true;
  }

  const int process_;
  const size_t most_kept_;
  Socket socket_;
  std::deque<std::shared_ptr<Sending>> sendings_;
  std::map<uint32_t, Line> lines_;
  Header header_;
  size_t header_bytes_ = 0, have_ = 0;  // of the message that comes
  std::shared_ptr<Receiving> target_;   // where it goes; null: into incoming_
  std::vector<char> incoming_;
  size_t kept_bytes_ = 0, read_at_once_ = 0;
  bool ended_ = false, closed_ = false;
};

// All connections of a process. A transfer that does not move may wait for another one that no caller looks at, in a
// ring of processes whose buffers are full: so now and then all connections move.
class TcpPeers {
 public:
  void add(std::shared_ptr<TcpPeer> peer) { peers_.push_back(std::move(peer)); }
  const std::shared_ptr<TcpPeer>& at(int process) const { return peers_.at(static_cast<size_t>(process)); }

  // Called when a transfer has not moved.
  void wait_a_turn() {
    constexpr int kTurns = 8;
    if (++turns_ < kTurns) return;
    turns_ = 0;
    for (const auto& peer : peers_) {
      if (peer->connected() && !peer->is_closed()) peer->advance();
    }
  }

 private:
  std::vector<std::shared_ptr<TcpPeer>> peers_;
  int turns_ = 0;
};

template <typename Pending>
class PeerTransfer final : public Transfer {
 public:
  PeerTransfer(std::shared_ptr<TcpPeers> peers, std::shared_ptr<TcpPeer> peer, std::shared_ptr<Pending> pending)
      : peers_(std::move(peers)), peer_(std::move(peer)), pending_(std::move(pending)) {}
  bool done() override {
    if (!pending_->done) peer_->advance();
    if (!pending_->done) peers_->wait_a_turn();
    return pending_->done;
  }

 private:
  const std::shared_ptr<TcpPeers> peers_;
  const std::shared_ptr<TcpPeer> peer_;
  const std::shared_ptr<Pending> pending_;
};

class TcpTransport final : public MessageTransport {
 public:
  explicit TcpTransport(const TcpTransportOptions& options) {
    process_ = options.process;
    processes_ = static_cast<int>(options.addresses.size());
    for (int i = 0; i < processes_; ++i) peers_->add(std::make_shared<TcpPeer>(i, options.most_kept_bytes));
    Socket listening;
    if (process_ > 0) listening = core::listen_at(address(options, process_).host, address(options, process_).port);
    const auto end = Clock::now() + options.deadline;
    std::vector<std::unique_ptr<Pending>> made(options.addresses.size());  // connections with those behind this process
    std::vector<std::unique_ptr<Pending>> accepted;                        // with those before it, and with others
    while (const std::optional<int> missing = first_missing()) {
      if (Clock::now() >= end) throw never_came(options, *missing);
      for (int other = process_ + 1; other < processes_; ++other) {
        connect_with(options, other, end, made[static_cast<size_t>(other)]);
      }
      if (process_ > 0) accept_from_others(options, listening, accepted);
      ::poll(nullptr, 0, 5);
    }
  }

  std::unique_ptr<Transfer> send(int to, int tag, const void* data, size_t bytes) override {
    const auto& peer = peer_of(to);
    return std::make_unique<PeerTransfer<Sending>>(peers_, peer, peer->send(tag, data, bytes));
  }
  std::unique_ptr<Transfer> receive(int from, int tag, void* data, size_t bytes) override {
    const auto& peer = peer_of(from);
    return std::make_unique<PeerTransfer<Receiving>>(peers_, peer,
                                                     peer->receive(static_cast<uint32_t>(tag), data, bytes));
  }

  void finish() override {
    constexpr auto kTurn = std::chrono::milliseconds(1);
    for (int i = 0; i < processes_; ++i) {
      if (i != process_) peer_of(i)->send(static_cast<int>(kEndTag), nullptr, 0);
    }
    while (true) {
      bool all = true;
      for (int i = 0; i < processes_; ++i) {
        if (i == process_) continue;
        TcpPeer& peer = *peer_of(i);
        if (!peer.is_closed()) peer.advance();
        all = all && peer.has_ended() && !peer.has_unsent();
      }
      if (all) return;
      ::poll(nullptr, 0, static_cast<int>(kTurn.count()));
    }
  }

 private:
  static const TcpAddress& address(const TcpTransportOptions& options, int process) {
    return options.addresses[static_cast<size_t>(process)];
  }
  const std::shared_ptr<TcpPeer>& peer_of(int process) const { return peers_->at(process); }

  static Error never_came(const TcpTransportOptions& options, int process) {
    return {ErrorCode::kTimeout,
            {.problem = fmt::format("process {} has not come within {:.3g} s", process,
                                    std::chrono::duration<double>(options.deadline).count()),
             .where = fmt::format("{}:{}", address(options, process).host, address(options, process).port),
             .remedy = "look whether it runs, and what it said last"}};
  }

  // Returns the first process that is not connected.
  std::optional<int> first_missing() const {
    for (int i = 0; i < processes_; ++i) {
      if (i != process_ && !peer_of(i)->connected()) return i;
    }
    return std::nullopt;
  }

  // Takes the next step of a connection with a later process, which waits only for a machine that does not answer.
  // Whoever listens there and does not know the token may be left of an earlier run: tries again.
  void connect_with(const TcpTransportOptions& options, int other, Clock::time_point end,
                    std::unique_ptr<Pending>& made) const {
    TcpPeer& peer = *peer_of(other);
    if (peer.connected()) return;
    if (made == nullptr) {
      // A far machine takes hundreds of milliseconds, one that has lost the first packet a second.
      constexpr auto kOnce = std::chrono::milliseconds(2000);
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      std::optional<Socket> socket =
          core::connect_once(address(options, other).host, address(options, other).port, std::min(kOnce, left));
      if (!socket || !write_greeting(*socket, greeting(process_, other, options.token))) return;
      made = std::make_unique<Pending>();
      made->socket = *std::move(socket);
      return;
    }
    const bool complete = made->take();
    if (complete && made->said == greeting(other, process_, options.token)) peer.connect(std::move(made->socket));
    if (complete || made->closed) made.reset();
  }

  // Takes the next step of all connections with earlier processes, without waiting. A pending one has two seconds.
  void accept_from_others(const TcpTransportOptions& options, const Socket& listening,
                          std::vector<std::unique_ptr<Pending>>& accepted) const {
    constexpr size_t kMostPending = 64;
    constexpr auto kForGreeting = std::chrono::seconds(2);
    while (accepted.size() < kMostPending) {
      std::optional<Socket> socket = core::accept_from(listening);
      if (!socket) break;
      accepted.push_back(std::make_unique<Pending>());
      accepted.back()->socket = *std::move(socket);
    }
    for (auto& pending : accepted) {
      const bool complete = pending->take();
      const Greeting& said = pending->said;
      const bool known = complete && said.from >= 0 && said.from < process_ &&
                         said == greeting(said.from, process_, options.token) && !peer_of(said.from)->connected();
      if (known && write_greeting(pending->socket, greeting(process_, said.from, options.token))) {
        peer_of(said.from)->connect(std::move(pending->socket));
      }
      if (complete || pending->closed || Clock::now() - pending->since > kForGreeting) pending.reset();
    }
    std::erase(accepted, nullptr);
  }

  const std::shared_ptr<TcpPeers> peers_ = std::make_shared<TcpPeers>();
};

}  // namespace

void TcpTransportOptions::validate() const {
  if (process >= 0 && std::cmp_less(process, addresses.size()) && token.size() <= kMostTokenBytes) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "processes cannot be connected so",
                                            .expected = fmt::format("one of {} processes, a token of at most {} bytes",
                                                                    addresses.size(), kMostTokenBytes),
                                            .actual = fmt::format("process {}, {} bytes", process, token.size())});
}

std::unique_ptr<MessageTransport> open_tcp_transport(const TcpTransportOptions& options) {
  options.validate();
  return std::make_unique<TcpTransport>(options);
}

}  // namespace trainyard::parallel
