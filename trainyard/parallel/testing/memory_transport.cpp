#include "trainyard/parallel/testing/memory_transport.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace trainyard::parallel {
namespace {

struct Mailbox {
  struct Line {
    std::deque<std::string> messages;
    int64_t receives = 0, taken = 0;  // receives take messages in the order in which they were posted
  };
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Line> lines;  // by sender, receiver and tag
};

class Sent final : public Transfer {
 public:
  bool done() override { return true; }
};

class Receipt final : public Transfer {
 public:
  Receipt(std::shared_ptr<Mailbox> mailbox, std::tuple<int, int, int> line, void* data, size_t bytes)
      : mailbox_(std::move(mailbox)), line_(std::move(line)), data_(data), bytes_(bytes) {
    const std::lock_guard lock(mailbox_->mutex);
    turn_ = mailbox_->lines[line_].receives++;
  }

  bool done() override {
    const std::lock_guard lock(mailbox_->mutex);
    Mailbox::Line& line = mailbox_->lines[line_];
    if (line.taken != turn_ || line.messages.empty()) return false;
    const std::string& message = line.messages.front();
    if (message.size() > bytes_) throw std::logic_error("a message is longer than its receiver expects");
    std::memcpy(data_, message.data(), message.size());
    line.messages.pop_front();
    ++line.taken;
    return true;
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const std::tuple<int, int, int> line_;
  void* const data_;
  const size_t bytes_;
  int64_t turn_ = 0;
};

class MemoryTransport final : public MessageTransport {
 public:
  MemoryTransport(std::shared_ptr<Mailbox> mailbox, int process, int processes) : mailbox_(std::move(mailbox)) {
    process_ = process;
    processes_ = processes;
  }

  std::unique_ptr<Transfer> send(int to, int tag, const void* data, size_t bytes) override {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->lines[{process_, to, tag}].messages.emplace_back(static_cast<const char*>(data), bytes);
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Transfer> receive(int from, int tag, void* data, size_t bytes) override {
    return std::make_unique<Receipt>(mailbox_, std::tuple{from, process_, tag}, data, bytes);
  }
  void finish() override {}

 private:
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace

std::vector<std::function<std::unique_ptr<MessageTransport>()>> make_memory_transports(int processes) {
  const auto mailbox = std::make_shared<Mailbox>();
  std::vector<std::function<std::unique_ptr<MessageTransport>()>> all;
  for (int process = 0; process < processes; ++process) {
    all.emplace_back([=] { return std::make_unique<MemoryTransport>(mailbox, process, processes); });
  }
  return all;
}

}  // namespace trainyard::parallel
