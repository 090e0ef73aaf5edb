#include "trainyard/core/random.h"

#include <algorithm>
#include <cmath>

#include "trainyard/core/box_muller.h"
#include "trainyard/core/error.h"
#include "trainyard/core/philox_blocks.h"

namespace trainyard::core {
namespace {

constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection in which each input bit moves half of the
// output bits, so ids 0, 1, 2, ... give unrelated counters.
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

float unit_interval(uint32_t number) {
  // By way of a signed number: only that has a conversion in AVX2.
  return static_cast<float>(static_cast<int32_t>(number >> 8)) * 0x1p-24f;
}

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
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53} * counter[0];
    const uint64_t product1 = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
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
  const uint64_t key = mix(mix(seed + kGoldenRatio) ^ name_hash);
  uint64_t identity = mix(name_hash + kGoldenRatio);
  for (uint64_t id : ids) identity = mix((identity ^ mix(id + kGoldenRatio)) + kGoldenRatio);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  counter_ = {0, 0, static_cast<uint32_t>(identity), static_cast<uint32_t>(identity >> 32)};
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
