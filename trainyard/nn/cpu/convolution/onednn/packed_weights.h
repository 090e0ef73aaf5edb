// Keeps a packed copy of parameters, and packs again when the parameter set's version says that values have changed.
// For one thread at a time.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trainyard::nn::cpu {

class PackedWeights {
 public:
  PackedWeights() = default;
  explicit PackedWeights(int64_t bytes) : bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }

  // Returns the copy for `version`. Calls pack(void* target) to fill it when there is none.
  template <typename Pack>
  const void* get(uint64_t version, const Pack& pack) {
    if (!memory_.defined()) allocate();
    if (!packed_ || version != version_) {
      pack(memory_.data_ptr());
      version_ = version;
      packed_ = true;
    }
    return memory_.data_ptr();
  }

 private:
  void allocate();

  int64_t bytes_ = 0;
  at::Tensor memory_;
  uint64_t version_ = 0;
  bool packed_ = false;
};

}  // namespace trainyard::nn::cpu
