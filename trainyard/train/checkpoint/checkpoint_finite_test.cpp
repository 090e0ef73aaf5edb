#include "trainyard/train/checkpoint/checkpoint_finite.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"
#include "trainyard/train/testing/checkpoint_state.h"

namespace trainyard::train::checkpoint_finite_test {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Against std::isfinite on each element, with values at random places.
TEST(CountNonFinite, CountsEveryNanAndInfinity) {
  std::mt19937 random(7);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const int64_t elements : {0, 1, 7, 16383, 16384, 16385, 100'000}) {
      at::Tensor values = at::full({elements}, 1.5);
      std::bernoulli_distribution chosen(0.3);
      int64_t expected = 0;
      for (int64_t i = 0; i < elements; ++i) {
        const float value = chosen(random) ? std::array{kNan, -kNan, kInfinity, -kInfinity, -0.0F}[i % 5] : 1e-5F;
        values.mutable_data_ptr<float>()[i] = value;
        expected += std::isfinite(value) ? 0 : 1;
      }
      EXPECT_EQ(count_non_finite(dtype, bytes_of(values.to(dtype))), expected) << dtype << " " << elements;
    }
    EXPECT_EQ(count_non_finite(dtype, bytes_of(at::full({3}, -60000.0, dtype))), 0) << "large ones are finite";
  }
  const at::Tensor all = at::full({100'000}, kNan, at::kHalf);
  EXPECT_EQ(count_non_finite(at::kHalf, bytes_of(all)), 100'000) << "more than 16 bits can count";
  EXPECT_EQ(count_non_finite(at::kInt, bytes_of(at::full({3}, 0x7f800000, at::kInt))), 0);
}

// One tensor of a training's state, at any place.
class OneTensor : public core::Stateful {
 public:
  OneTensor(std::string name, at::Tensor value) : name_(std::move(name)), value_(std::move(value)) {}
  void save(core::StateWriter& writer) const override {
    writer.tensor("model/first", at::zeros({3}));
    writer.tensor(name_, value_);
    writer.real("best so far", kInfinity);
  }
  void load(const core::StateReader& reader) override { value_ = reader.tensor(name_); }

 private:
  std::string name_;
  at::Tensor value_;
};

at::Tensor with(float value, int64_t place, int64_t elements = 300'000) {
  at::Tensor tensor = at::zeros({elements});
  tensor.mutable_data_ptr<float>()[place] = value;
  return tensor;
}

TEST(CheckpointFinite, NothingIsSavedAndTheGoodOnesStay) {
  const core::TempDir directory;
  CheckpointStore store(directory.path(), 1);
  store.save(3, {}, VersionedState(3));
  for (const char* name :
       {"model/conv.weight", "model/bn.running_var", "optimizer/conv.weight.momentum", "average/x"}) {
    for (const float value : {kNan, kInfinity, -kInfinity}) {
      for (const int64_t place : {0, 65'536, 299'999}) {
        const auto error = error_of([&] { store.save(4, {}, OneTensor(name, with(value, place))); });
        ASSERT_TRUE(error) << name;
        EXPECT_THAT(error->what(), HasSubstr(std::string("step 4, tensor ") + name));
        EXPECT_THAT(error->what(), HasSubstr("1 of 300000 NaN or infinite"));
      }
    }
  }
  EXPECT_EQ(core::local_file_system().list(directory.path()), std::vector<std::string>{"model.ckpt-3"});
  EXPECT_EQ(latest_version(directory.path()), 3);
  EXPECT_THROW(store.save(4, {}, OneTensor("model/w", with(kNan, 1))), NonFiniteState);
}

TEST(CheckpointFinite, SingleNumbersThatAreNotTheModelsMayBeInfinite) {
  const core::TempDir directory;
  CheckpointStore store(directory.path());
  EXPECT_NO_THROW(store.save(1, {}, OneTensor("loss_scale/scale", at::full({}, kInfinity))));
  EXPECT_NO_THROW(open_newest_checkpoint(directory.path(), nullptr));
  EXPECT_THROW(store.save(1, {}, OneTensor("model/scale", at::full({}, kInfinity))), NonFiniteState);
}

// A file that a program made which does not look, or an older release.
void put(const std::string& directory, const std::string& name, float value, int64_t place) {
  core::FileSystem& files = core::local_file_system();
  Manifest manifest = read_manifest(directory, files);
  std::string tensors = files.read_file(core::join_path(directory, kTensorFile));
  for (TensorEntry& entry : manifest.tensors) {
    if (entry.name != name) continue;
    std::memcpy(tensors.data() + entry.offset + 4 * place, &value, 4);
    entry.checksum = core::crc32c(std::string_view(tensors).substr(entry.offset, entry.bytes));
  }
  files.write_file_atomically(core::join_path(directory, kTensorFile), tensors);
  files.write_file_atomically(core::join_path(directory, kManifestFile), encode_manifest(manifest));
}

TEST(CheckpointFinite, ACheckpointWithNanIsRefusedNamingTheTensors) {
  const core::TempDir directory;
  CheckpointStore store(directory.path());
  store.save(3, {}, VersionedState(3, 20));
  const CheckpointInfo newest = store.save(4, {}, OneTensor("model/w", with(0, 0)));
  put(newest.path, "model/w", kInfinity, 299'998);
  put(newest.path, "model/w", kNan, 299'999);
  put(newest.path, "model/first", kNan, 0);
  VersionedState state(0, 20);
  for (const std::function<void()>& reading : std::vector<std::function<void()>>{
           [&] { open_checkpoint(newest, nullptr); }, [&] { open_newest_checkpoint(directory.path(), nullptr); },
           [&] { resume_newest_checkpoint(store, nullptr, state); }}) {
    const auto error = error_of(reading);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData);
    EXPECT_THAT(error->what(), HasSubstr("checkpoint holds NaN or infinity: " + newest.path));
    EXPECT_THAT(error->what(), HasSubstr("2 tensors with others: model/first (1 of 3), model/w (2 of 300000)"));
  }
  resume_newest_checkpoint(store, nullptr, state, DamagedCheckpoints::kSetAside);
  EXPECT_EQ(state.version(), 3);
}

}  // namespace
}  // namespace trainyard::train::checkpoint_finite_test
