#include "trainyard/parallel/process_group/process_hub.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/process_group/wake_event.h"

namespace trainyard::parallel {

using core::Error, core::ErrorCode, std::chrono::milliseconds;

namespace {

using HubClock = std::chrono::steady_clock;

constexpr auto kTimeOfHello = std::chrono::seconds(5);
constexpr auto kHubEndTimeout = std::chrono::seconds(1);
constexpr size_t kMostUnknownPeers = 64;

struct Peer {
  core::FrameConnection connection;
  HubClock::time_point since;
  int rank = -1;  // below 0: has not sent the token
  bool refused = false, leaves = false, open = true;
};

// The texts of one collective call, as far as they have come.
struct Gathered {
  SharedTexts texts;
  std::vector<bool> came;
};

}  // namespace

class ProcessHub::Server {
 public:
  Server(core::Socket listening, ProcessHubOptions options)
      : options_(std::move(options)),
        listening_(std::move(listening)),
        liveness_(options_.size, options_.deadlines, HubClock::now()),
        thread_({.name = "process hub"}, [this] { serve(); }) {}

  ~Server() {
    ending_ = true;
    wake_.wake();
    thread_.join();
  }

 private:
  void serve() {
    auto beat = HubClock::now();
    std::optional<HubClock::time_point> end;
    while (true) {
      wait(end ? milliseconds(10) : heartbeat_interval(options_.deadlines));
      // Before anything is read: whatever came before the end was asked for is read below.
      const bool ending = ending_;
      accept();
      for (Peer& peer : peers_) read(peer);
      const auto now = HubClock::now();
      if (!failure_ && !gone_) {
        if (const auto error = liveness_.judge(now)) fail(*error);
      }
      if (now - beat >= heartbeat_interval(options_.deadlines)) {
        beat = now;
        tell_all(GroupMessage::kBeat, encode(liveness_.last(0)));
      }
      for (Peer& peer : peers_) write(peer);
      peers_.remove_if(
          [&](const Peer& peer) { return !peer.open || (peer.rank < 0 && now - peer.since > kTimeOfHello); });
      if (!ending) continue;
      if (!end) end = now + kHubEndTimeout;
      const bool all_said =
          std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.connection.has_unsent(); });
      // Rank 0's connection ends before the hub does. What it said last, such as why it fails, may still lie in it.
      const bool all_heard = find(0) == nullptr;
      if ((all_said && all_heard) || now > *end) return;
    }
  }

  void wait(milliseconds longest) {
    std::vector<pollfd> events = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
                                  // poll() passes over -1
                                  {.fd = is_full_ ? -1 : listening_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) {
      const auto writes = static_cast<int16_t>(peer.connection.has_unsent() ? POLLOUT : 0);
      events.push_back({.fd = peer.connection.descriptor(), .events = static_cast<int16_t>(POLLIN | writes)});
    }
    ::poll(events.data(), events.size(), static_cast<int>(longest.count()));
    wake_.reset();
  }

  void accept() {
    is_full_ = false;
    try {
      while (auto socket = core::accept_from(listening_)) add(*std::move(socket));
    } catch (const Error& error) {
      is_full_ = true;
      // Once all ranks are here, only unknown peers are kept waiting.
      if (came_ < options_.size) fail(error.in("rank 0"));
    }
  }

  void add(core::Socket socket) {
    const auto is_pending = [](const Peer& peer) { return peer.rank < 0; };
    const auto pending = std::count_if(peers_.begin(), peers_.end(), is_pending);
    // All ranks may come at once, before one of them is read. Above that, the oldest has had its time.
    if (static_cast<size_t>(pending) >= kMostUnknownPeers + static_cast<size_t>(options_.size)) {
      peers_.erase(std::find_if(peers_.begin(), peers_.end(), is_pending));
    }
    peers_.push_back({.connection = {std::move(socket), kLongestGroupHello}, .since = HubClock::now()});
  }

  void read(Peer& peer) {
    std::vector<core::Frame> frames;
    std::optional<Error> corrupt;
    bool open = true;
    try {
      open = peer.connection.receive(frames);
    } catch (const Error& error) {
      corrupt = error;
    }
    try {
      for (const core::Frame& frame : frames) take(peer, frame);
    } catch (const Error& error) {
      corrupt = error;
    }
    if (!open) close(peer);
    if (!corrupt) return;
    peer.open = false;
    if (peer.rank < 0) {
      core::log::warning("rank 0 hung up on a stranger: {}", corrupt->what());
    } else {
      fail(corrupt->in(fmt::format("a message of rank {}", peer.rank)));
    }
  }

  // A peer that takes nothing more may have said why: read() closes it behind its last message.
  static void write(Peer& peer) {
    if (peer.open) peer.connection.flush();
  }

  void close(Peer& peer) {
    if (!peer.open) return;
    peer.open = false;
    if (peer.rank >= 0) liveness_.closed(peer.rank, HubClock::now());  // which is judged next
  }

  void take(Peer& peer, const core::Frame& frame) {
    const auto message = static_cast<GroupMessage>(frame.kind);
    if (peer.refused) return;
    if (peer.rank < 0) {
      if (message != GroupMessage::kHello) throw Error(ErrorCode::kCorruptData, "it did not say who it is");
      return welcome(peer, decode_hello(frame.body));
    }
    switch (message) {
      case GroupMessage::kText:
        return share(peer.rank, decode_texts(frame.body));
      case GroupMessage::kNote:
        return tell(0, GroupMessage::kNote, frame.body);
      case GroupMessage::kFailed:
        return fail(decode_error(frame.body));
      case GroupMessage::kBeat:
        return liveness_.heard(peer.rank, decode_activity(frame.body), HubClock::now());
      case GroupMessage::kLeave:
        peer.leaves = true;
        gone_ =
            std::count_if(peers_.begin(), peers_.end(), [](const Peer& each) { return each.leaves; }) == options_.size;
        if (gone_) tell_all(GroupMessage::kGone, "");
        return;
      case GroupMessage::kHello:
      case GroupMessage::kWelcome:
      case GroupMessage::kTexts:
      case GroupMessage::kGone:
        break;
    }
    throw Error(ErrorCode::kCorruptData, fmt::format("a message of kind {} is none that a rank sends", frame.kind));
  }

  void welcome(Peer& peer, const Hello& hello) {
    if (hello.token != options_.token)
      throw Error(ErrorCode::kCorruptData, "it does not know the token of this training");
    peer.connection.allow(kLongestGroupMessage);
    const auto refuse = [&](std::string problem, std::string expected, std::string actual) {
      const Error error(ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                                      .where = fmt::format("rank {}", hello.rank),
                                                      .expected = std::move(expected),
                                                      .actual = std::move(actual),
                                                      .remedy = "give each process its own RANK, and all the same "
                                                                "WORLD_SIZE"});
      peer.refused = true;
      peer.connection.send(static_cast<uint8_t>(GroupMessage::kFailed), encode(error));
      fail(error);
    };
    if (hello.size != options_.size || hello.rank < 0 || hello.rank >= hello.size) {
      return refuse("ranks disagree on how many they are", fmt::format("{} as on rank 0", options_.size),
                    std::to_string(hello.size));
    }
    if (find(static_cast<int>(hello.rank)) != nullptr) return refuse("two processes have the same rank", "", "");
    peer.rank = static_cast<int>(hello.rank);
    liveness_.heard(peer.rank, {}, HubClock::now());
    if (failure_) {
      peer.connection.send(static_cast<uint8_t>(GroupMessage::kFailed), encode(*failure_));
    } else if (++came_ == options_.size) {
      tell_all(GroupMessage::kWelcome, "");
    }
  }

  void share(int rank, SharedTexts own) {
    if (own.texts.size() != 1) throw Error(ErrorCode::kCorruptData, "a rank has one text");
    if (!own.from_all) {
      if (rank != 0) throw Error(ErrorCode::kCorruptData, "it is rank 0's turn to speak");
      for (int other = 1; other < options_.size; ++other) tell(other, GroupMessage::kTexts, encode(own));
      return;
    }
    const auto [found, is_new] = gathered_.try_emplace(own.call);
    Gathered& call = found->second;
    if (is_new) {
      call.texts = {.call = own.call, .what = own.what, .from_all = true, .texts = {}};
      call.texts.texts.resize(static_cast<size_t>(options_.size));
      call.came.resize(static_cast<size_t>(options_.size));
    } else if (call.texts.what != own.what) {
      return fail({ErrorCode::kInternal,
                   {.problem = "ranks agree on different things",
                    .where = fmt::format("rank {}", rank),
                    .expected = call.texts.what,
                    .actual = own.what}});
    }
    call.texts.texts[static_cast<size_t>(rank)] = std::move(own.texts[0]);
    call.came[static_cast<size_t>(rank)] = true;
    if (std::find(call.came.begin(), call.came.end(), false) == call.came.end()) {
      tell_all(GroupMessage::kTexts, encode(call.texts));
      gathered_.erase(found);
    }
  }

  // The first error stays.
  void fail(const Error& error) {
    if (failure_) return;
    failure_ = error;
    tell_all(GroupMessage::kFailed, encode(error));
  }

  Peer* find(int rank) {
    const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.rank == rank; });
    return found == peers_.end() ? nullptr : &*found;
  }

  void tell(int rank, GroupMessage message, const std::string& body) {
    if (Peer* peer = find(rank)) peer->connection.send(static_cast<uint8_t>(message), body);
  }

  void tell_all(GroupMessage message, const std::string& body) {
    for (int rank = 0; rank < options_.size; ++rank) tell(rank, message, body);
  }

  const ProcessHubOptions options_;
  const core::Socket listening_;
  const WakeEvent wake_;
  std::atomic<bool> ending_ = false;
  // Used by the thread only:
  std::list<Peer> peers_;
  Liveness liveness_;
  int came_ = 0;
  bool gone_ = false;     // all ranks leave
  bool is_full_ = false;  // no more files may be open
  std::map<int64_t, Gathered> gathered_;
  std::optional<Error> failure_;
  core::Thread thread_;  // last: it uses all of the above
};

ProcessHub::ProcessHub(core::Socket listening, ProcessHubOptions options) {
  // A rank has one connection here and others in the exchange; 512 are for unknown peers, data and logs.
  core::allow_open_files(512 + 4 * static_cast<size_t>(options.size));
  server_ = std::make_unique<Server>(std::move(listening), std::move(options));
}

ProcessHub::~ProcessHub() = default;

}  // namespace trainyard::parallel
