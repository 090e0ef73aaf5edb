// A static-graph program, as NVIDIA's PaddlePaddle ResNet-50 example writes its training and evaluation: build two
// programs that share their parameters, initialize these once, run epochs over loaders, prune to 2:4, run a step by
// hand.

#include <iostream>

#include <fmt/core.h>

#include "trainyard/paddle.h"

namespace {

using namespace trainyard;
using namespace trainyard::frontends::program;

constexpr int64_t kClasses = 4, kSide = 32;

// Noise in which one quarter of the picture is bright: the class says which.
Loader quarters(uint64_t seed, int64_t batches, int64_t batch_size, bool repeat) {
  const int64_t count = batches * batch_size;
  const at::Tensor images = core::new_tensor({count, 3, kSide, kSide}), labels = core::new_tensor({count}, at::kLong);
  core::RandomStream random(seed, "quarters");
  auto* pixel = images.mutable_data_ptr<float>();
  for (int64_t i = 0; i < images.numel(); ++i) pixel[i] = 0.5F * random.normal();
  for (int64_t i = 0; i < count; ++i) {
    labels[i].fill_(i % kClasses);
    const int64_t top = i % kClasses / 2 * kSide / 2, left = i % 2 * kSide / 2;
    images[i].narrow(1, top, kSide / 2).narrow(2, left, kSide / 2).add_(1);
  }
  return {std::make_shared<data::TensorSource>(core::NamedTensors{{"images", images}, {"labels", labels}},
                                               data::TensorSourceOptions{.batch_size = batch_size, .repeat = repeat}),
          batches};
}

int run_example() {
  Arguments args;  // the example's defaults, but for a small network on a CPU
  args.image_shape = {3, kSide, kSide};
  args.crop_size = kSide;
  args.image_root = "";
  args.model_arch_name = "resnet18";
  args.num_of_class = kClasses;
  args.batch_size = 16;
  args.epochs = 3;
  args.warmup_epochs = 1;
  args.lr = 0.02;
  args.asp = args.prune_model = true;
  args.places = {"cpu:0"};
  args.report_file = "";
  settle(args);
  Report report(std::cout, args.report_file);

  const Loader train_dataloader = quarters(1, 8, args.batch_size, true);
  const Loader eval_dataloader = quarters(2, 4, args.batch_size, false);
  Program startup_prog("startup"), train_prog("train"), eval_prog("eval");
  Built train = build(args, train_prog, startup_prog, train_dataloader.steps(), /*is_train=*/true);
  Built eval = build(args, eval_prog, startup_prog, eval_dataloader.steps(), /*is_train=*/false);

  Executor exe(args.places);
  exe.run(startup_prog);
  prune_model(exe, train_prog, args.mask_algo);
  eval_prog = compile_prog(args, eval_prog, "loss", /*is_train=*/false);

  Metrics measured;
  for (int64_t epoch = args.start_epoch; epoch < args.epochs; ++epoch) {
    run(args, train_dataloader, exe, train_prog, train.fetchs, epoch, Mode::kTrain, train.lr_scheduler.get(), report);
    measured = run(args, eval_dataloader, exe, eval_prog, eval.fetchs, epoch, Mode::kEval, nullptr, report);
  }

  // One batch by hand.
  const data::Batch batch = quarters(3, 1, 8, false).source()->next()[0];
  const Feed feed{{"data", batch.images()}, {"label", batch.labels().unsqueeze(1)}};
  const at::Tensor label = exe.run(eval_prog, feed, {"label"})[0];
  const auto right = label.eq(batch.labels()).sum().item<int64_t>();
  const double top1 = measured.at(3).second;
  fmt::print("{} of 8 by hand; top1 {:.2f}: {}\n", right, top1, top1 > 0.9 && right >= 7 ? "learned" : "lost");
  return 0;
}

}  // namespace

int main() {
  try {
    return run_example();
  } catch (const core::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return core::exit_code(error.code());
  }
}
