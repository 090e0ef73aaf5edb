#include "trainyard/frontends/options/device_settings.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/options/device_options.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/optim/scaling/loss_scaler.h"

namespace trainyard::frontends::device_settings_test {
namespace {

DeviceOptions plan(const std::vector<std::string>& arguments, int gpus, int local_rank = 0) {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), arguments);
  const DeviceUse use{.evaluation = values.boolean("eval"),
                      .forward_only = values.boolean("forward_only"),
                      .decodes_on_gpu = values.text("dali_mode") == "GPU",
                      .prunes = values.boolean("asp")};
  return plan_devices(read_device_options(values), use, gpus, local_rank);
}

// Returns the GPUs that are opened.
std::vector<int> gpus_of(const std::vector<std::string>& arguments, int gpus) {
  return plan(arguments, gpus).gpu_indices;
}

nn::AcceleratorOptions accelerator(const std::vector<std::string>& arguments) {
  return accelerator_options(plan(arguments, 1));
}

std::string problem(const std::vector<std::string>& arguments, int gpus) {
  try {
    plan(arguments, gpus);
  } catch (const core::Error& error) {
    return error.detail().problem;
  }
  return "";
}

TEST(DevicePlan, IsAGpuWhereThereIsOneAndNobodyAsksForTheCpu) {
  EXPECT_TRUE(gpus_of({}, 0).empty());
  EXPECT_EQ(gpus_of({}, 1).size(), 1U);
  EXPECT_TRUE(gpus_of({"--device=CPU"}, 1).empty());
  EXPECT_EQ(gpus_of({"--device=GPU"}, 0).size(), 1U);  // which open_device() then cannot open
}

TEST(DevicePlan, WithoutAGpuItsFlagsAreRefusedByName) {
  for (const char* flag : {"gpu_indices=1", "gpu_memory_frac_for_testing=0.5", "allow_growth=true",
                           "use_unified_memory=true", "gpu_thread_mode=global", "per_gpu_thread_count=2", "xla=true",
                           "xla_compile=true", "tf32=true", "fp16_loss_scale=64", "fp16_enable_auto_loss_scale=true",
                           "fp16_inc_loss_scale_every_n=10", "loss_scale_rule=torch", "loss_scale_raise_factor=3",
                           "loss_scale_lower_factor=0.25", "loss_scale_lower_after=3", "loss_scale_most_skips=5"}) {
    const std::string text = flag;
    EXPECT_EQ(problem({"--" + text, "--device=cpu"}, 1), "--" + text.substr(0, text.find('=')) + " needs a GPU");
  }
  EXPECT_EQ(problem({"--local_parameter_device=gpu"}, 0), "--local_parameter_device=gpu needs a GPU");
  EXPECT_EQ(problem({"--executor=cuda"}, 0), "--executor=cuda needs a GPU");
  EXPECT_EQ(problem({"--dali_mode=GPU"}, 0), "--dali_mode=GPU needs a GPU");
  // Their defaults ask for nothing.
  EXPECT_EQ(problem({"--xla=false", "--gpu_thread_mode=gpu_private", "--local_parameter_device=cpu"}, 0), "");
}

TEST(DevicePlan, MemoryFlagsHaveTheirMeaning) {
  EXPECT_EQ(accelerator({}).memory_fraction, 0);
  EXPECT_EQ(accelerator({"--gpu_memory_frac_for_testing=0.25"}).memory_fraction, 0.25);
  EXPECT_NE(problem({"--gpu_memory_frac_for_testing=1.5"}, 1), "");
  EXPECT_FALSE(accelerator({}).take_all_memory);
  EXPECT_FALSE(accelerator({"--allow_growth"}).take_all_memory);
  EXPECT_TRUE(accelerator({"--noallow_growth"}).take_all_memory);
  EXPECT_FALSE(accelerator({"--nouse_unified_memory"}).managed_memory);
  const auto unified = accelerator({"--use_unified_memory", "--gpu_memory_frac_for_testing=1.5"});
  EXPECT_FALSE(accelerator({}).tf32);
  EXPECT_TRUE(accelerator({"--tf32"}).tf32);
  EXPECT_EQ(accelerator_options(plan({"--gpu_indices=2"}, 4)).index, 2);
  EXPECT_TRUE(unified.managed_memory);
  EXPECT_EQ(unified.memory_fraction, 1.5);
}

TEST(DevicePlan, GpuIndicesNameTheGpus) {
  using Indices = std::vector<int>;
  EXPECT_EQ(gpus_of({}, 4), Indices({0}));
  EXPECT_EQ(gpus_of({"--gpu_indices=2"}, 4), Indices({2}));
  EXPECT_EQ(gpus_of({"--num_gpus=3"}, 4), Indices({0, 1, 2}));
  EXPECT_EQ(gpus_of({"--num_gpus=2", "--gpu_indices=3,1"}, 4), Indices({3, 1}));
  for (const char* bad : {"1,0", "-1", "x", "1x", "0.5"}) {
    EXPECT_NE(problem({std::string("--gpu_indices=") + bad}, 4), "") << bad;
  }
  EXPECT_NE(problem({"--num_gpus=2", "--gpu_indices=1"}, 4), "");
  EXPECT_NE(problem({"--num_gpus=2", "--gpu_indices=1,1"}, 4).find("twice"), std::string::npos);
}

TEST(DevicePlan, NoMoreGpusThanThereAre) {
  EXPECT_EQ(problem({"--num_gpus=5"}, 4), "--num_gpus asks for more GPUs than this machine has");
  EXPECT_NE(problem({"--num_gpus=4000000000"}, 4), "");
  EXPECT_EQ(problem({"--num_gpus=2", "--device=cpu"}, 1), "");
  // Without any GPU, that is what open_device() says.
  EXPECT_EQ(gpus_of({"--num_gpus=4000000000", "--device=gpu"}, 0).size(), 1U);
}

TEST(DevicePlan, RefusalsTellTheNumbers) {
  const auto refusal = [](const std::vector<std::string>& arguments, int gpus, int local_rank = 0) {
    return core::message_of([&] { plan(arguments, gpus, local_rank); });
  };
  EXPECT_THAT(refusal({"--num_gpus=5"}, 4), core::Says("expected at most 4, got 5"));
  EXPECT_THAT(refusal({"--num_gpus=2", "--gpu_indices=1"}, 4), core::Says("expected 2, got 1"));
  EXPECT_THAT(refusal({"--num_gpus=2", "--gpu_indices=3,3"}, 4), core::Says("twice", ", got 3"));
  EXPECT_THAT(refusal({"--variable_update=horovod", "--gpu_indices=2,0"}, 4, 2),
              core::Says("names fewer GPUs", "expected more than 2, as LOCAL_RANK is, got 2"));
  EXPECT_EQ(problem({"--forward_only", "--num_gpus=2"}, 2),
            "--forward_only runs on one GPU, and --num_gpus=2 asks for more");
  EXPECT_THAT(refusal({"--variable_update=horovod"}, 2, 3),
              core::Says("LOCAL_RANK 3: expected at most 2 processes on this machine", "--gpu_indices=0"));
}

TEST(DevicePlan, EvaluationAndForwardPassesHaveOneGpu) {
  for (const char* mode : {"--eval", "--forward_only"}) {
    EXPECT_NE(problem({mode, "--num_gpus=2"}, 2), "") << mode;
    EXPECT_EQ(problem({mode, "--num_gpus=2", "--device=cpu"}, 2), "") << mode;
  }
}

TEST(DevicePlan, AProcessOfHorovodHasTheGpuOfItsLocalRank) {
  const auto index = [](const std::vector<std::string>& more, int gpus, int local_rank) {
    std::vector<std::string> arguments = {"--variable_update=horovod"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return plan(arguments, gpus, local_rank).gpu_indices;
  };
  using Indices = std::vector<int>;
  EXPECT_EQ(index({}, 4, 3), Indices({3}));
  EXPECT_EQ(index({"--gpu_indices=2,0"}, 4, 1), Indices({0}));
  EXPECT_EQ(index({"--gpu_indices=0"}, 1, 3), Indices({0}));  // each process sees its own alone
  EXPECT_THROW(index({}, 2, 2), core::Error);
  EXPECT_THROW(index({"--gpu_indices=2,0"}, 4, 2), core::Error);
}

TEST(DevicePlan, HorovodIsBetweenGpusOrBetweenCpus) {
  const std::string mode = "--variable_update=horovod";
  EXPECT_EQ(problem({mode}, 1), "");
  EXPECT_EQ(problem({mode, "--horovod_device=gpu", "--horovod_reduce=sum"}, 1), "");
  EXPECT_EQ(problem({mode}, 0), "");
  EXPECT_EQ(problem({mode, "--device=cpu"}, 1), "");
  EXPECT_EQ(problem({mode, "--device=cpu", "--horovod_device=cpu"}, 1), "");
  EXPECT_NE(problem({mode, "--horovod_device=gpu"}, 0).find("needs the model on a GPU"), std::string::npos);
  EXPECT_NE(problem({mode, "--horovod_device=cpu"}, 1).find("gradients meet there"), std::string::npos);
  EXPECT_NE(problem({mode, "--horovod_device=tpu"}, 1), "");
  EXPECT_EQ(problem({mode, "--eval"}, 1), "");
  EXPECT_EQ(problem({mode, "--eval", "--device=cpu"}, 0), "");
  EXPECT_EQ(problem({mode, "--forward_only"}, 1), "");
  EXPECT_EQ(problem({mode, "--horovod_compression=fp16"}, 0), "");
  EXPECT_NE(problem({mode, "--horovod_compression=fp16"}, 1).find("is for CPUs"), std::string::npos);
  EXPECT_EQ(problem({"--horovod_compression=bf16"}, 0), "--horovod_compression is of --variable_update=horovod");
  EXPECT_EQ(problem({"--horovod_device=gpu"}, 1), "--horovod_device is of --variable_update=horovod");
  EXPECT_EQ(problem({"--horovod_reduce=sum"}, 0), "--horovod_reduce is of --variable_update=horovod");
}

TEST(DevicePlan, DeadlinesAndAddressesAreOfSeveralProcesses) {
  for (const std::string flag : {"--rank_deadline=5", "--rank_start_deadline=5", "--listen_address=10.0.0.1"}) {
    EXPECT_NE(problem({flag}, 0).find("is of several processes"), std::string::npos) << flag;
    EXPECT_EQ(problem({flag, "--variable_update=horovod"}, 0), "") << flag;
    EXPECT_EQ(problem({flag, "--variable_update=horovod"}, 1), "") << flag;
  }
}

TEST(DevicePlan, ProcessesThatWouldTrainAloneAreRefused) {
  const auto problem_of_processes = [](const std::string& mode, const DeviceUse& use, int processes) {
    DeviceOptions options;
    options.variable_update = mode;
    return core::problem_of([&] { refuse_processes_that_train_alone(options, use, processes); });
  };
  EXPECT_EQ(problem_of_processes("replicated", {}, 1), "");
  EXPECT_EQ(problem_of_processes("horovod", {}, 3), "");
  EXPECT_EQ(problem_of_processes("collective_all_reduce", {.evaluation = true}, 3), "");
  EXPECT_EQ(problem_of_processes("replicated", {.forward_only = true}, 3), "");
  EXPECT_EQ(problem_of_processes("replicated", {}, 3), "3 processes were started, and each would train alone");
  EXPECT_EQ(problem_of_processes("parameter_server", {.evaluation = true}, 2),
            "2 processes were started, and each would evaluate alone");
}

TEST(DevicePlan, CollectiveAllReduceIsBetweenCpus) {
  const std::string mode = "--variable_update=collective_all_reduce";
  EXPECT_EQ(problem({mode, "--num_gpus=2"}, 0), "");
  EXPECT_EQ(problem({mode, "--num_gpus=2", "--device=cpu"}, 2), "");
  EXPECT_NE(problem({mode}, 1).find("between CPUs"), std::string::npos);
  EXPECT_EQ(problem({mode, "--eval", "--device=cpu"}, 0), "");
  EXPECT_EQ(problem({mode, "--forward_only", "--device=cpu"}, 0), "");
  EXPECT_EQ(problem({mode, "--horovod_reduce=sum"}, 0), "--horovod_reduce is of --variable_update=horovod");
}

TEST(DevicePlan, AlgorithmsOfAllReducesAreOfTheDeviceThatHasThem) {
  const std::string mode = "--variable_update=replicated", two = "--num_gpus=2";
  for (const char* spec : {"xring", "ring#2", "rechd", "shuffle", "pscpu", "psgpu#2", "pscpu/pscpu", "collective"}) {
    const std::string flag = std::string("--all_reduce_spec=") + spec;
    EXPECT_EQ(problem({mode, two, flag}, 0), "") << spec;
    EXPECT_NE(problem({mode, two, flag}, 2).find("is for CPUs: GPUs exchange by nccl"), std::string::npos) << spec;
  }
  EXPECT_EQ(problem({mode, two, "--all_reduce_spec=nccl"}, 2), "");
  for (const char* spec : {"nccl", "nccl/xring"}) {
    const std::string flag = std::string("--all_reduce_spec=") + spec;
    EXPECT_NE(problem({mode, two, flag}, 0).find("is for GPUs"), std::string::npos) << spec;
  }
  EXPECT_EQ(problem({mode, two, "--hierarchical_copy", "--network_topology=gcp_v100"}, 0), "");
  EXPECT_NE(problem({mode, two, "--hierarchical_copy"}, 2).find("is for CPUs"), std::string::npos);
  EXPECT_EQ(problem({mode, two, "--gradient_repacking=2", "--agg_small_grads_max_bytes=8"}, 2), "");
  EXPECT_EQ(problem({mode, two, "--hierarchical_copy", "--all_reduce_spec=xring"}, 0),
            "all_reduce_spec and hierarchical_copy exclude each other");
  EXPECT_EQ(problem({"--variable_update=independent", "--all_reduce_spec=nccl"}, 0), "") << "nothing is exchanged";
}

TEST(DevicePlan, AutomaticAllReducesAreMeasuredBetweenCpus) {
  const std::string mode = "--variable_update=horovod", spec = "--all_reduce_spec=auto";
  EXPECT_EQ(problem({mode, spec}, 0), "");
  EXPECT_EQ(problem({"--variable_update=replicated", "--num_gpus=2", spec}, 0), "") << "threads need no choice";
  EXPECT_NE(problem({mode, spec}, 1).find("is for CPUs"), std::string::npos);
  EXPECT_EQ(problem({mode, spec, "--deterministic"}, 0),
            "--all_reduce_spec=auto chooses by measuring, which --deterministic forbids");
  EXPECT_NE(problem({mode, spec, "--hierarchical_copy"}, 0), "");
  DeviceOptions options;
  options.all_reduce_spec = "auto";
  EXPECT_TRUE(gradient_packing(options).is_default()) << "buckets, as without a spec";
}

TEST(DevicePlan, GradientsAreCompressedWhereTheyAreExchanged) {
  const std::string mode = "--variable_update=replicated", two = "--num_gpus=2";
  const std::string low_rank = "--gradient_compression=powersgd", largest = "--gradient_compression=topk";
  EXPECT_EQ(problem({mode, two, low_rank, "--powersgd_rank=4", "--all_reduce_spec=xring"}, 0), "");
  EXPECT_EQ(problem({mode, two, largest, "--topk_share=0.02"}, 0), "");
  EXPECT_EQ(problem({"--variable_update=horovod", "--device=cpu", low_rank}, 0), "");
  EXPECT_EQ(problem({mode, low_rank}, 0),
            "--gradient_compression=powersgd is of gradients that are exchanged, and nothing exchanges them here");
  EXPECT_NE(problem({"--variable_update=independent", two, largest}, 0).find("nothing exchanges them"),
            std::string::npos);
  EXPECT_NE(problem({mode, two, low_rank}, 2).find("is for CPUs"), std::string::npos);
  EXPECT_NE(problem({mode, two, low_rank, "--gradient_repacking=2"}, 0).find("excludes packed gradients"),
            std::string::npos);
  EXPECT_EQ(problem({mode, two, "--powersgd_rank=3"}, 0), "--powersgd_rank is of --gradient_compression=powersgd");
  EXPECT_EQ(problem({mode, two, "--powersgd_start_iter=7"}, 0),
            "--powersgd_start_iter is of --gradient_compression=powersgd");
  EXPECT_EQ(problem({mode, two, largest, "--powersgd_min_compression_rate=7"}, 0),
            "--powersgd_min_compression_rate is of --gradient_compression=powersgd");
  EXPECT_EQ(problem({"--variable_update=parameter_server", two, "--staged_vars", low_rank}, 0),
            "--gradient_compression=powersgd does not work with --staged_vars");
  const auto nothing_exchanged = [&](const std::string& update, const std::string& replicas) {
    return core::message_of([&] { plan({update, "--num_gpus=" + replicas, largest}, 0); });
  };
  EXPECT_THAT(nothing_exchanged(mode, "1"), ::testing::HasSubstr(": got --variable_update=replicated, 1 replica; "));
  EXPECT_THAT(nothing_exchanged("--variable_update=independent", "2"),
              ::testing::HasSubstr(": got --variable_update=independent, 2 replicas; "));
  EXPECT_EQ(problem({mode, two, low_rank, "--topk_share=0.5"}, 0), "--topk_share is of --gradient_compression=topk");
}

TEST(DevicePlan, OptionsOfTheExchangeOfGradients) {
  const auto options = [](const std::vector<std::string>& arguments) {
    return read_device_options(core::parse_flags(tf_cnn_flags(), arguments));
  };
  const DeviceOptions plain = options({"--use_bf16"});
  EXPECT_TRUE(all_reduce_options(plain).is_default()) << "sums of bfloat16 training travel in 32 bits";
  EXPECT_TRUE(gradient_packing(plain).is_default());
  EXPECT_EQ(all_reduce_options(options({"--use_bf16", "--compact_gradient_transfer"})).wire, at::kBFloat16);
  EXPECT_FALSE(all_reduce_options(options({"--compact_gradient_transfer"})).wire);
  EXPECT_EQ(all_reduce_options(options({"--horovod_compression=fp16"})).wire, at::kHalf);
  EXPECT_EQ(all_reduce_options(options({"--horovod_compression=bf16"})).wire, at::kBFloat16);
  const DeviceOptions packed = options({"--gradient_repacking=3", "--agg_small_grads_max_bytes=64",
                                        "--agg_small_grads_max_group=7", "--all_reduce_spec=pscpu:2k:xring"});
  EXPECT_EQ(all_reduce_options(packed).spec, "pscpu:2k:xring");
  const parallel::GradientPacking packing = gradient_packing(packed);
  EXPECT_EQ(packing.parts, 3);
  EXPECT_EQ(packing.small_bytes, 64);
  EXPECT_EQ(packing.small_group, 7);
  EXPECT_TRUE(packing.separate) << "an algorithm is chosen by a gradient's size";
  EXPECT_FALSE(gradient_packing(options({"--all_reduce_spec=xring"})).separate);
  EXPECT_TRUE(gradient_compression(plain).is_default());
  const parallel::GradientCompression expected{.method = parallel::CompressionMethod::kPowerSgd,
                                               .matrix_approximation_rank = 4,
                                               .min_compression_rate = 3,
                                               .start_iter = 10};
  EXPECT_EQ(gradient_compression(options({"--gradient_compression=powersgd", "--powersgd_rank=4",
                                          "--powersgd_start_iter=10", "--powersgd_min_compression_rate=3"})),
            expected);
  EXPECT_EQ(gradient_compression(options({"--gradient_compression=topk", "--topk_share=0.25"})).top_k_share, 0.25);
}

TEST(DevicePlan, UpdatesAreDividedWhereReplicasHaveCopiesOfTheParameters) {
  using Use = parallel::Sharding::Use;
  const auto use = [](const std::vector<std::string>& arguments) {
    return sharding_use(read_device_options(core::parse_flags(tf_cnn_flags(), arguments)));
  };
  EXPECT_EQ(use({}), Use::kAuto);
  EXPECT_EQ(use({"--sharded_update=auto"}), Use::kAuto);
  EXPECT_EQ(use({"--sharded_update=true"}), Use::kAlways);
  EXPECT_EQ(use({"--sharded_update=false"}), Use::kNever);
  const std::string wanted = "--sharded_update=true";
  for (const std::string mode : {"replicated", "horovod", "collective_all_reduce"}) {
    EXPECT_EQ(problem({wanted, "--variable_update=" + mode}, 0), "") << mode;
  }
  for (const std::string mode : {"parameter_server", "independent"}) {
    EXPECT_EQ(problem({wanted, "--variable_update=" + mode}, 0),
              "--sharded_update=true needs replicas that have a copy of the parameters each");
    EXPECT_EQ(problem({"--sharded_update=auto", "--variable_update=" + mode}, 0), "");
  }
  EXPECT_NE(problem({wanted, "--variable_update=replicated", "--device=gpu"}, 1).find("does not work on GPUs"),
            std::string::npos);
}

TEST(DevicePlan, DistributedAllReduceIsBetweenProcessesWhereSeveralWereStarted) {
  const std::string mode = "--variable_update=distributed_all_reduce", spec = "--all_reduce_spec=pscpu:2k:xring";
  EXPECT_EQ(problem({mode, spec, "--num_gpus=2"}, 0), "");
  DeviceOptions options;
  options.variable_update = "distributed_all_reduce";
  EXPECT_FALSE(options.many_processes());
  options.started_together = true;
  EXPECT_TRUE(options.many_processes());
  EXPECT_EQ(core::problem_of([&] { refuse_processes_that_train_alone(options, {}, 3); }), "");
  EXPECT_NE(core::message_of([&] { plan_devices(options, {}, 1); }, core::ErrorCode::kUnsupported).find("between CPUs"),
            std::string::npos);
}

TEST(OpenDevice, HasTheKernelsAndTheExecutorOfTheFlags) {
  using nn::ConvolutionPolicy, nn::Recomputation;
  const auto opened = [](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"--device=cpu"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return open_device(read_device_options(core::parse_flags(tf_cnn_flags(), arguments)), {});
  };
  const train::OpenDevices plain = opened({});
  EXPECT_EQ(plain.kernels.convolutions, ConvolutionPolicy::kAuto);
  EXPECT_EQ(opened({"--deterministic"}).kernels.convolutions, ConvolutionPolicy::kByShape);
  EXPECT_EQ(opened({"--conv_algorithm=winograd"}).kernels.convolutions, ConvolutionPolicy::kWinograd);
  EXPECT_EQ(opened({"--conv_algorithm=direct"}).kernels.convolutions, ConvolutionPolicy::kDirect);
  EXPECT_EQ(opened({"--nowinograd_nonfused"}).kernels.convolutions, ConvolutionPolicy::kDirect);
  EXPECT_EQ(plain.kernels.recomputation, Recomputation::kNone);
  EXPECT_EQ(opened({"--recompute=elementwise"}).kernels.recomputation, Recomputation::kElementwise);
  EXPECT_EQ(opened({"--recompute=blocks"}).kernels.recomputation, Recomputation::kBlocks);
  EXPECT_EQ(plain.executor, "cpu");
  EXPECT_EQ(opened({"--executor=reference"}).executor, "reference");
  EXPECT_EQ(plain.replicas, 1);
  EXPECT_EQ(opened({"--num_gpus=2"}).replicas, 2);
  EXPECT_EQ(plain.dtype, at::kFloat);
  EXPECT_FALSE(plain.variables_as.has_value());
  const train::OpenDevices small = opened({"--use_bf16", "--fp16_vars"});
  EXPECT_EQ(small.dtype, at::kBFloat16);
  EXPECT_EQ(small.variables_as, at::kBFloat16);
  EXPECT_FALSE(small.loss_scale.has_value());
}

TEST(OpenDevice, TakesTheSwitchesOfTheRewriter) {
  const auto opened = [](std::vector<std::string> flags) {
    flags.emplace_back("--device=cpu");
    return open_device(read_device_options(core::parse_flags(tf_cnn_flags(), flags)), {});
  };
  const std::string heuristics = "--rewriter_config=memory_optimization: HEURISTICS";
  EXPECT_EQ(opened({heuristics}).kernels.recomputation, nn::Recomputation::kElementwise);
  EXPECT_EQ(opened({heuristics, "--recompute=elementwise"}).kernels.recomputation, nn::Recomputation::kElementwise);
  EXPECT_EQ(core::problem_of([&] {
              opened({heuristics, "--recompute=blocks"});
            }),
            "--recompute and the memory_optimization of --rewriter_config ask for different things");
  nn::Fusions without;
  without.norm_addition = false;
  EXPECT_EQ(opened({"--rewriter_config=norm_addition: OFF"}).kernels.fusions, without);
  EXPECT_EQ(core::message_of(
                [&] {
                  opened({"--recompute=blocks", "--executor=reference"});
                },
                core::ErrorCode::kUnsupported),
            "--recompute (or memory_optimization of --rewriter_config) is the CPU plan's: expected --executor=cpu, got "
            "--executor=reference; leave one of the two out");
}

TEST(DevicePlan, FlagsThatAProcessOfAClusterDoesNotTakeAreRefused) {
  const std::vector<std::string> worker = {"--job_name=worker", "--ps_hosts=10.0.0.1:2222",
                                           "--worker_hosts=10.0.0.2:2222", "--variable_update=parameter_server"};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> arguments = worker;
    arguments.push_back(flag);
    return core::message_of([&] { plan(arguments, 0); });
  };
  EXPECT_EQ(with("--num_gpus=1"), "no error");
  EXPECT_EQ(with("--listen_address=10.0.0.9"),
            "--listen_address is of processes that a launcher has started: got --job_name=worker; leave it out: each "
            "process listens at its own address of the lists of hosts");
  EXPECT_EQ(with("--eval"),
            "--eval is of one process, which needs no cluster: got --job_name=worker; evaluate the checkpoints without "
            "--job_name and --variable_update");
}

TEST(DevicePlan, CapturesStepsOfTrainingsOnly) {
  EXPECT_FALSE(plan({}, 1).captures_steps());
  EXPECT_TRUE(plan({"--xla"}, 1).captures_steps());
  EXPECT_TRUE(plan({"--xla_compile"}, 1).captures_steps());
  EXPECT_NE(problem({"--xla_compile", "--forward_only"}, 1), "");
  EXPECT_NE(problem({"--xla", "--eval"}, 1), "");
  EXPECT_NE(problem({"--xla_compile", "--noallow_growth"}, 1), "");
  EXPECT_EQ(problem({"--xla_compile", "--forward_only"}, 1), "--xla_compile captures steps of a training");
  EXPECT_EQ(problem({"--xla", "--eval"}, 1), "--xla captures steps of a training");
  EXPECT_EQ(problem({"--xla", "--noallow_growth"}, 1), "--xla and --noallow_growth exclude each other");
}

TEST(DevicePlan, ScalesTheLossOfHalfFloatsAlone) {
  EXPECT_FALSE(loss_scale_of(plan({}, 1)));
  EXPECT_FALSE(loss_scale_of(plan({"--use_bf16"}, 1)));
  EXPECT_EQ(loss_scale_of(plan({"--use_fp16"}, 1))->first_scale(), 128);
  EXPECT_FALSE(loss_scale_of(plan({"--use_fp16"}, 1))->automatic);
  EXPECT_FALSE(loss_scale_of(plan({"--use_fp16", "--fp16_loss_scale=1"}, 1)));
  const auto automatic = loss_scale_of(plan(
      {"--use_fp16", "--fp16_enable_auto_loss_scale", "--fp16_loss_scale=1", "--fp16_inc_loss_scale_every_n=7"}, 1));
  EXPECT_TRUE(automatic->automatic);
  EXPECT_EQ(automatic->scale, 1);
  EXPECT_EQ(automatic->raise_after, 7);
  EXPECT_NE(problem({"--fp16_loss_scale=64"}, 1), "");
  EXPECT_NE(problem({"--use_fp16", "--use_bf16"}, 1), "");
  EXPECT_NE(problem({"--use_fp16", "--fp16_loss_scale=0"}, 1), "");
  // A CPU computes in them where it is asked to by name.
  EXPECT_EQ(problem({"--use_fp16"}, 0), "--use_fp16 needs a GPU");
  EXPECT_EQ(loss_scale_of(plan({"--use_fp16", "--device=cpu"}, 0))->first_scale(), 128);
}

TEST(DevicePlan, MovesTheLossScaleByItsRule) {
  const std::vector<std::string> automatic = {"--use_fp16", "--fp16_enable_auto_loss_scale"};
  const auto scale_of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), automatic.begin(), automatic.end());
    return *loss_scale_of(plan(more, 1));
  };
  EXPECT_EQ(scale_of({}).steps().raise_after, 1001) << "tf_cnn_benchmarks raises it in the step behind 1,000";
  EXPECT_EQ(scale_of({}).most_skips_at_floor, 100);
  EXPECT_EQ(scale_of({"--loss_scale_rule=torch"}).first_scale(), 65536);
  EXPECT_EQ(scale_of({"--loss_scale_rule=torch"}).steps().raise_after, 2000);
  EXPECT_EQ(scale_of({"--loss_scale_rule=torch", "--fp16_inc_loss_scale_every_n=1000"}).steps().raise_after, 1000);
  EXPECT_EQ(scale_of({"--loss_scale_rule=torch", "--fp16_loss_scale=8"}).first_scale(), 8);
  const optim::LossScaleSteps paddle = scale_of({"--loss_scale_rule=paddle"}).steps();
  EXPECT_EQ(paddle.raise_after, 1000);
  EXPECT_EQ(paddle.lower_after, 2);
  EXPECT_EQ(paddle.floor, 1);
  const auto own = scale_of({"--loss_scale_raise_factor=3", "--loss_scale_lower_factor=0.25",
                             "--loss_scale_lower_after=4", "--loss_scale_most_skips=5"});
  EXPECT_EQ(own.steps().raise_factor, 3);
  EXPECT_EQ(own.steps().lower_factor, 0.25);
  EXPECT_EQ(own.steps().lower_after, 4);
  EXPECT_EQ(own.most_skips_at_floor, 5);
  EXPECT_EQ(problem({"--use_fp16", "--loss_scale_rule=torch"}, 1),
            "--loss_scale_rule is of --fp16_enable_auto_loss_scale");
  EXPECT_EQ(problem({"--use_fp16", "--loss_scale_most_skips=5"}, 1),
            "--loss_scale_most_skips is of --fp16_enable_auto_loss_scale");
  EXPECT_EQ(problem({"--use_fp16", "--fp16_inc_loss_scale_every_n=5"}, 1), "") << "tf_cnn_benchmarks takes it";
  EXPECT_NE(problem({"--use_fp16", "--fp16_enable_auto_loss_scale", "--loss_scale_lower_factor=1.5"}, 1), "");
}

TEST(DevicePlan, KeepsVariablesIn16BitsWithActivationsAlone) {
  EXPECT_FALSE(variables_of(plan({"--use_fp16"}, 1)));
  EXPECT_EQ(variables_of(plan({"--use_fp16", "--fp16_vars"}, 1)), at::kHalf);
  EXPECT_EQ(variables_of(plan({"--use_bf16", "--fp16_vars"}, 1)), at::kBFloat16);
  EXPECT_EQ(variables_of(plan({"--use_bf16", "--fp16_vars"}, 0)), at::kBFloat16);
  EXPECT_EQ(problem({"--fp16_vars"}, 0), "--fp16_vars is of --use_fp16 or --use_bf16");
  EXPECT_EQ(problem({"--use_fp16", "--fp16_vars"}, 0), "--use_fp16 needs a GPU");
  EXPECT_EQ(variables_of(plan({"--use_fp16", "--fp16_vars", "--device=cpu"}, 0)), at::kHalf);
}

TEST(DevicePlan, FlagsOfTheCpuAreRefusedOnAGpu) {
  for (const char* flag : {"--conv_algorithm=direct", "--nowinograd_nonfused", "--recompute=blocks", "--executor=cpu",
                           "--local_parameter_device=cpu", "--asp", "--sync_batch_norm"}) {
    EXPECT_NE(problem({flag}, 1), "") << flag;
    EXPECT_EQ(problem({flag, "--device=cpu"}, 1), "") << flag;
  }
  EXPECT_EQ(problem({"--executor=reference"}, 1), "");
}

TEST(DevicePlan, RefusalsAreWhole) {
  const auto refusal = [](const std::vector<std::string>& arguments, int gpus) {
    return core::message_of([&] { plan(arguments, gpus); });
  };
  const std::string horovod = "--variable_update=horovod";
  for (const std::string flag : {"--rank_deadline=5", "--rank_start_deadline=5", "--listen_address=10.0.0.1"}) {
    EXPECT_EQ(refusal({flag}, 0), flag.substr(0, flag.find('=')) +
                                      " is of several processes; pass --variable_update=horovod or "
                                      "collective_all_reduce, too, or leave it out");
  }
  EXPECT_EQ(refusal({horovod, "--horovod_device=tpu"}, 1),
            "--horovod_device is no device: expected cpu or gpu, got tpu");
  EXPECT_EQ(refusal({"--horovod_compression=bf16"}, 0),
            "--horovod_compression is of --variable_update=horovod; pass both, or neither");
  EXPECT_EQ(refusal({"--sharded_update=true", "--variable_update=independent"}, 0),
            "--sharded_update=true needs replicas that have a copy of the parameters each: expected "
            "--variable_update=replicated, horovod, collective_all_reduce or distributed_all_reduce, got "
            "--variable_update=independent");
  EXPECT_EQ(refusal({"--num_gpus=2", "--gpu_indices=1"}, 4),
            "--gpu_indices names another number of GPUs than --num_gpus: expected 2, got 1");
  EXPECT_EQ(refusal({"--num_gpus=4"}, 4), "no error") << "all that there are";
  EXPECT_EQ(plan({horovod, "--device=gpu"}, 0, 5).gpu_indices, std::vector<int>{5}) << "open_device() says what lacks";
}

TEST(DevicePlan, ProcessesThatWouldTrainAloneHearOfTheirLauncher) {
  const core::EnvironmentVariable size("SLURM_STEP_NUM_TASKS", "3"), step("SLURM_STEP_ID", "0");
  const core::EnvironmentVariable terminal("SLURM_PTY_PORT", std::nullopt);
  DeviceOptions options;
  options.gpu = false;
  options.variable_update = "replicated";
  const std::string expected =
      ": Slurm's srun, SLURM_STEP_NUM_TASKS=3: expected --variable_update=horovod, or collective_all_reduce or "
      "distributed_all_reduce with several replicas a process, got --variable_update=replicated; pass one of them, or "
      "start one process; or set TRAINYARD_SEPARATE_PROCESSES=1 where each is a run of its own";
  EXPECT_EQ(core::message_of([&] { open_device(options, {}); }),
            "3 processes were started, and each would train alone" + expected);
  EXPECT_EQ(core::message_of([&] { open_device(options, {.evaluation = true}); }),
            "3 processes were started, and each would evaluate alone" + expected);
  EXPECT_EQ(core::message_of([&] { open_device(options, {.forward_only = true}); }), "no error");
}

TEST(OpenDevice, AnInstructionSetIsChosenWhenTheProcessBegins) {
  const std::string limit(core::to_string(core::cpu_isa_limit()));
  DeviceOptions options;
  options.gpu = false;
  for (const std::string wanted : {"auto", "avx2", "avx512"}) {
    options.max_cpu_isa = wanted;
    EXPECT_EQ(core::message_of([&] { open_device(options, {}); }),
              wanted == "auto" || wanted == limit
                  ? "no error"
                  : "--max_cpu_isa must be known when the process begins: expected " + wanted + ", got " + limit +
                        "; set TRAINYARD_MAX_CPU_ISA=" + wanted + " in the environment");
  }
}

TEST(OpenDevice, SaysWhatItHasChosen) {
  const auto log_of = [](const DeviceOptions& options, at::ScalarType dtype, const std::string& executor) {
    ::testing::internal::CaptureStderr();
    const train::OpenDevices opened = open_device(options, {});
    EXPECT_EQ(opened.dtype, dtype);
    EXPECT_EQ(opened.executor, executor);
    return ::testing::internal::GetCapturedStderr();
  };
  const core::log::Level before = core::log::set_level(core::log::Level::kInfo);
  DeviceOptions options;
  if (train::gpu_count() == 0) {
    EXPECT_THAT(log_of(options, at::kFloat, "cpu"), ::testing::HasSubstr("device: cpu (this "));
  }
  options.gpu = false;
  EXPECT_THAT(log_of(options, at::kFloat, "cpu"), ::testing::Not(::testing::HasSubstr("device: ")));
  options.use_bf16 = true;
  EXPECT_THAT(log_of(options, at::kBFloat16, "cpu"), ::testing::Not(::testing::HasSubstr("fp16 on the CPU")));
  options.use_bf16 = false;
  options.use_fp16 = true;
  EXPECT_THAT(log_of(options, at::kHalf, "reference"), ::testing::HasSubstr("fp16 on the CPU is computed by LibTorch"));
  core::log::set_level(before);
}

// Before a run in train_dir makes room for the new one.
TEST(DevicePlan, AGraphAsOnnxIsRefusedOnAGpu) {
  const DeviceUse use{.writes_onnx_graph = true};
  EXPECT_THAT(core::message_of([&] { static_cast<void>(plan_devices({}, use, 1)); }, core::ErrorCode::kUnsupported),
              testing::AllOf(testing::HasSubstr("do not write ONNX on a GPU"), testing::HasSubstr("ends in .txt")));
  EXPECT_NO_THROW(static_cast<void>(plan_devices({}, use, 0)));
}

}  // namespace
}  // namespace trainyard::frontends::device_settings_test
