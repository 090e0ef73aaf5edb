#include "trainyard/core/random/random.h"

#include <algorithm>
#include <cmath>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/box_muller.h"
#include "trainyard/core/random/philox_blocks.h"
#include "trainyard/core/random/random_bits.h"

namespace trainyard::core {
namespace {

using random_bits::unit_interval;

class UniformBetween {
 public:
  UniformBetween(float low, float high) : low_(low), high_(high), below_high_(std::nextafter(high, low)) {}
  // The sum rounds up to `high` for one draw in 2^24 where high's neighbours are wider apart than unit_interval()'s.
  float operator()(uint32_t number) const {
    const float value = low_ + (high_ - low_) * unit_interval(number);
    return value < high_ ? value : below_high_;
  }

 private:
  float low_, high_, below_high_;
};

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  return random_bits::philox4x32(counter, key);
}

uint64_t stable_hash(std::string_view text, uint64_t before) {
  uint64_t hash = before;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The key holds seed and name, the upper half of the counter name and ids, the lower half counts blocks. So two streams
// overlap only when two different 128-bit identities collide.
RandomStream::RandomStream(uint64_t seed, std::string_view name, std::initializer_list<uint64_t> ids) {
  const uint64_t name_hash = stable_hash(name);
  uint64_t identity = random_bits::stream_identity(name_hash);
  for (uint64_t id : ids) identity = random_bits::with_id(identity, id);
  key_ = random_bits::halves(random_bits::stream_key(seed, name_hash));
  const std::array<uint32_t, 2> upper = random_bits::halves(identity);
  counter_ = {0, 0, upper[0], upper[1]};
}

uint32_t RandomStream::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32(counter_, key_);
    used_ = 0;
    if (++counter_[0] == 0) ++counter_[1];
  }
  return block_[used_++];
}

uint64_t RandomStream::next_u64() {
  const uint64_t low = next_u32();
  return low | uint64_t{next_u32()} << 32;
}

// What is left of a block, whole blocks, and the begin of one.
void RandomStream::next_u32s(uint32_t* out, int64_t count) {
  int64_t done = 0;
  while (used_ < 4 && done < count) out[done++] = next_u32();
  const int64_t blocks = (count - done) / 4;
  philox4x32_blocks(counter_, key_, out + done, blocks);
  const uint64_t counted = (counter_[0] | uint64_t{counter_[1]} << 32) + static_cast<uint64_t>(blocks);
  counter_[0] = static_cast<uint32_t>(counted);
  counter_[1] = static_cast<uint32_t>(counted >> 32);
  for (done += 4 * blocks; done < count;) out[done++] = next_u32();
}

float RandomStream::uniform() {
  return unit_interval(next_u32());
}

float RandomStream::uniform(float low, float high) {
  return UniformBetween(low, high)(next_u32());
}

void RandomStream::uniforms(float low, float high, float* out, int64_t count) {
  const UniformBetween between(low, high);
  std::array<uint32_t, 256> drawn;
  for (int64_t done = 0; done < count;) {
    const int64_t here = std::min<int64_t>(drawn.size(), count - done);
    next_u32s(drawn.data(), here);
    for (int64_t i = 0; i < here; ++i) out[done + i] = between(drawn[i]);
    done += here;
  }
}

double RandomStream::uniform_double() {
  return static_cast<double>(next_u64() >> 11) * 0x1p-53;
}

uint64_t RandomStream::below(uint64_t n) {
  if (n == 0) throw Error(ErrorCode::kInvalidArgument, "a random number below 0 was asked for");
  using Wide = unsigned __int128;
  Wide product = Wide{next_u64()} * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t threshold = -n % n;
    while (static_cast<uint64_t>(product) < threshold) product = Wide{next_u64()} * n;
  }
  return static_cast<uint64_t>(product >> 64);
}

float RandomStream::normal() {
  if (has_spare_normal_) {
    has_spare_normal_ = false;
    return spare_normal_;
  }
  const uint32_t radius = next_u32(), angle = next_u32();
  float value = 0;
  box_muller(&radius, &angle, &value, &spare_normal_, 1);
  has_spare_normal_ = true;
  return value;
}

void RandomStream::normals(float* out, int64_t count) {
  int64_t done = 0;
  while (done < count && (has_spare_normal_ || count - done < 2)) out[done++] = normal();
  constexpr int64_t kPairs = 64;
  std::array<uint32_t, 2 * kPairs> drawn;
  std::array<uint32_t, kPairs> radius, angle;
  std::array<float, kPairs> first, second;
  while (count - done >= 2) {
    const int64_t pairs = std::min(kPairs, (count - done) / 2);
    next_u32s(drawn.data(), 2 * pairs);
    for (int64_t i = 0; i < pairs; ++i) {
      radius[i] = drawn[2 * i];
      angle[i] = drawn[2 * i + 1];
    }
    box_muller(radius.data(), angle.data(), first.data(), second.data(), pairs);
    for (int64_t i = 0; i < pairs; ++i) {
      out[done++] = first[i];
      out[done++] = second[i];
    }
  }
  if (done < count) out[done] = normal();
}

float RandomStream::truncated_normal() {
  float value = normal();
  while (std::abs(value) > 2) value = normal();
  return value;
}

void RandomStream::truncated_normals(float* out, int64_t count) {
  std::array<float, 128> drawn;
  for (int64_t done = 0; done < count;) {
    // Never more than are missing, so that the stream ends where single numbers would leave it.
    const int64_t most = std::min<int64_t>(drawn.size(), count - done);
    normals(drawn.data(), most);
    // Without a branch, which would be mispredicted for one in 22: a refused number is overwritten by the next.
    for (int64_t i = 0; i < most; ++i) {
      out[done] = drawn[i];
      done += std::abs(drawn[i]) <= 2 ? 1 : 0;
    }
  }
}

}  // namespace trainyard::core
