#include "trainyard/parallel/process_group/state_broadcast.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/parallel/process_group/group_message.h"

namespace trainyard::parallel {
namespace {

constexpr const char* kWhat = "the state that rank 0 has read";
constexpr size_t kLongestPiece = size_t{4} << 20, kShortestPiece = size_t{64} << 10;
constexpr int kPiecesUnderWay = 16;  // rank 0 does not send more before all have these

enum EntryKind : int64_t { kTensorEntry, kIntegerEntry, kRealEntry, kTextEntry, kErrorEntry };

// The entries as one stream of bytes in pieces. Both sides count the pieces, to wait for each other now and then.
class PieceStream {
 public:
  explicit PieceStream(ProcessGroup& ranks) : ranks_(&ranks) {}

 protected:
  std::string exchange(const std::string& piece) {
    if (++pieces_ % kPiecesUnderWay == 0) ranks_->gather("pieces of a state have come", "");
    return ranks_->from_first(kWhat, piece);
  }

 private:
  ProcessGroup* ranks_;
  int pieces_ = 0;
};

class StateSender : public PieceStream, public core::StateWriter {
 public:
  explicit StateSender(ProcessGroup& ranks) : PieceStream(ranks), piece_bytes_(state_piece_bytes(ranks.size())) {}

  void tensor(const std::string& name, const at::Tensor& value) override {
    const at::Tensor plain = value.detach().cpu().contiguous();
    core::BodyWriter head;
    head.number(kTensorEntry).text(name).number(static_cast<int64_t>(plain.scalar_type())).number(plain.dim());
    for (const int64_t size : plain.sizes()) head.number(size);
    entry(head);
    bytes({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
  }
  void integer(const std::string& name, int64_t value) override {
    entry(core::BodyWriter().number(kIntegerEntry).text(name).number(value));
  }
  void real(const std::string& name, double value) override {
    entry(core::BodyWriter().number(kRealEntry).text(name).real(value));
  }
  void text(const std::string& name, std::string_view value) override {
    entry(core::BodyWriter().number(kTextEntry).text(name).text(value));
  }
  void fail(const core::Error& error) {
    entry(core::BodyWriter().number(kErrorEntry).text(encode(error)));
    end();
  }
  void end() {
    bytes(core::BodyWriter().text("").take());
    if (!piece_.empty()) exchange(std::exchange(piece_, {}));
  }

 private:
  // Its length comes first, so that the other side knows how much to wait for.
  void entry(core::BodyWriter head) { bytes(core::BodyWriter().text(head.take()).take()); }
  void bytes(std::string_view rest) {
    while (!rest.empty()) {
      const size_t taken = std::min(rest.size(), piece_bytes_ - piece_.size());
      piece_.append(rest.substr(0, taken));
      rest.remove_prefix(taken);
      if (piece_.size() == piece_bytes_) exchange(std::exchange(piece_, {}));
    }
  }

  const size_t piece_bytes_;
  std::string piece_;
};

class StateReceiver : public PieceStream {
 public:
  using PieceStream::PieceStream;

  void receive(core::MemoryState& state) {
    for (std::string head = next_text(); !head.empty(); head = next_text()) take(head, state);
  }

 private:
  void take(const std::string& head, core::MemoryState& state) {
    core::BodyReader body(head);
    const int64_t kind = body.number();
    const std::string name = body.text();
    if (kind == kErrorEntry) {
      next_text();  // the end, so that all ranks have taken all pieces
      throw decode_error(name).in("rank 0");
    }
    if (kind == kIntegerEntry) return state.integer(name, body.number());
    if (kind == kRealEntry) return state.real(name, body.real());
    if (kind == kTextEntry) return state.text(name, body.text());
    const auto dtype = static_cast<at::ScalarType>(body.number());
    std::vector<int64_t> sizes(static_cast<size_t>(body.number()));
    for (int64_t& size : sizes) size = body.number();
    const at::Tensor value = at::empty(sizes, dtype);
    read(static_cast<char*>(value.mutable_data_ptr()), value.nbytes());
    state.tensor(name, value);
  }
  std::string next_text() {
    std::string length(sizeof(int64_t), '\0');
    read(length.data(), length.size());
    std::string text(static_cast<size_t>(core::BodyReader(length).number()), '\0');
    read(text.data(), text.size());
    return text;
  }
  void read(char* to, size_t count) {
    while (count > 0) {
      if (taken_ == piece_.size()) {
        piece_ = exchange("");
        taken_ = 0;
      }
      const size_t some = std::min(count, piece_.size() - taken_);
      std::memcpy(to, piece_.data() + taken_, some);
      to += some;
      taken_ += some;
      count -= some;
    }
  }

  std::string piece_;
  size_t taken_ = 0;
};

}  // namespace

size_t state_piece_bytes(int ranks) {
  return std::max(kShortestPiece, kLongestPiece / static_cast<size_t>(std::max(1, ranks - 1)));
}

std::unique_ptr<core::StateReader> broadcast_state(ProcessGroup& ranks, const core::StateReader* first) {
  if (ranks.rank() != 0) {
    auto state = std::make_unique<core::MemoryState>();
    StateReceiver(ranks).receive(*state);
    return state;
  }
  StateSender sender(ranks);
  try {
    for (const std::string& name : first->names()) {
      core::MemoryState
          entry;  // whole before its first byte leaves: what cannot be read is an error, not half an entry
      first->copy(name, entry, name);
      entry.copy(name, sender, name);
    }
  } catch (const core::Error& error) {
    if (!ranks.reported()) sender.fail(error);
    throw error.in("rank 0");
  }
  sender.end();
  return nullptr;
}

}  // namespace trainyard::parallel
