// Models in 8-bit integers through the command line: quantize, eval, predict, export, bench, and the library.
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/trained_shapes.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/train/model/model.h"

namespace trainyard::cli::quantize_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

class Quantize : public TrainedShapes {
 protected:
  // The network, and the same in 8 bits.
  static void SetUpTestSuite() {
    TrainedShapes::SetUpTestSuite();
    if (HasFatalFailure()) return;
    quantized = run_command(quantize_arguments());
    ASSERT_EQ(quantized.code, kSuccess) << quantized.err;
    const auto png = data::encode_png(data::draw_shape(1, data::Subset::kValidation, 0, 48));
    files().write_file_atomically(image(), {reinterpret_cast<const char*>(png.data()), png.size()});
  }

  static std::string file() { return shared->file("int8.safetensors"); }
  static std::string image() { return shared->file("image.png"); }
  static Arguments quantize_arguments(const Arguments& more = {}) {
    return with_flags({"quantize", "--train_dir=" + float_run(), "--data_dir=" + data_dir(), "--output=" + file(),
                       "--calibration_batches=8"},
                      more);
  }

  static inline CommandResult quantized;
};

TEST_F(Quantize, SaysWhatItDid) {
  EXPECT_THAT(quantized.out, AllOf(HasSubstr("dB"), HasSubstr("wrote resnet20 in 8-bit integers to " + file())));
  const formats::TensorFile written = formats::open_tensor_file(file());
  int integers = 0;
  for (const auto& tensor : written.tensors()) integers += tensor.type == formats::TensorType::kInt8 ? 1 : 0;
  EXPECT_GT(integers, 10);
  // A quarter of the weights' bytes, and some for scales.
  ASSERT_EQ(run_command({"export", "--train_dir=" + float_run(), "--output=" + temp_.file("float")}).code, kSuccess);
  EXPECT_LT(files().info(file()).size * 2, files().info(temp_.file("float")).size);
}

TEST_F(Quantize, IsTheSameFileEachTime) {
  const CommandResult again = run_command(quantize_arguments({"--output=" + temp_.file("again")}));
  ASSERT_EQ(again.code, kSuccess) << again.err;
  EXPECT_EQ(files().read_file(temp_.file("again")), files().read_file(file()));
}

TEST_F(Quantize, LosesFewOfTheRightAnswers) {
  const int64_t in_float = right_in(eval({"--train_dir=" + float_run()}));
  const int64_t in_integers = right_in(eval({"--weights=" + file()}));
  // 12 classes; what computes other numbers than the network guesses.
  EXPECT_GT(in_float, kValidationImages * 3 / 20) << "a network that has learnt something";
  EXPECT_GE(in_integers, in_float - kFewImages);
  // The other executor means the same numbers.
  EXPECT_NEAR(static_cast<double>(right_in(eval({"--weights=" + file(), "--executor=reference"}))),
              static_cast<double>(in_integers), 2);
  // An evaluation finds scales by itself, and says so.
  const CommandResult calibrated = eval({"--train_dir=" + float_run(), "--precision=int8", "--calibration_batches=8"});
  EXPECT_EQ(right_in(calibrated), in_integers) << "the same scales of the same images";
  EXPECT_THAT(calibrated.err, HasSubstr("dB"));
  EXPECT_GE(right_in(eval({"--weights=" + file(), "--precision=float32"})), in_float - kFewImages);
  EXPECT_GE(right_in(eval({"--train_dir=" + float_run(), "--precision=bfloat16"})), in_float - kFewImages);
}

// Returns the logits that `predict` writes for an array of images.
std::vector<float> logits_of(const core::TempDir& temp, const std::string& array, const Arguments& more) {
  const std::string output = temp.file("logits.npy");
  const CommandResult result = run_command(with_flags({"predict", "--input=" + array, "--output=" + output}, more));
  EXPECT_EQ(result.code, kSuccess) << result.err;
  if (result.code != kSuccess) return {};
  const formats::NpyArray logits = formats::read_npy(*core::local_file_system().open_read(output));
  const auto values = logits.values<float>();
  return {values.begin(), values.end()};
}

TEST_F(Quantize, FilePredictsWhatItsCopiesPredict) {
  const auto model = train::load_model(file());
  ASSERT_NE(model->description().quantization, nullptr);
  std::vector<float> images;
  nn::Shape shape{6, 3, model->graph().input_shape()[1], model->graph().input_shape()[2]};
  for (int i = 0; i < shape[0]; ++i) {
    const at::Tensor one = model->decode(data::encode_png(data::draw_shape(1, data::Subset::kValidation, i, 48)));
    images.insert(images.end(), one.const_data_ptr<float>(), one.const_data_ptr<float>() + one.numel());
  }
  const std::string array = temp_.file("images.npy");
  files().write_file_atomically(array, formats::encode_npy<float>(shape, images));
  const std::vector<float> expected = logits_of(temp_, array, {"--weights=" + file()});
  ASSERT_EQ(expected.size(), 6U * static_cast<size_t>(model->description().num_classes));

  // The library, one image at a time, a copy by export, and one by save_model().
  for (int i = 0; i < shape[0]; ++i) {
    const int64_t pixels = static_cast<int64_t>(images.size()) / shape[0];
    const at::Tensor one = at::from_blob(images.data() + i * pixels, {1, shape[1], shape[2], shape[3]});
    const at::Tensor logits = model->logits(one);
    const auto row = static_cast<size_t>(i) * static_cast<size_t>(logits.numel());
    for (int64_t c = 0; c < logits.numel(); ++c) {
      EXPECT_EQ(logits.const_data_ptr<float>()[c], expected[row + static_cast<size_t>(c)]) << i << ", " << c;
    }
  }
  const std::string exported = temp_.file("exported.safetensors"), saved = temp_.file("saved.safetensors");
  ASSERT_EQ(run_command({"export", "--weights=" + file(), "--output=" + exported}).code, kSuccess);
  EXPECT_EQ(files().read_file(exported), files().read_file(file()));
  train::save_model(saved, model->description(), model->parameters());
  EXPECT_EQ(logits_of(temp_, array, {"--weights=" + saved, "--precision=int8"}), expected);
  // Its rounded weights in float are another computation, and near.
  const std::vector<float> rounded = logits_of(temp_, array, {"--weights=" + file(), "--precision=float32"});
  EXPECT_NE(rounded, expected);
  const std::string folded = temp_.file("folded.safetensors");
  ASSERT_EQ(run_command({"export", "--weights=" + file(), "--precision=float32", "--output=" + folded}).code, kSuccess);
  EXPECT_EQ(train::load_model(folded)->description().quantization, nullptr);
  EXPECT_EQ(logits_of(temp_, array, {"--weights=" + folded}), rounded);
  // With AVX2 alone convolutions in bfloat16 are computed in float.
  if (!core::cpu_has_avx512()) return;
  EXPECT_NE(logits_of(temp_, array, {"--train_dir=" + float_run(), "--precision=bfloat16"}),
            logits_of(temp_, array, {"--train_dir=" + float_run()}));
}

TEST_F(Quantize, PredictsImages) {
  const CommandResult result = run_command({"predict", "--weights=" + file(), image()});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("image.png: "));
}

TEST_F(Quantize, WritesOnnx) {
  const std::string output = temp_.file("int8.onnx");
  const CommandResult result = run_command({"export", "--weights=" + file(), "--format=onnx", "--output=" + output});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(files().read_file(output), HasSubstr("QuantizeLinear"));
  for (const char* format : {"hdf5", "keras", "checkpoint"}) {
    expect_refused({"export", "--weights=" + file(), std::string("--format=") + format, "--output=" + temp_.file("x")},
                   {});
  }
}

TEST_F(Quantize, IsBenched) {
  const CommandResult latency =
      run_command({"bench", "latency", "--weights=" + file(), "--device=cpu", "--batch_sizes=1", "--seconds=0"});
  EXPECT_EQ(latency.code, kSuccess) << latency.err;
  EXPECT_THAT(latency.out, AllOf(HasSubstr("resnet20"), HasSubstr("int8")));
  const Arguments layers{"bench",          "layers",          "--device=cpu",
                         "--batch_size=2", "--num_batches=1", "--num_warmup_batches=1"};
  const CommandResult times =
      run_command(with_flags(layers, {"--weights=" + file(), "--forward_only", "--freeze_when_forward_only"}));
  EXPECT_EQ(times.code, kSuccess) << times.err;
  EXPECT_THAT(times.out, HasSubstr("int8"));
  expect_refused(with_flags(layers, {"--weights=" + file()}), {"--freeze_when_forward_only"});
  expect_refused(with_flags(layers, {"--model=resnet20", "--precision=int8"}), {"--freeze_when_forward_only"});
}

TEST_F(Quantize, ModelsThatCannotBe) {
  const Arguments again = quantize_arguments({"--train_dir=", "--output=" + temp_.file("x")});
  Arguments arguments = again;
  std::erase(arguments, "--train_dir=");
  arguments.push_back(file());
  expect_refused(arguments, {"quantized already", "int8.safetensors"});
  arguments.back() = shared->file("nowhere");
  expect_refused(arguments, {"nowhere"});
  expect_refused(quantize_arguments({"--weights=" + file()}), {"--weights and --train_dir both name a model"});
  arguments.push_back("another");
  expect_refused(arguments, {"one model"});
  EXPECT_FALSE(files().exists(temp_.file("x")));
}

TEST_F(Quantize, FlagsThatDoNotFit) {
  const std::string other = "--output=" + temp_.file("x");
  const auto refused = [&](const Arguments& more, const std::vector<std::string>& parts) {
    Arguments all{other};
    all.insert(all.end(), more.begin(), more.end());
    expect_refused(quantize_arguments(all), parts);
  };
  refused({"--calibration_batches=0"}, {"calibration_batches"});
  refused({"--calibration=middle"}, {"calibration", "min_max"});
  refused({"--quantize_method=magic"}, {"quantize_method", "bias_correction"});
  refused({"--percentile=99.9"}, {"--calibration=percentile"});
  refused({"--data_dir=" + temp_.file("none")}, {"none"});
  refused({"--model=lenet"}, {"lenet", "resnet20"});
  refused({"--outputs=x"}, {"outputs"});
  Arguments without_data{"quantize", "--train_dir=" + float_run(), other};
  expect_refused(without_data, {"--data_dir"});
  expect_refused({"quantize", "--train_dir=" + float_run(), "--data_dir=" + data_dir()}, {"--output"});
  expect_refused(quantize_arguments({"--output=" + temp_.path()}), {"--output"});
  files().write_file_atomically(temp_.file("m"), "weights");
  expect_refused({"quantize", temp_.file("m"), "--output=" + temp_.path() + "/./m"},
                 {"--output is the model that is quantized"});
  EXPECT_FALSE(files().exists(temp_.file("x")));
}

// There are 800 training images, and a hundred batches would be 3,200.
TEST_F(Quantize, FewerImagesThanAsked) {
  const CommandResult result =
      run_command(quantize_arguments({"--calibration_batches=100", "--calibration=min_max", "--quantize_method=plain",
                                      "--output=" + temp_.file("x")}));
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("instead of 100"));
}

TEST_F(Quantize, IntegersOfAModelWithoutScales) {
  for (const Arguments& command : {Arguments{"predict", image()}, Arguments{"export", "--output=" + temp_.file("x")}}) {
    expect_refused(with_flags(command, {"--train_dir=" + float_run(), "--precision=int8"}),
                   {"no scales", "trainyard quantize --weights="});
  }
  EXPECT_FALSE(files().exists(temp_.file("x")));
}

// Returns the JSON of bench quantization.
nlohmann::json layers_of(const core::TempDir& temp, const Arguments& arguments) {
  const CommandResult result = run_command(with_flags(arguments, {"--json=" + temp.file("layers.json")}));
  EXPECT_EQ(result.code, kSuccess) << result.err;
  return nlohmann::json::parse(core::local_file_system().read_file(temp.file("layers.json")));
}

TEST_F(Quantize, BenchTellsWhatEachLayerCosts) {
  const Arguments bench{"bench",
                        "quantization",
                        "--train_dir=" + float_run(),
                        "--data_dir=" + data_dir(),
                        "--calibration_batches=8",
                        "--calibration=min_max",
                        "--quantize_method=plain",
                        "--num_batches=2",
                        "--output=" + temp_.file("layers.svg")};
  const nlohmann::json report = layers_of(temp_, bench);
  int convolutions = 0;
  double time = 0, last = 0;
  for (const auto& layer : report["layers"]) {
    time += layer["time_share"].get<double>();
    convolutions += layer["name"].get<std::string>().find("conv") != std::string::npos ? 1 : 0;
    if (!layer["in_8_bits"].get<bool>()) continue;
    const double own = layer["own_signal_to_noise_db"].get<double>();
    // Eight bits of a uniform value are 50 dB; fewer are used where values lie around zero.
    EXPECT_GT(own, 15) << layer;
    EXPECT_LT(own, 65) << layer;
    last = layer["signal_to_noise_db"].get<double>();
    EXPECT_LT(last, own + 3) << "noise of all layers before it and its own: " << layer;
  }
  EXPECT_GE(convolutions, 19);
  EXPECT_NEAR(time, 1, 0.05);
  EXPECT_NEAR(last, report["signal_to_noise_db"].get<double>(), 6) << "the logits, of other images";
  const std::string picture = files().read_file(temp_.file("layers.svg"));
  EXPECT_THAT(picture, AllOf(HasSubstr("<svg"), HasSubstr("signal to noise, dB"), HasSubstr("resnet20")));
  expect_refused({"bench", "quantization", file(), "--data_dir=" + data_dir()}, {"quantized already"});
  expect_refused({"bench", "quantization", "--train_dir=" + float_run()}, {"--data_dir"});
}

TEST_F(Quantize, AQuantizedModelElsewhere) {
  expect_refused({"predict", "--weights=" + file(), "--image_size=48", image()}, {"images of another size"});
  expect_refused({"predict", "--weights=" + file(), "--num_classes=7", image()}, {"another number of classes", "7"});
  expect_refused({"export", "--weights=" + file(), "--precision=bfloat16", "--output=" + temp_.file("x")},
                 {"--precision", "float32"});
  expect_refused({"sparsity", file()}, {"8-bit integers"});
  expect_refused({"train", "--model=resnet20", "--data_dir=" + data_dir(), "--device=cpu", "--batch_size=8",
                  "--num_batches=1", "--weights=" + file(), "--train_dir=" + temp_.file("run")},
                 {"8-bit integers"});
  expect_refused({"train", "--model=resnet20", "--data_dir=" + data_dir(), "--device=cpu", "--batch_size=8",
                  "--num_batches=1", "--distill_from=" + file(), "--train_dir=" + temp_.file("run")},
                 {"teacher", "8-bit integers"});
  EXPECT_NE(eval({"--weights=" + file(), "--use_bf16", "--precision=float32"}).code, kSuccess);
}

}  // namespace
}  // namespace trainyard::cli::quantize_test
