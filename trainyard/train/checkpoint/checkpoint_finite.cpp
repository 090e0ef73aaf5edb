#include "trainyard/train/checkpoint/checkpoint_finite.h"

#include <algorithm>
#include <cstring>

namespace trainyard::train {
namespace {

// Counts in a type of the elements' width, so that it becomes vector instructions: pieces are too short to overflow it.
constexpr size_t kPiece = 16384;  // elements

// A number is not finite when all bits of its exponent are set.
template <typename Bits>
int64_t count(std::span<const std::byte> bytes, Bits exponent) {
  int64_t found = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t elements = std::min(kPiece, (bytes.size() - begin) / sizeof(Bits));
    if (elements == 0) break;
    Bits in_piece = 0;
    for (size_t i = 0; i < elements; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes.data() + begin + i * sizeof(Bits), sizeof bits);
      in_piece = static_cast<Bits>(in_piece + ((bits & exponent) == exponent ? 1 : 0));
    }
    found += static_cast<int64_t>(in_piece);
    begin += elements * sizeof(Bits);
  }
  return found;
}

}  // namespace

bool must_be_finite(std::string_view name, at::ScalarType dtype, int64_t dimensions) {
  if (name.starts_with("trainer/monitors/")) return false;
  return c10::isFloatingType(dtype) && (dimensions > 0 || name.starts_with("model/"));
}

int64_t count_non_finite(at::ScalarType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case at::kFloat:
      return count<uint32_t>(bytes, 0x7f800000);
    case at::kDouble:
      return count<uint64_t>(bytes, 0x7ff0000000000000);
    case at::kHalf:
      return count<uint16_t>(bytes, 0x7c00);
    case at::kBFloat16:
      return count<uint16_t>(bytes, 0x7f80);
    default:
      return 0;
  }
}

}  // namespace trainyard::train
