// The message with which a collective begins between two neighbours in the chain. Forward it carries the call of rank
// 0, and in both directions the reason when the call cannot be done. All processes of a training run on machines of the
// same byte order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/plan/collective_call.h"

namespace trainyard::parallel {

struct CallMessage {
  static constexpr uint32_t kMagic = 0x54594331;  // "TYC1"
  static constexpr int kMostDimensions = 16;
  static constexpr size_t kText = 1200;

  uint32_t magic = kMagic;
  int32_t kind = 0, argument = 0, type = 0, dimensions = 0;
  int32_t refused = 0;  // 1: `text` says why
  uint64_t sequence = 0;
  int64_t shape[kMostDimensions] = {};
  char text[kText] = {};  // the parts of an error, each followed by a zero

  // Returns the message of a rank's call; one that is refused for a tensor of more dimensions than a message holds.
  static CallMessage of(const CollectiveCall& call, uint64_t sequence, int rank);
  void refuse(const core::Error& error);

  // Returns the bytes that are sent: all but the rest of the text.
  size_t bytes() const;
  // Throws kCorruptData unless this is a message of call `wanted`.
  void validate(uint64_t wanted) const;
  CollectiveCall call() const;
  std::optional<core::Error> refusal() const;
};

}  // namespace trainyard::parallel
