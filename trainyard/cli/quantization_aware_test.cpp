// --qat through the command line: a training from weights in float, and what evaluates, predicts, exports and continues
// its checkpoints.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/trained_shapes.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/train/model/model.h"

namespace trainyard::cli::quantization_aware_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

class QuantizationAwareTraining : public TrainedShapes {
 protected:
  // The network, and the same trained further with --qat.
  static void SetUpTestSuite() {
    TrainedShapes::SetUpTestSuite();
    if (HasFatalFailure()) return;
    aware = run_command(qat(shared->file("aware"), {"--num_epochs=1", "--eval_during_training_every_n_epochs=1"}));
    ASSERT_EQ(aware.code, kSuccess) << aware.err;
  }

  static std::string run() { return shared->file("aware"); }
  static Arguments qat(const std::string& train_dir, const Arguments& more = {}) {
    return with_flags({"train", "--model=resnet20", "--qat", "--weights=" + float_run(), "--data_dir=" + data_dir(),
                       "--device=cpu", "--batch_size=32", "--optimizer=adam", "--init_learning_rate=0.0001",
                       "--calibration_batches=4", "--train_dir=" + train_dir},
                      more);
  }
  // Returns the bytes of the weights in float.
  std::string weights_of(const std::string& train_dir) {
    const std::string file = temp_.file("weights");
    const CommandResult written =
        run_command({"export", "--train_dir=" + train_dir, "--precision=float32", "--output=" + file});
    EXPECT_EQ(written.code, kSuccess) << written.err;
    return files().read_file(file);
  }

  static inline CommandResult aware;
};

TEST_F(QuantizationAwareTraining, ItsCheckpointComputesIn8BitsWithoutACalibration) {
  EXPECT_THAT(aware.err, AllOf(HasSubstr("dB"), HasSubstr("layers multiply 8-bit integers")));
  const CommandResult integers = eval({"--train_dir=" + run()});
  EXPECT_THAT(integers.err, Not(HasSubstr("dB")));
  const int64_t right = right_in(integers);
  EXPECT_GT(right, kValidationImages * 3 / 20) << "a network that has learnt something";
  EXPECT_EQ(right_in(eval({"--train_dir=" + run(), "--precision=int8"})), right);
  EXPECT_NEAR(static_cast<double>(right_in(eval({"--train_dir=" + run(), "--precision=float32"}))),
              static_cast<double>(right), kFewImages);
  // An epoch more may teach a young network much.
  EXPECT_GE(right, right_in(eval({"--train_dir=" + float_run()})) - 3 * kFewImages);
  // The training's own evaluations are those in 8 bits, up to numbers that lie between two steps.
  EXPECT_NEAR(static_cast<double>(right_in(aware)), static_cast<double>(right), 2);
}

TEST_F(QuantizationAwareTraining, IsQuantizedExportedAndPredictedWithItsScales) {
  const std::string file = temp_.file("int8.safetensors"), copy = temp_.file("copy.safetensors");
  const CommandResult quantized = run_command({"quantize", run(), "--output=" + file});
  ASSERT_EQ(quantized.code, kSuccess) << quantized.err;
  EXPECT_THAT(quantized.out, HasSubstr("with the scales of its training"));
  ASSERT_EQ(run_command({"export", "--train_dir=" + run(), "--precision=int8", "--output=" + copy}).code, kSuccess);
  EXPECT_EQ(files().read_file(copy), files().read_file(file));
  for (const char* flag : {"--calibration=entropy", "--calibration_batches=2", "--validation_split=0.5"}) {
    const std::string name = std::string(flag).substr(0, std::string(flag).find('='));
    expect_refused({"quantize", run(), "--output=" + temp_.file("refused"), flag},
                   {name + " has no use", "the scales of its training"});
  }
  expect_refused({"quantize", run(), "--output=" + temp_.file("refused"), "--data_dir=" + data_dir()}, {"--data_dir"});
  EXPECT_FALSE(files().exists(temp_.file("refused")));
  int integers = 0;
  const formats::TensorFile written = formats::open_tensor_file(file);
  for (const auto& tensor : written.tensors()) integers += tensor.type == formats::TensorType::kInt8 ? 1 : 0;
  EXPECT_GT(integers, 10);
  EXPECT_EQ(right_in(eval({"--weights=" + file})), right_in(eval({"--train_dir=" + run()})));
  const std::string onnx = temp_.file("int8.onnx");
  ASSERT_EQ(
      run_command({"export", "--train_dir=" + run(), "--precision=int8", "--format=onnx", "--output=" + onnx}).code,
      kSuccess);
  EXPECT_THAT(files().read_file(onnx), HasSubstr("QuantizeLinear"));
  const auto png = data::encode_png(data::draw_shape(1, data::Subset::kValidation, 0, 48));
  files().write_file_atomically(temp_.file("image.png"), {reinterpret_cast<const char*>(png.data()), png.size()});
  const CommandResult predicted = run_command({"predict", "--train_dir=" + run(), temp_.file("image.png")});
  EXPECT_EQ(predicted.code, kSuccess) << predicted.err;
  // The library loads it as the file.
  const auto loaded = train::load_model(run()), saved = train::load_model(file);
  ASSERT_NE(loaded->description().quantization, nullptr);
  EXPECT_EQ(*loaded->description().quantization, *saved->description().quantization);
  const at::Tensor image = loaded->decode(png);
  EXPECT_TRUE(loaded->logits(image).equal(saved->logits(image)));
}

TEST_F(QuantizationAwareTraining, ContinuesExactly) {
  const Arguments two{"--num_epochs=2", "--eval_during_training_every_n_epochs=0"};
  ASSERT_EQ(run_command(qat(temp_.file("whole"), two)).code, kSuccess);
  const Arguments parts = qat(temp_.file("parts"), two);
  ASSERT_EQ(run_command(with_flags(parts, {"--stop_after_epochs=1"})).code, kSuccess);
  const CommandResult rest = run_command(parts);
  ASSERT_EQ(rest.code, kSuccess) << rest.err;
  EXPECT_THAT(rest.err, Not(HasSubstr("dB"))) << "the scales are the checkpoint's";
  EXPECT_EQ(weights_of(temp_.file("parts")), weights_of(temp_.file("whole")));
  EXPECT_NE(weights_of(temp_.file("whole")), weights_of(run()));
}

TEST_F(QuantizationAwareTraining, RunsInSeveralReplicas) {
  const CommandResult result =
      run_command(qat(temp_.file("two"), {"--num_gpus=2", "--batch_size=16", "--variable_update=replicated",
                                          "--num_epochs=1", "--eval_during_training_every_n_epochs=0"}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_NEAR(static_cast<double>(right_in(eval({"--train_dir=" + temp_.file("two")}))),
              static_cast<double>(right_in(eval({"--train_dir=" + run()}))), 2 * kFewImages);
}

// Dropout and stochastic depth are layers of the training alone: its checkpoint has scales for them, and the network
// that it is loaded into does not have them.
TEST_F(QuantizationAwareTraining, WithLayersOfTheTrainingAloneIsEvaluated) {
  const std::string dir = temp_.file("dropped");
  const CommandResult trained = run_command(qat(
      dir, {"--num_epochs=1", "--eval_during_training_every_n_epochs=0", "--dropout=0.1", "--stochastic_depth=0.1"}));
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_NEAR(static_cast<double>(right_in(eval({"--train_dir=" + dir}))),
              static_cast<double>(right_in(eval({"--train_dir=" + dir, "--precision=float32"}))), kFewImages);
  EXPECT_NE(train::load_model(dir)->description().quantization, nullptr);
}

TEST_F(QuantizationAwareTraining, IsRefusedWhereItCannotApply) {
  const std::string dir = temp_.file("refused");
  const auto refused = [&](const Arguments& more, const std::vector<std::string>& parts) {
    expect_refused(qat(dir, more), parts);
  };
  refused({"--use_bf16"}, {"float32", "--use_bf16"});
  refused({"--executor=cpu"}, {"--executor"});
  refused({"--recompute=blocks"}, {"--recompute"});
  refused({"--sync_batch_norm", "--num_gpus=2"}, {"batch norms are constants"});
  refused({"--recalibrate_batch_norm=3"}, {"batch norms are constants"});
  refused({"--calibration_batches=0"}, {"calibration_batches"});
  Arguments without = qat(dir);
  std::erase(without, "--weights=" + float_run());
  expect_refused(without, {"no weights to start from"});
  expect_refused({"eval", "--qat", "--train_dir=" + run(), "--data_dir=" + data_dir(), "--device=cpu"}, {"--qat"});
  // A run continues as it was begun.
  expect_refused(qat(float_run()), {"begun without --qat", "another --train_dir"});
  Arguments in_float = qat(run(), {"--num_epochs=2"});
  std::erase(in_float, "--qat");
  std::erase(in_float, "--calibration_batches=4");
  expect_refused(in_float, {"begun with --qat"});
  // Layers that the training did not have have no scales.
  for (const std::string flag : {"--dropout", "--stochastic_depth"}) {
    expect_refused(qat(run(), {"--num_epochs=2", flag + "=0.1"}), {"begun without " + flag, "leave " + flag + " out"});
  }
  EXPECT_FALSE(files().exists(dir + "/checkpoint"));
}

}  // namespace
}  // namespace trainyard::cli::quantization_aware_test
