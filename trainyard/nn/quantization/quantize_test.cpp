// quantize() as a whole: what it chooses, what bias correction and noise are, and bad input.
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/worst.h"
#include "trainyard/nn/quantization/calibration.h"
#include "trainyard/nn/quantization/layerwise_run.h"
#include "trainyard/nn/quantization/quantized_model.h"
#include "trainyard/nn/quantization/weights_of.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::nn::quantize_test {
namespace {

using namespace quantization_testing;
using ::testing::Contains, ::testing::HasSubstr;

const float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<at::Tensor> images_for(const Graph& graph, int64_t count = 40) {
  Shape shape = graph.input_shape();
  shape.insert(shape.begin(), count);
  return {normal(shape, "images")};
}

QuantizedModel quantized(const Graph& graph, const QuantizeOptions& options = {}) {
  return quantize(graph, values_for(graph), images_for(graph), options);
}

double signal_to_noise(const at::Tensor& exact, const at::Tensor& actual) {
  SignalAndNoise sums;
  sums.add(exact, actual);
  return sums.decibels();
}

TEST(Quantize, AgreesWithTheFloatNetworkInEachExecutor) {
  for (const Graph& graph : {residual_network(), depthwise_network(), transformer()}) {
    ParameterSet set = values_for(graph);
    const QuantizedModel model = quantize(graph, set, images_for(graph));
    const at::Tensor images = images_for(graph, 8).front();
    const at::Tensor exact = reference_logits(graph, set, images);
    const at::Tensor reference = reference_logits(model.graph, *model.parameters, images, model.quantization);
    EXPECT_GT(signal_to_noise(exact, reference), 20) << graph.name;
    EXPECT_GT(model.report.trials[model.report.chosen].signal_to_noise, 20) << graph.name;
    // The run layer by layer is the reference's definition, except for sums in float: a value in a thousand may be
    // rounded to the other side.
    const at::Tensor by_layers =
        run_quantized(model.graph, *model.parameters, *model.quantization, {&images, 1}).front();
    EXPECT_GT(signal_to_noise(reference, by_layers), 30) << graph.name;
    const auto cpu = make_executor("cpu", model.graph,
                                   {.mode = Mode::kInference,
                                    .frozen = true,
                                    .parameters = model.parameters.get(),
                                    .quantization = model.quantization});
    EXPECT_GT(signal_to_noise(exact, cpu->forward(images, {})), 20) << graph.name;
  }
}

TEST(Quantize, SaysWhatItTriedAndTakesTheBest) {
  const QuantizationReport plain = quantized(residual_network()).report;
  ASSERT_EQ(plain.trials.size(), 6);  // min-max, three percentiles, entropy, and bias correction with the best
  EXPECT_EQ(plain.trials[0].name, "min_max");
  EXPECT_EQ(plain.trials[1].name, "percentile 99.9");
  EXPECT_EQ(plain.trials[2].name, "percentile 99.99");
  EXPECT_EQ(plain.trials[3].name, "percentile 99.999");
  EXPECT_EQ(plain.trials[4].name, "entropy");
  EXPECT_THAT(plain.trials[5].name, HasSubstr(", bias_correction"));
  EXPECT_EQ(plain.calibration_images + plain.held_out_images, 40);
  EXPECT_EQ(plain.held_out_images, 10);
  EXPECT_EQ(plain.layers_in_8_bits.size(), 7);
  EXPECT_TRUE(plain.warnings.empty());

  EXPECT_EQ(quantized(depthwise_network()).report.trials.size(), 12);  // with equalization
  const QuantizationReport smooth = quantized(transformer()).report;
  EXPECT_EQ(smooth.trials.size(), 12);  // with SmoothQuant
  for (const QuantizationReport& report : {plain, smooth}) {
    for (const QuantizationTrial& trial : report.trials) {
      EXPECT_LE(trial.signal_to_noise, report.trials[report.chosen].signal_to_noise) << trial.name;
    }
  }
  EXPECT_THAT(to_text(smooth), HasSubstr("(chosen)"));
  EXPECT_THAT(to_text(smooth), HasSubstr("in float: block0_attention, block1_attention (attention"));
}

TEST(Quantize, DoesWhatItIsTold) {
  const QuantizationReport one =
      quantized(residual_network(), {.ranges = RangeMethod::kEntropy, .method = QuantizeMethod::kPlain}).report;
  ASSERT_EQ(one.trials.size(), 1);
  EXPECT_EQ(one.trials[0].name, "entropy");
  const QuantizationReport equalized =
      quantized(depthwise_network(), {.ranges = RangeMethod::kMinMax, .method = QuantizeMethod::kEqualization}).report;
  ASSERT_EQ(equalized.trials.size(), 2);
  EXPECT_EQ(equalized.trials[equalized.chosen].name, "min_max, equalization, bias_correction");
  const QuantizationReport percentile =
      quantized(residual_network(), {.ranges = RangeMethod::kPercentile, .percentile = 99.5}).report;
  ASSERT_EQ(percentile.trials.size(), 2);
  EXPECT_EQ(percentile.trials[0].name, "percentile 99.5");
  EXPECT_EQ(percentile.trials[1].name, "percentile 99.5, bias_correction");

  const auto refused = [](const QuantizeOptions& options) {
    return core::message_of([&] { (void)quantized(residual_network(), options); });
  };
  EXPECT_THAT(refused({.method = QuantizeMethod::kSmoothQuant}), HasSubstr("nothing that SmoothQuant could change"));
  EXPECT_THAT(refused({.percentile = 10.0}), HasSubstr("percentile is out of range"));
  EXPECT_THAT(refused({.percentile = kNaN}), HasSubstr("percentile is out of range"));
  EXPECT_THAT(refused({.ranges = RangeMethod::kMinMax, .percentile = 99.0}), HasSubstr("for another method"));
  EXPECT_THAT(refused({.smooth_alpha = 1.5}), HasSubstr("smooth_alpha"));
}

TEST(Quantize, WeightsAreMultiplesOfTheirScales) {
  const QuantizedModel model = quantized(residual_network());
  for (const auto& [name, scales] : model.quantization->weights) {
    const at::Tensor weight = weight_of(model.graph.node(name), *model.parameters);
    ASSERT_EQ(weight.size(0), std::ssize(scales));
    for (int64_t o = 0; o < weight.size(0); ++o) {
      const at::Tensor q = weight[o].div(scales[static_cast<size_t>(o)]);
      EXPECT_LT(q.sub(q.round()).abs().max().item<double>(), 1e-4) << name;
      EXPECT_EQ(q.round().abs().max().item<double>(), 127) << name;
    }
  }
}

TEST(QuantizeOptions, EndWhereTheirMeaningEnds) {
  const auto message = [](const QuantizeOptions& options) { return core::message_of([&] { options.validate(); }); };
  for (const double percentile : {50.25, 99.0, 100.0}) {
    EXPECT_EQ(message({.percentile = percentile}), "no error") << percentile;
    EXPECT_EQ(message({.ranges = RangeMethod::kPercentile, .percentile = percentile}), "no error") << percentile;
  }
  const std::string percent = "the percentile is out of range: QuantizeOptions: expected above 50, at most 100, got ";
  EXPECT_EQ(message({.percentile = 50.0}), percent + "50");
  EXPECT_EQ(message({.percentile = 100.5}), percent + "100.5");
  for (const RangeMethod ranges : {RangeMethod::kMinMax, RangeMethod::kEntropy}) {
    EXPECT_EQ(message({.ranges = ranges}), "no error");
    EXPECT_EQ(message({.ranges = ranges, .percentile = 99.0}),
              "a percentile is given for another method: QuantizeOptions: expected RangeMethod::kPercentile, got "
              "another one");
  }
  for (const double alpha : {0.0, 0.5, 1.0}) EXPECT_EQ(message({.smooth_alpha = alpha}), "no error") << alpha;
  const std::string smooth = "smooth_alpha is out of range: QuantizeOptions: expected 0 to 1, got ";
  EXPECT_EQ(message({.smooth_alpha = -0.25}), smooth + "-0.25");
  EXPECT_EQ(message({.smooth_alpha = 1.25}), smooth + "1.25");
  EXPECT_EQ(message({.smooth_alpha = double{kNaN}}), smooth + "nan");
}

TEST(Quantize, AMethodWithNothingToDoSaysWhatItNeeds) {
  const auto refused = [](const Graph& graph, QuantizeMethod method) {
    return core::message_of([&] { (void)quantized(graph, {.method = method}); });
  };
  const std::string rest = "; choose another method, or let it be chosen";
  EXPECT_EQ(refused(residual_network(), QuantizeMethod::kSmoothQuant),
            "the network has nothing that SmoothQuant could change: QuantizeOptions: expected a layer norm or an "
            "attention that only linear layers read, got residual" +
                rest);
  EXPECT_EQ(refused(transformer(), QuantizeMethod::kEqualization),
            "the network has nothing that equalization could change: QuantizeOptions: expected two layers with nothing "
            "but a ReLU between them, got transformer" +
                rest);
}

TEST(Quantize, ASingleImageServesForBoth) {
  const Graph graph = residual_network();
  const QuantizationReport report = quantize(graph, values_for(graph), images_for(graph, 1),
                                             {.ranges = RangeMethod::kMinMax, .method = QuantizeMethod::kPlain})
                                        .report;
  EXPECT_EQ(report.calibration_images, 1);
  EXPECT_EQ(report.held_out_images, 1);
  EXPECT_TRUE(report.held_out_are_calibration_images);
  EXPECT_EQ(report.trials.size(), 1);
  EXPECT_EQ(report.chosen, 0);
  EXPECT_THAT(report.layers_in_8_bits,
              ::testing::ElementsAre("conv1", "conv2", "conv3", "conv4", "conv5", "shortcut", "fc"));
  EXPECT_TRUE(report.in_float.empty());
  EXPECT_FALSE(quantized(graph, {.ranges = RangeMethod::kMinMax, .method = QuantizeMethod::kPlain})
                   .report.held_out_are_calibration_images);
}

// Means of all layers' outputs, by channel, largest difference as a part of the largest mean.
double mean_error(const FoldedNetwork& network, const RoundedNetwork& rounded, const QuantizationSites& sites,
                  const at::Tensor& images) {
  std::map<int, at::Tensor> exact;
  LayerwiseRun(network.graph, *network.parameters)
      .run({&images, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
        exact[node.id] = values.front().transpose(0, 1).flatten(1).mean(1);
      });
  double error = 0;
  LayerwiseRun(network.graph, *rounded.parameters)
      .run({&images, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
        if (sites.layers[static_cast<size_t>(node.id)]) {
          core::take_worst(error,
                           largest_difference(values.front().transpose(0, 1).flatten(1).mean(1), exact[node.id]));
        }
        round_values(node, *rounded.quantization, values);
      });
  return error;
}

TEST(BiasCorrection, MakesAllMeansEqual) {
  for (const Graph& graph : {residual_network(), depthwise_network()}) {
    const FoldedNetwork network = fold_batch_norms(graph, values_for(graph), /*all_biases=*/true);
    const std::vector<at::Tensor> batches = images_for(graph, 16);
    const Calibration calibration = calibrate(network, batches);
    // Coarse: a percentile that cuts much of all activations.
    RoundedNetwork rounded = round_network(network, calibration, {.kind = RangeRule::Kind::kPercentile, .percent = 97});
    const double before = mean_error(network, rounded, calibration.sites, batches.front());
    correct_biases(network, calibration.sites, rounded, batches);
    const double after = mean_error(network, rounded, calibration.sites, batches.front());
    EXPECT_GT(before, 1e-2) << graph.name;
    EXPECT_LT(after, 1e-4) << graph.name;
  }
}

TEST(LayerNoise, AddsUpAlongTheNetwork) {
  const QuantizedModel model = quantized(residual_network(), {.method = QuantizeMethod::kPlain});
  const std::vector<LayerNoise> noises = layer_noise(model, images_for(model.graph, 20));
  ASSERT_FALSE(noises.empty());
  EXPECT_EQ(noises.front().name, "conv1");
  EXPECT_EQ(noises.back().name, "fc");
  // Nothing was rounded before the first layer but the images: what it does is all that happened. Later ones read
  // noise.
  EXPECT_NEAR(noises.front().signal_to_noise, noises.front().own_signal_to_noise, 1e-6);
  EXPECT_LT(noises.back().signal_to_noise, noises.back().own_signal_to_noise);
  for (const LayerNoise& noise : noises) {
    EXPECT_TRUE(noise.in_8_bits) << noise.name;
    EXPECT_GT(noise.signal_to_noise, 20) << noise.name;
    EXPECT_LT(noise.signal_to_noise, 70) << noise.name;
  }
  // A layer whose weights are coarser is found.
  QuantizedModel damaged = model;
  damaged.parameters = std::make_shared<ParameterSet>(model.parameters->clone());
  weight_of(model.graph.node("conv4"), *damaged.parameters).mul_(1.2);
  const std::vector<LayerNoise> worse = layer_noise(damaged, images_for(model.graph, 20));
  for (size_t i = 0; i < worse.size(); ++i) {
    const bool is_it = worse[i].name == "conv4";
    EXPECT_EQ(worse[i].own_signal_to_noise < noises[i].own_signal_to_noise - 3, is_it) << worse[i].name;
  }
  QuantizedModel from_file = model;
  from_file.float_parameters = nullptr;
  EXPECT_THAT(core::message_of([&] { (void)layer_noise(from_file, images_for(model.graph)); }),
              HasSubstr("without its float weights"));
}

// The parts of a report by themselves: each line with its numbers.
TEST(QuantizationReportText, HasALineForEachTrialAndReason) {
  QuantizationReport report{
      .trials = {{.name = "min_max", .signal_to_noise = 9.25},
                 {.name = "entropy", .signal_to_noise = 31.5},
                 {.name = "percentile 99.9", .signal_to_noise = -2}},
      .chosen = 1,
      .calibration_images = 30,
      .held_out_images = 10,
      .layers_in_8_bits = {"conv", "fc"},
      .in_float = {{"d", "long sums"}, {"a", "attention"}, {"b", "long sums"}, {"c", "long sums"}, {"e", "long sums"}},
      .warnings = {"all images are equal"}};
  EXPECT_EQ(to_text(report),
            "30 calibration images, methods compared on 10 others\n"
            "warning: all images are equal\n"
            "signal to noise of the logits (dB):\n"
            "    9.25  min_max\n"
            "   31.50  entropy  (chosen)\n"
            "   -2.00  percentile 99.9\n"
            "2 layers multiply 8-bit integers\n"
            "in float: a (attention)\n"
            "in float: b, c, d and 1 more (long sums)\n");
  report.in_float.erase("e");
  EXPECT_THAT(to_text(report), HasSubstr("in float: b, c, d (long sums)\n"));
  const QuantizationReport one{.calibration_images = 1, .held_out_images = 1, .held_out_are_calibration_images = true};
  EXPECT_EQ(to_text(one),
            "1 calibration image, methods compared on the same\n"
            "signal to noise of the logits (dB):\n"
            "0 layers multiply 8-bit integers\n");
}

TEST(SignalAndNoise, AreSumsOfAllBatchesInDecibels) {
  SignalAndNoise sums;
  sums.add(at::full({2}, 3.0F), at::full({2}, 2.0F));
  sums.add(at::full({1, 2}, 9.0F), at::full({1, 2}, 9.0F));
  EXPECT_DOUBLE_EQ(sums.signal, 180);
  EXPECT_DOUBLE_EQ(sums.noise, 2);
  EXPECT_DOUBLE_EQ(sums.decibels(), 10 * std::log10(90));
  EXPECT_DOUBLE_EQ(decibels(1, 100), -20);
  EXPECT_DOUBLE_EQ(decibels(10, 1), 10);
  EXPECT_EQ(decibels(0, 0), std::numeric_limits<double>::infinity()) << "all are equal";
  EXPECT_EQ(decibels(5, 0), std::numeric_limits<double>::infinity());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(decibels(kInfinity, 1)));
  EXPECT_TRUE(std::isnan(decibels(1, kInfinity)));
  EXPECT_TRUE(std::isnan(decibels(kNaN, 0)));
}

TEST(LayerNoise, OfALayerInFloatIsThatOfTheLayersBeforeIt) {
  const QuantizedModel model =
      quantized(transformer(), {.ranges = RangeMethod::kMinMax, .method = QuantizeMethod::kPlain});
  int found = 0;
  for (const LayerNoise& noise : layer_noise(model, images_for(model.graph, 12))) {
    EXPECT_EQ(noise.in_8_bits, !std::isnan(noise.own_signal_to_noise)) << noise.name;
    if (noise.name != "token") continue;
    ++found;
    EXPECT_FALSE(noise.in_8_bits) << "the embedding of the class reads the patches, and no layer its output in 8 bits";
    EXPECT_GT(noise.signal_to_noise, 10);
    EXPECT_LT(noise.signal_to_noise, 90);
  }
  EXPECT_EQ(found, 1);
}

TEST(QuantizeBadInput, ImagesThatCannotBeUsed) {
  const Graph graph = residual_network();
  const ParameterSet set = values_for(graph);
  const auto refused = [&](const std::vector<at::Tensor>& batches) {
    return core::message_of([&] { (void)quantize(graph, set, batches); });
  };
  EXPECT_THAT(refused({}), HasSubstr("no calibration image"));
  EXPECT_THAT(refused({at::zeros({0, 3, 12, 12})}), HasSubstr("no calibration image"));
  EXPECT_THAT(refused({at::zeros({2, 3, 12, 12}), at::zeros({2, 3, 11, 12})}), HasSubstr("batch 1"));
  EXPECT_THAT(refused({at::Tensor()}), HasSubstr("no tensor"));
  EXPECT_THAT(refused({at::zeros({2, 3, 12, 12}, at::kLong)}), HasSubstr("does not fit"));
  at::Tensor damaged = at::zeros({4, 3, 12, 12});
  damaged[2][1][3][4].fill_(kNaN);
  EXPECT_THAT(refused({at::zeros({2, 3, 12, 12}), damaged}), HasSubstr("batch 1, image 2"));
  damaged[2][1][3][4].fill_(std::numeric_limits<float>::infinity());
  EXPECT_THAT(refused({damaged}), HasSubstr("NaN or infinite"));
}

// A NaN that a layer makes of one calibration image: no range contains it.
TEST(QuantizeBadInput, ALayerThatMakesNanOfAnImageIsNamed) {
  GraphBuilder b({.image = {3, 4, 4}, .name = "net"});
  // x / sqrt(x^2 - 0.5): NaN for a number below sqrt(0.5).
  auto x = b.local_response_norm("lrn", b.input(), {.radius = 0, .bias = -0.5, .alpha = 1, .beta = 0.5});
  x = b.convolution("behind", x, {.out_channels = 4});
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 2}));
  const ParameterSet set = values_for(graph);
  at::Tensor images = at::full({80, 3, 4, 4}, 1.5);
  EXPECT_EQ(quantize(graph, set, std::vector<at::Tensor>{images}).report.layers_in_8_bits.size(), 2);
  images[60][1][2][3].fill_(0.25);  // no image that is held out
  EXPECT_THAT(core::message_of([&] { (void)quantize(graph, set, std::vector<at::Tensor>{images}); }),
              ::testing::AllOf(HasSubstr("NaN or infinite numbers for calibration images"), HasSubstr("node 'lrn'")));
}

TEST(QuantizeBadInput, UnusualImagesAreReported) {
  const Graph graph = residual_network();
  const ParameterSet set = values_for(graph);
  const auto warnings = [&](const at::Tensor& images) {
    const QuantizedModel model = quantize(graph, set, std::vector<at::Tensor>{images});
    EXPECT_TRUE(std::isfinite(
        reference_logits(model.graph, *model.parameters, images, model.quantization).sum().item<double>()));
    EXPECT_FALSE(model.quantization->weights.empty());
    EXPECT_THAT(to_text(model.report), model.report.warnings.empty() ? HasSubstr("dB") : HasSubstr("warning: "));
    return model.report.warnings;
  };
  EXPECT_TRUE(warnings(images_for(graph).front()).empty());
  EXPECT_THAT(warnings(at::full({40, 3, 12, 12}, 0.5)), Contains(HasSubstr("one value in all its pixels")));
  EXPECT_THAT(warnings(normal({1, 3, 12, 12}, "one").expand({40, 3, 12, 12})), Contains(HasSubstr("are equal")));
  EXPECT_THAT(warnings(normal({1, 3, 12, 12}, "one")), Contains(HasSubstr("only 1 calibration image:")));
  EXPECT_THAT(warnings(normal({2, 3, 12, 12}, "two")), Contains(HasSubstr("only 2 calibration images:")));
}

TEST(QuantizeBadInput, LayersThatReadZerosStayInFloat) {
  const Graph graph = residual_network();
  ParameterSet set = values_for(graph);
  // A ReLU that lets nothing through.
  set.value(*set.find("conv4_bn.bias")).fill_(-100);
  const QuantizedModel model = quantize(graph, set, images_for(graph));
  EXPECT_FALSE(model.quantization->weights.contains("conv5"));
  EXPECT_TRUE(model.quantization->weights.contains("conv4"));
  EXPECT_THAT(model.quantization->in_float.at("conv5"), HasSubstr("is zero for all calibration images"));
  const at::Tensor images = images_for(graph, 6).front();
  EXPECT_GT(signal_to_noise(reference_logits(graph, set, images),
                            reference_logits(model.graph, *model.parameters, images, model.quantization)),
            20);
}

TEST(QuantizeBadInput, BlackImagesLeaveNoLayerForIntegersInTheFirstPlace) {
  GraphBuilder b({.image = {3, 4, 4}, .name = "net"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flatten", b.input()), {.out_features = 2}));
  const ParameterSet set = values_for(graph);
  const std::vector<at::Tensor> black = {at::zeros({40, 3, 4, 4})};
  EXPECT_THAT(core::message_of([&] { (void)quantize(graph, set, black); }),
              HasSubstr("no layer of the network can compute in 8 bits"));
}

TEST(QuantizeBadInput, ChannelsWithoutWeightsAreNoProblem) {
  const Graph graph = depthwise_network();
  ParameterSet set = values_for(graph);
  for (const char* const name : {"stem.weight", "block0_expand.weight", "block0_depthwise.weight"}) {
    set.value(*set.find(name))[2].fill_(0);
  }
  set.value(*set.find("block1_expand.weight")).select(1, 3).fill_(0);
  const QuantizedModel model = quantize(graph, set, images_for(graph));
  EXPECT_TRUE(model.parameters->values().isfinite().all().item<bool>());
  for (const auto& [name, scales] : model.quantization->weights) {
    for (const float scale : scales) EXPECT_TRUE(std::isnormal(scale) && scale > 0) << name;
  }
  const at::Tensor images = images_for(graph, 6).front();
  EXPECT_GT(signal_to_noise(reference_logits(graph, set, images),
                            reference_logits(model.graph, *model.parameters, images, model.quantization)),
            20);
}

TEST(QuantizeBadInput, NetworksThatCannotBe) {
  GraphBuilder norm_only({.image = {3, 4, 4}, .name = "net"});
  const Graph graph =
      norm_only.build(norm_only.global_average_pool("pool", norm_only.batch_norm("bn", norm_only.input())));
  EXPECT_THAT(core::message_of([&] { (void)quantize(graph, values_for(graph), images_for(graph)); }),
              HasSubstr("bn: a batch norm that follows no convolution"));

  GraphBuilder two({.image = {3, 4, 4}, .name = "two"});
  const Graph inputs = two.build(two.linear(
      "fc", two.flatten("flatten", two.add("sum", {two.input(), two.input("depth", {3, 4, 4})})), {.out_features = 2}));
  EXPECT_EQ(core::code_of([&] { (void)quantize(inputs, values_for(inputs), images_for(inputs)); }),
            core::ErrorCode::kUnsupported);

  ParameterSet large = values_for(residual_network());
  large.value(*large.find("conv1.weight")).fill_(1e38);
  EXPECT_THAT(core::message_of([&] { (void)quantize(residual_network(), large, images_for(residual_network())); }),
              HasSubstr("NaN or infinite"));
}

}  // namespace
}  // namespace trainyard::nn::quantize_test
