// tf_cnn_benchmarks' Inception v3 and v4, without auxiliary classifiers. Szegedy, Vanhoucke, Ioffe, Shlens, Wojna,
// "Rethinking the Inception architecture for computer vision", 2015; Szegedy, Ioffe, Vanhoucke, Alemi, "Inception-v4,
// Inception-ResNet and the impact of residual connections on learning", 2016.

#include "trainyard/models/registry/layer_defaults.h"
#include "trainyard/models/tf_cnn/chain.h"

namespace trainyard::models::tf_cnn::inception {
namespace {

using Columns = std::vector<std::vector<Layer>>;

constexpr nn::Size2d kRow7{1, 7}, kColumn7{7, 1}, kRow3{1, 3}, kColumn3{3, 1};

Conv valid(int64_t channels, int64_t kernel, int64_t stride = 1) {
  return {.channels = channels, .kernel = kernel, .stride = stride, .padding = kValid};
}

const AveragePool kAverage{3, 1, kSame};
const MaxPool kMax{3, 1, kSame}, kHalving{3, 2, kValid};

Columns v3_a(int64_t pooled) {
  return {
      {Conv{64, 1}}, {Conv{48, 1}, Conv{64, 5}}, {Conv{64, 1}, Conv{96, 3}, Conv{96, 3}}, {kAverage, Conv{pooled, 1}}};
}
Columns v3_b() {
  return {{valid(384, 3, 2)}, {Conv{64, 1}, Conv{96, 3}, valid(96, 3, 2)}, {kHalving}};
}
Columns v3_c(int64_t n) {
  return {{Conv{192, 1}},
          {Conv{n, 1}, Conv{n, kRow7}, Conv{192, kColumn7}},
          {Conv{n, 1}, Conv{n, kColumn7}, Conv{n, kRow7}, Conv{n, kColumn7}, Conv{192, kRow7}},
          {kAverage, Conv{192, 1}}};
}
Columns v3_d() {
  return {{Conv{192, 1}, valid(320, 3, 2)},
          {Conv{192, 1}, Conv{192, kRow7}, Conv{192, kColumn7}, valid(192, 3, 2)},
          {kHalving}};
}
Columns v3_e(const Layer& pool) {
  return {{Conv{320, 1}},
          {Conv{384, 1}, Conv{384, kRow3}},
          {Share{}, Conv{384, kColumn3}},
          {Conv{448, 1}, Conv{384, 3}, Conv{384, kRow3}},
          {Share{}, Share{}, Conv{384, kColumn3}},
          {pool, Conv{192, 1}}};
}

nn::Graph build_inception3(const ModelOptions& options) {
  Chain chain(options, "inception3", {.batch_norm = true});
  chain.add(valid(32, 3, 2));
  chain.add(valid(32, 3));
  chain.add(Conv{64, 3});
  chain.add(kHalving);
  chain.add(valid(80, 1));
  chain.add(valid(192, 3));
  chain.add(kHalving);
  for (const int64_t pooled : {32, 64, 64}) chain.module(v3_a(pooled));
  chain.module(v3_b());
  for (const int64_t n : {128, 160, 160, 192}) chain.module(v3_c(n));
  chain.module(v3_d());
  chain.module(v3_e(kAverage));
  chain.module(v3_e(kMax));
  chain.spatial_mean();  // written as an 8 x 8 pooling there
  return chain.classify();
}

Columns v4_a() {
  return {{kAverage, Conv{96, 1}}, {Conv{96, 1}}, {Conv{64, 1}, Conv{96, 3}}, {Conv{64, 1}, Conv{96, 3}, Conv{96, 3}}};
}
Columns v4_b() {
  return {{kAverage, Conv{128, 1}},
          {Conv{384, 1}},
          {Conv{192, 1}, Conv{224, kRow7}, Conv{256, kColumn7}},
          {Conv{192, 1}, Conv{192, kRow7}, Conv{224, kColumn7}, Conv{224, kRow7}, Conv{256, kColumn7}}};
}
Columns v4_c() {
  return {{kAverage, Conv{256, 1}},
          {Conv{256, 1}},
          {Conv{384, 1}, Conv{256, kRow3}},
          {Share{}, Conv{256, kColumn3}},
          {Conv{384, 1}, Conv{448, kRow3}, Conv{512, kColumn3}, Conv{256, kColumn3}},
          {Share{}, Share{}, Share{}, Conv{256, kRow3}}};
}

nn::Graph build_inception4(const ModelOptions& options) {
  Chain chain(options, "inception4", {.batch_norm = true});
  chain.add(valid(32, 3, 2));
  chain.add(valid(32, 3));
  chain.add(Conv{64, 3});
  chain.module({{kHalving}, {valid(96, 3, 2)}});
  chain.module({{Conv{64, 1}, valid(96, 3)}, {Conv{64, 1}, Conv{64, kColumn7}, Conv{64, kRow7}, valid(96, 3)}});
  chain.module({{valid(192, 3, 2)}, {kHalving}});
  for (int i = 0; i < 4; ++i) chain.module(v4_a());
  chain.module({{kHalving}, {valid(384, 3, 2)}, {Conv{192, 1}, Conv{224, 3}, valid(256, 3, 2)}});
  for (int i = 0; i < 7; ++i) chain.module(v4_b());
  chain.module({{kHalving},
                {Conv{192, 1}, valid(192, 3, 2)},
                {Conv{256, 1}, Conv{256, kRow7}, Conv{320, kColumn7}, valid(320, 3, 2)}});
  for (int i = 0; i < 3; ++i) chain.module(v4_c());
  chain.spatial_mean();
  chain.dropout(0.8);
  return chain.classify();
}

const ModelRegistration kInception3(benchmark_model("inception3", DatasetFamily::kImagenet, 299, build_inception3));
const ModelRegistration kInception4(benchmark_model("inception4", DatasetFamily::kImagenet, 299, build_inception4));

}  // namespace
}  // namespace trainyard::models::tf_cnn::inception
