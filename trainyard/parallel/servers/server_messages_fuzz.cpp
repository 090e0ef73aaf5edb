// Untrusted messages to a parameter server: what is read is written back as a message that reads the same, and asks for
// no more memory than its bounds allow. The first byte says which call it is, the second where the message is cut in
// pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/servers/wire.h"

namespace {

using namespace trainyard::parallel;

IncomingMessage in_pieces(std::span<const std::byte> bytes, size_t size) {
  std::vector<std::span<const std::byte>> pieces;
  for (size_t at = 0; at < bytes.size(); at += size)
    pieces.push_back(bytes.subspan(at, std::min(size, bytes.size() - at)));
  return {std::move(pieces), nullptr};
}

// Compares bytes, so that not a number equals itself.
template <typename Message>
void read(const IncomingMessage& message) {
  const std::string again = encode(wire::decode<Message>(message));
  const std::string twice = encode(wire::decode<Message>(in_pieces(std::as_bytes(std::span(again)), again.size() + 1)));
  if (again != twice) std::abort();
}

template <typename Message>
void read_with_data(const IncomingMessage& message) {
  wire::Data data;
  const auto decoded = wire::decode<Message>(message, data);
  if (data.bytes > wire::kChunkBytes || data.offset + data.bytes != message.size()) std::abort();
  std::string copy(data.bytes, '\0');
  message.copy(data.offset, copy.data(), copy.size());
  const std::string again = encode(decoded, data.bytes) + copy;
  wire::Data other;
  if (wire::decode<Message>(in_pieces(std::as_bytes(std::span(again)), again.size()), other) != decoded) std::abort();
}

void read_registration(const IncomingMessage& message) {
  const auto request = wire::decode<wire::RegisterRequest>(message);
  uint64_t elements = 0;
  for (const wire::Tensor& tensor : request.tensors) elements += wire::element_count(tensor);
  if (elements > wire::kMostElements || request.tensors.size() > wire::kMostTensors) std::abort();
  const std::string again = encode(request);
  if (wire::decode<wire::RegisterRequest>(in_pieces(std::as_bytes(std::span(again)), 7)) != request) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  const auto message = in_pieces(std::as_bytes(std::span(bytes + 2, size - 2)), size_t{1} + bytes[1]);
  try {
    switch (bytes[0] % 13) {
      case 0:
        read_registration(message);
        break;
      case 1:
        read<wire::AttendRequest>(message);
        break;
      case 2:
        read<wire::BeatRequest>(message);
        break;
      case 3:
        read<wire::StartRequest>(message);
        break;
      case 4:
        read_with_data<wire::WriteRequest>(message);
        break;
      case 5:
        read_with_data<wire::PushRequest>(message);
        break;
      case 6:
        read<wire::ApplyRequest>(message);
        break;
      case 7:
        read<wire::ReadRequest>(message);
        break;
      case 8:
        read<wire::HoldRequest>(message);
        break;
      case 9:
        read<wire::FailRequest>(message);
        break;
      case 10:
        read<wire::RegisterReply>(message);
        break;
      case 11:
        read<wire::Progress>(message);
        break;
      default:
        wire::decode_read_reply(message);
    }
  } catch (const trainyard::core::Error&) {
    // Refused.
  }
  return 0;
}
