#include "tests/cluster_simulation/network.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>

namespace trainyard::cluster_simulation {

void Descriptor::changed() {
  const auto watchers = std::move(watchers_);
  watchers_.clear();
  for (const auto& [thread, block] : watchers) thread->process.world->wake_block(*thread, block);
}

short EventCounter::ready() const {
  return static_cast<short>(POLLOUT | (count_ > 0 ? POLLIN : 0));
}

void EventCounter::add(uint64_t count) {
  count_ += count;
  changed();
}

uint64_t EventCounter::take() {
  return std::exchange(count_, 0);
}

void Network::send(int from, int to, Nanos& last, std::function<void()> what) {
  RandomDraws& draws = world_.draws();
  Nanos time = draws.between(options_.shortest, options_.longest);
  if (options_.slow_chance > 0 && draws.chance(options_.slow_chance)) time += draws.between(0, options_.slowest);
  if (from == to) time = draws.between(kMicrosecond, 10 * kMicrosecond);
  last = std::max(world_.now() + time, last + 1);
  world_.at(last, [this, from, to, what = std::move(what)] { arrive(from, to, what); });
}

void Network::arrive(int from, int to, std::function<void()> what) {
  if (is_cut(from, to)) {
    held_[{from, to}].push_back(std::move(what));
  } else {
    what();
  }
}

void Network::cut(int from, int to) {
  if (from == to) return;
  world_.trace("network is cut:", from, "to", to);
  cuts_.insert({from, to});
}

void Network::mend(int from, int to) {
  if (cuts_.erase({from, to}) == 0) return;
  world_.trace("network is mended:", from, "to", to);
  std::deque<std::function<void()>> held = std::move(held_[{from, to}]);
  held_.erase({from, to});
  for (const auto& what : held) what();
}

void Network::reset(int one, int other) {
  world_.trace("connections are reset:", one, "and", other);
  for (const std::weak_ptr<Socket>& each : std::vector(sockets_)) {
    const std::shared_ptr<Socket> socket = each.lock();
    if (!socket || !socket->is_connected()) continue;
    const int here = socket->machine().number, there = socket->peer_machine();
    if ((here == one && there == other) || (here == other && there == one)) socket->reset();
  }
}

uint16_t Network::free_port(int machine) const {
  uint16_t port = kFirstFreePort;
  for (auto found = listeners_.find({machine, port}); found != listeners_.end() && !found->second.expired();
       found = listeners_.find({machine, port})) {
    ++port;
  }
  return port;
}

short Socket::ready() const {
  switch (state_) {
    case State::kFresh:
      return POLLOUT | POLLHUP;
    case State::kListens:
      return waiting_.empty() ? 0 : POLLIN;
    case State::kConnects:
      return 0;
    case State::kFailed:
      return POLLIN | POLLOUT | POLLERR | POLLHUP;
    case State::kConnected:
      break;
  }
  int events = 0;
  if (!arrived_.empty() || ended_) events |= POLLIN;
  if (under_way_ < network_.options().window) events |= POLLOUT;
  return static_cast<short>(events);
}

int Socket::bind(uint16_t port) {
  port_ = port == 0 ? network_.free_port(machine_.number) : port;
  const auto found = network_.listeners().find({machine_.number, port_});
  if (found == network_.listeners().end() || found->second.expired()) return 0;
  errno = EADDRINUSE;
  return -1;
}

int Socket::listen() {
  state_ = State::kListens;
  network_.listeners()[{machine_.number, port_}] = weak_from_this();
  return 0;
}

std::shared_ptr<Socket> Socket::accept() {
  if (waiting_.empty()) return nullptr;
  std::shared_ptr<Socket> next = std::move(waiting_.front());
  waiting_.pop_front();
  return next;
}

int Socket::connect(int to, uint16_t port) {
  state_ = State::kConnects;
  const int from = machine_.number;
  network_.send(from, to, last_arrival_, [self = shared_from_this(), from, to, port] {
    Network& network = self->network_;
    const auto found = network.listeners().find({to, port});
    const std::shared_ptr<Socket> listener = found == network.listeners().end() ? nullptr : found->second.lock();
    std::shared_ptr<Socket> other;
    if (listener && !listener->closed_ && listener->state_ == State::kListens) {
      other = std::make_shared<Socket>(network, listener->machine_);
      network.add(other);
      other->state_ = State::kConnected;
      other->port_ = port;
      other->peer_ = self;
      listener->waiting_.push_back(other);
      listener->changed();
    }
    Nanos unused = 0;
    network.send(to, from, other ? other->last_arrival_ : unused, [self, other] {
      if (self->closed_) {
        if (other) other->reset();
        return;
      }
      self->peer_ = other;
      self->state_ = other ? State::kConnected : State::kFailed;
      self->error_ = other ? 0 : ECONNREFUSED;
      if (other && other->state_ == State::kFailed) self->reset();  // meanwhile
      self->changed();
    });
  });
  errno = EINPROGRESS;
  return -1;
}

ssize_t Socket::send(const char* bytes, size_t count) {
  if (state_ != State::kConnected) {
    errno = error_ != 0 ? std::exchange(error_, 0) : EPIPE;
    return -1;
  }
  RandomDraws& draws = network_.world().draws();
  const size_t window = network_.options().window;
  size_t taken = under_way_ < window ? std::min(count, window - under_way_) : 0;
  if (taken == 0) {
    if (count == 0) return 0;
    errno = EAGAIN;
    return -1;
  }
  if (taken > 1 && draws.chance(network_.options().split_chance)) taken = 1 + draws.below(taken - 1);
  under_way_ += taken;
  size_t begin = 0;
  while (begin < taken) {
    size_t piece = taken - begin;
    if (piece > 1 && draws.chance(network_.options().split_chance)) piece = 1 + draws.below(piece);
    std::string text(bytes + begin, piece);
    unanswered_ += piece;
    network_.send(machine_.number, peer_->machine_.number, last_arrival_,
                  [from = shared_from_this(), to = peer_, text = std::move(text)]() mutable {
                    from->unanswered_ -= text.size();
                    to->arrive(std::move(text));
                  });
    begin += piece;
  }
  return static_cast<ssize_t>(taken);
}

void Socket::keep_alive() {
  if (!std::exchange(keeps_alive_, true)) look_for_peer();
}

void Socket::look_for_peer() {
  if (closed_ || state_ != State::kConnected || !peer_) return;
  const int here = machine_.number, there = peer_machine();
  const Nanos now = network_.world().now();
  const bool silent = network_.is_cut(here, there) || network_.is_cut(there, here);
  silent_since_ = silent ? std::min(silent_since_, now) : kNever;
  if (silent && now - silent_since_ >= (unanswered_ > 0 ? longest_unanswered_ : kKeepAlive)) {
    state_ = State::kFailed;
    error_ = ETIMEDOUT;
    return changed();
  }
  constexpr Nanos kAgain = 2 * kSecond;
  network_.world().at(now + kAgain, [self = shared_from_this()] { self->look_for_peer(); });
}

Nanos Socket::silence() const {
  return silent_since_ == kNever ? 0 : network_.world().now() - silent_since_;
}

void Socket::arrive(std::string bytes) {
  const bool forgotten = keeps_alive_ && state_ == State::kFailed;  // and the other end does not know it
  if (state_ != State::kConnected && !forgotten) return;
  if (closed_ || forgotten) {
    // The system answers what comes to a closed end with a reset.
    Nanos& last = last_arrival_;
    network_.send(machine_.number, peer_->machine_.number, last, [to = peer_] { to->reset(); });
    return;
  }
  arrived_.push_back(std::move(bytes));
  changed();
}

void Socket::end() {
  ended_ = true;
  changed();
}

void Socket::reset() {
  if (state_ != State::kConnected && state_ != State::kConnects) return;
  state_ = State::kFailed;
  error_ = ECONNRESET;
  changed();
}

ssize_t Socket::receive(char* bytes, size_t count) {
  RandomDraws& draws = network_.world().draws();
  if (arrived_.empty()) {
    if (ended_) return 0;
    if (state_ == State::kFailed) {
      // The error is told once; then the connection is at its end.
      ended_ = true;
      errno = error_ != 0 ? std::exchange(error_, 0) : ECONNRESET;
      return -1;
    }
    errno = state_ == State::kConnected ? EAGAIN : ENOTCONN;
    return -1;
  }
  if (count > 1 && draws.chance(network_.options().split_chance)) count = 1 + draws.below(count);
  size_t done = 0;
  while (done < count && !arrived_.empty()) {
    const std::string& piece = arrived_.front();
    const size_t size = std::min(count - done, piece.size() - taken_);
    std::copy_n(piece.data() + taken_, size, bytes + done);
    done += size;
    taken_ += size;
    if (taken_ < piece.size()) break;
    arrived_.pop_front();
    taken_ = 0;
  }
  if (peer_) {
    peer_->under_way_ -= std::min(peer_->under_way_, done);
    peer_->changed();
  }
  return static_cast<ssize_t>(done);
}

int Socket::take_error() {
  return std::exchange(error_, 0);
}

void Socket::close() {
  if (std::exchange(closed_, true)) return;
  if (state_ == State::kListens) {
    for (const std::shared_ptr<Socket>& each : waiting_) each->close();
    waiting_.clear();
    return;
  }
  if (state_ != State::kConnected || !peer_) return;
  // As Linux does: a reset where something was not read, which the other end may see before it has read all.
  const bool unread = !arrived_.empty();
  network_.send(machine_.number, peer_->machine_.number, last_arrival_, [to = peer_, unread] {
    if (unread) {
      to->reset();
    } else {
      to->end();
    }
  });
}

}  // namespace trainyard::cluster_simulation
