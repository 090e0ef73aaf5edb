// The alpha-beta model of a network: a message takes a latency (alpha), and its bytes pass a link one after another at
// a bandwidth (1 / beta). Each rank has a link of its own to a switch that is never full, with the same bandwidth in
// both directions at the same time.
#pragma once

namespace trainyard::parallel {

struct LinkModel {
  double latency_seconds = 0;   // alpha, from the call that sends to the receiver's memory
  double bytes_per_second = 0;  // of a rank's link in each direction; infinity: bytes take no time

  // Throws kInvalidArgument for a latency below 0 or infinite, and for a bandwidth that is not above 0.
  void validate() const;
  // Returns the seconds of `messages` one after another, which carry `bytes` in all.
  double seconds(double messages, double bytes) const { return messages * latency_seconds + bytes / bytes_per_second; }
};

}  // namespace trainyard::parallel
