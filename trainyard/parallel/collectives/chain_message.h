// The message with which a collective begins between two neighbours in the chain: what rank 0 called on its way
// forward, and on both ways why it cannot be done. Processes of one training run on machines of one byte order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/threads/collective_call.h"

namespace trainyard::parallel {

struct ChainMessage {
  static constexpr uint32_t kMagic = 0x54594331;  // "TYC1"
  static constexpr int kMostDimensions = 16;
  static constexpr size_t kText = 1200;

  uint32_t magic = kMagic;
  int32_t kind = 0, argument = 0, type = 0, dimensions = 0;
  int32_t refused = 0;  // 1: `text` says why
  uint64_t sequence = 0;
  int64_t shape[kMostDimensions] = {};
  char text[kText] = {};  // the parts of an error, each with a zero behind it

  // Throws kInvalidArgument for a tensor of more dimensions than a message holds.
  static ChainMessage of(const CollectiveCall& call, uint64_t sequence);
  void refuse(const core::Error& error);

  // Returns the bytes that are sent: all but the rest of the text.
  size_t bytes() const;
  // Throws kCorruptData for what is no message of the call `wanted`.
  void validate(uint64_t wanted) const;
  CollectiveCall call() const;
  std::optional<core::Error> refusal() const;
};

}  // namespace trainyard::parallel
