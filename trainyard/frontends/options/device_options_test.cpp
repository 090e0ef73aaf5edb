// The flags of devices: what each is read as, its default, its bounds, and which of them a table has.
#include "trainyard/frontends/options/device_options.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::frontends::device_options_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DeviceOptions read(const std::vector<std::string>& arguments) {
  return read_device_options(core::parse_flags(tf_cnn_flags(), arguments));
}

TEST(DeviceFlagValues, OfTheDeviceAndItsMemoryReachTheirOptions) {
  const DeviceOptions options =
      read({"--device=CPU", "--num_gpus=3", "--gpu_indices=7,0,12", "--local_parameter_device=GPU",
            "--gpu_thread_mode=global", "--per_gpu_thread_count=2", "--gpu_memory_frac_for_testing=0.25",
            "--noallow_growth", "--use_unified_memory", "--tf32", "--max_cpu_isa=avx2"});
  EXPECT_EQ(options.gpu, false);
  EXPECT_EQ(options.replicas, 3);
  EXPECT_THAT(options.gpu_indices, ElementsAre(7, 0, 12));
  EXPECT_EQ(options.parameters_on_gpu, true);
  EXPECT_THAT(options.gpu_thread_flags, ElementsAre("gpu_thread_mode", "per_gpu_thread_count"));
  EXPECT_EQ(options.gpu_memory_fraction, 0.25);
  EXPECT_EQ(options.allow_growth, false);
  EXPECT_EQ(options.use_unified_memory, true);
  EXPECT_TRUE(options.tf32);
  EXPECT_EQ(options.max_cpu_isa, "avx2");
  for (const auto& [word, gpu] : {std::pair{"cpu", false}, {"CPU", false}, {"gpu", true}, {"GPU", true}}) {
    EXPECT_EQ(read({std::string("--device=") + word}).gpu, gpu) << word;
    EXPECT_EQ(read({std::string("--local_parameter_device=") + word}).parameters_on_gpu, gpu) << word;
  }
  EXPECT_THAT(read({"--per_gpu_thread_count=2"}).gpu_thread_flags, ElementsAre("per_gpu_thread_count"));
}

TEST(DeviceFlagValues, OfKernelsAndPrecisionReachTheirOptions) {
  const DeviceOptions options =
      read({"--nowinograd_nonfused", "--conv_algorithm=winograd", "--deterministic", "--recompute=blocks",
            "--executor=reference", "--xla", "--noenable_optimizations", "--nobatchnorm_persistent",
            "--rewriter_config=remapping: OFF", "--use_fp16", "--fp16_vars"});
  EXPECT_FALSE(options.winograd);
  EXPECT_EQ(options.conv_algorithm, "winograd");
  EXPECT_TRUE(options.deterministic);
  EXPECT_EQ(options.recompute, "blocks");
  EXPECT_EQ(options.executor, "reference");
  EXPECT_TRUE(options.xla);
  EXPECT_FALSE(options.xla_compile);
  EXPECT_FALSE(options.switches.enable_optimizations);
  EXPECT_FALSE(options.switches.batchnorm_persistent);
  EXPECT_EQ(options.switches.rewriter_config, "remapping: OFF");
  EXPECT_TRUE(options.use_fp16);
  EXPECT_FALSE(options.use_bf16);
  EXPECT_TRUE(options.fp16_vars);
  const DeviceOptions others = read({"--xla_compile", "--use_bf16"});
  EXPECT_FALSE(others.xla);
  EXPECT_TRUE(others.xla_compile);
  EXPECT_TRUE(others.use_bf16);
  EXPECT_FALSE(others.use_fp16);
  EXPECT_FALSE(others.fp16_vars);
}

TEST(DeviceFlagValues, OfTheLossScaleReachTheirOptions) {
  const DeviceOptions options =
      read({"--fp16_loss_scale=64", "--fp16_enable_auto_loss_scale", "--fp16_inc_loss_scale_every_n=7",
            "--loss_scale_rule=paddle", "--loss_scale_raise_factor=3", "--loss_scale_lower_factor=0.25",
            "--loss_scale_lower_after=4", "--loss_scale_most_skips=5"});
  EXPECT_EQ(options.fp16_loss_scale, 64);
  EXPECT_TRUE(options.fp16_automatic_loss_scale);
  EXPECT_EQ(options.fp16_raise_loss_scale_after, 7);
  EXPECT_EQ(options.loss_scale_rule, "paddle");
  EXPECT_EQ(options.loss_scale_raise_factor, 3);
  EXPECT_EQ(options.loss_scale_lower_factor, 0.25);
  EXPECT_EQ(options.loss_scale_lower_after, 4);
  EXPECT_EQ(options.loss_scale_most_skips, 5);
  // A default that is given asks for something where the rule has another one.
  EXPECT_EQ(read({"--fp16_inc_loss_scale_every_n=1000"}).fp16_raise_loss_scale_after, std::nullopt);
  EXPECT_EQ(read({"--fp16_inc_loss_scale_every_n=1000", "--loss_scale_rule=tensorflow"}).fp16_raise_loss_scale_after,
            std::nullopt);
  EXPECT_EQ(read({"--fp16_inc_loss_scale_every_n=1000", "--loss_scale_rule=torch"}).fp16_raise_loss_scale_after, 1000);
  EXPECT_EQ(read({"--loss_scale_rule=torch"}).fp16_raise_loss_scale_after, std::nullopt);
  core::FlagValues of_file(tf_cnn_flags());
  of_file.set("fp16_inc_loss_scale_every_n", "1000", core::FlagSource::kFile);
  of_file.set("loss_scale_rule", "torch", core::FlagSource::kFile);
  EXPECT_EQ(read_device_options(of_file).fp16_raise_loss_scale_after, std::nullopt);
  EXPECT_EQ(read({"--loss_scale_most_skips=100"}).loss_scale_most_skips, std::nullopt) << "the default";
}

TEST(DeviceFlagValues, OfTheExchangeReachTheirOptions) {
  const DeviceOptions options =
      read({"--variable_update=collective_all_reduce", "--all_reduce_spec=xring", "--hierarchical_copy",
            "--network_topology=gcp_v100", "--nocompact_gradient_transfer", "--gradient_repacking=3",
            "--agg_small_grads_max_bytes=64", "--agg_small_grads_max_group=7", "--sharded_update=false",
            "--gradient_compression=topk", "--powersgd_rank=5", "--powersgd_start_iter=11",
            "--powersgd_min_compression_rate=6.5", "--topk_share=0.125", "--staged_vars", "--sync_batch_norm"});
  EXPECT_EQ(options.variable_update, "collective_all_reduce");
  EXPECT_EQ(options.all_reduce_spec, "xring");
  EXPECT_TRUE(options.hierarchical_copy);
  EXPECT_EQ(options.network_topology, "gcp_v100");
  EXPECT_EQ(options.compact_gradient_transfer, false);
  EXPECT_EQ(options.gradient_repacking, 3);
  EXPECT_EQ(options.agg_small_grads_max_bytes, 64);
  EXPECT_EQ(options.agg_small_grads_max_group, 7);
  EXPECT_EQ(options.sharded_update, "false");
  EXPECT_EQ(options.gradient_compression, "topk");
  EXPECT_EQ(options.powersgd_rank, 5);
  EXPECT_EQ(options.powersgd_start_iter, 11);
  EXPECT_EQ(options.powersgd_min_compression_rate, 6.5);
  EXPECT_EQ(options.topk_share, 0.125);
  EXPECT_TRUE(options.staged_vars);
  EXPECT_TRUE(options.sync_batch_norm);
  EXPECT_EQ(read({"--compact_gradient_transfer"}).compact_gradient_transfer, true);
}

TEST(DeviceFlagValues, OfProcessesReachTheirOptions) {
  const DeviceOptions options =
      read({"--horovod_device=cpu", "--horovod_reduce=sum", "--horovod_compression=bf16", "--rank_deadline=2.5",
            "--rank_start_deadline=7.5", "--listen_address=10.0.0.9", "--log_level=debug", "--job_name=worker",
            "--ps_hosts=a:1,b:2", "--worker_hosts=c:3,d:4,e:5", "--controller_host=f:6", "--task_index=2",
            "--nocross_replica_sync", "--tls_cert=cert.pem", "--tls_key=key.pem", "--tls_ca=ca.pem",
            "--gradient_reduction=sum"});
  EXPECT_EQ(options.horovod_device, "cpu");
  EXPECT_EQ(options.horovod_reduce, "sum");
  EXPECT_EQ(options.horovod_compression, "bf16");
  EXPECT_EQ(options.rank_deadline, 2.5);
  EXPECT_EQ(options.rank_start_deadline, 7.5);
  EXPECT_EQ(options.listen_address, "10.0.0.9");
  EXPECT_TRUE(options.log_all_ranks);
  EXPECT_EQ(options.cluster.job_name, "worker");
  EXPECT_THAT(options.cluster.ps_hosts, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(options.cluster.worker_hosts, ElementsAre("c:3", "d:4", "e:5"));
  EXPECT_EQ(options.cluster.controller_host, "f:6");
  EXPECT_EQ(options.cluster.task_index, 2);
  EXPECT_FALSE(options.cluster.cross_replica_sync);
  EXPECT_EQ(options.cluster.tls_cert, "cert.pem");
  EXPECT_EQ(options.cluster.tls_key, "key.pem");
  EXPECT_EQ(options.cluster.tls_ca, "ca.pem");
  EXPECT_TRUE(options.cluster.sums_gradients);
  for (const char* joined : {"--gradient_reduction=mean", "--gradient_reduction=auto"}) {
    EXPECT_FALSE(read({joined}).cluster.sums_gradients) << joined;
  }
}

TEST(DeviceFlagValues, SayWhetherProcessesWereStartedTogether) {
  const core::EnvironmentVariable size("SLURM_STEP_NUM_TASKS", "2"), step("SLURM_STEP_ID", "0");
  const core::EnvironmentVariable terminal("SLURM_PTY_PORT", std::nullopt);
  const core::EnvironmentVariable separate(parallel::kSeparateProcessesVariable, std::nullopt);
  EXPECT_TRUE(read({}).started_together);
  separate.set("1");
  EXPECT_FALSE(read({}).started_together);
}

TEST(DeviceFlagValues, ThatAreNotGivenLeaveTheOptionsAsTheyAre) {
  const DeviceOptions read_ones = read({}), plain;
  EXPECT_EQ(read_ones.gpu, std::nullopt);
  EXPECT_EQ(read_ones.parameters_on_gpu, std::nullopt);
  EXPECT_THAT(read_ones.gpu_indices, IsEmpty());
  EXPECT_THAT(read_ones.gpu_thread_flags, IsEmpty());
  EXPECT_EQ(read_ones.allow_growth, std::nullopt);
  EXPECT_EQ(read_ones.use_unified_memory, std::nullopt);
  EXPECT_EQ(read_ones.fp16_loss_scale, std::nullopt);
  EXPECT_EQ(read_ones.fp16_raise_loss_scale_after, std::nullopt);
  EXPECT_EQ(read_ones.loss_scale_raise_factor, std::nullopt);
  EXPECT_EQ(read_ones.loss_scale_lower_factor, std::nullopt);
  EXPECT_EQ(read_ones.loss_scale_lower_after, std::nullopt);
  EXPECT_EQ(read_ones.loss_scale_most_skips, std::nullopt);
  EXPECT_EQ(read_ones.compact_gradient_transfer, std::nullopt);
  EXPECT_EQ(read_ones.rank_deadline, std::nullopt);
  EXPECT_EQ(read_ones.rank_start_deadline, std::nullopt);
  EXPECT_FALSE(read_ones.log_all_ranks);
  for (const auto& [one, other] : {std::pair{read_ones.executor, plain.executor},
                                   {read_ones.conv_algorithm, plain.conv_algorithm},
                                   {read_ones.recompute, plain.recompute},
                                   {read_ones.loss_scale_rule, plain.loss_scale_rule},
                                   {read_ones.max_cpu_isa, plain.max_cpu_isa},
                                   {read_ones.variable_update, plain.variable_update},
                                   {read_ones.all_reduce_spec, plain.all_reduce_spec},
                                   {read_ones.network_topology, plain.network_topology},
                                   {read_ones.sharded_update, plain.sharded_update},
                                   {read_ones.gradient_compression, plain.gradient_compression},
                                   {read_ones.horovod_device, plain.horovod_device},
                                   {read_ones.horovod_reduce, plain.horovod_reduce},
                                   {read_ones.horovod_compression, plain.horovod_compression},
                                   {read_ones.listen_address, plain.listen_address}}) {
    EXPECT_EQ(one, other);
  }
  for (const auto& [one, other] : {std::pair{read_ones.replicas, plain.replicas},
                                   {read_ones.gradient_repacking, plain.gradient_repacking},
                                   {read_ones.agg_small_grads_max_bytes, plain.agg_small_grads_max_bytes},
                                   {read_ones.agg_small_grads_max_group, plain.agg_small_grads_max_group},
                                   {read_ones.powersgd_rank, plain.powersgd_rank},
                                   {read_ones.powersgd_start_iter, plain.powersgd_start_iter}}) {
    EXPECT_EQ(one, other);
  }
  EXPECT_FALSE(read_ones.staged_vars || read_ones.sync_batch_norm || read_ones.hierarchical_copy || read_ones.tf32);
  EXPECT_FALSE(read_ones.xla || read_ones.xla_compile || read_ones.deterministic || read_ones.fp16_vars);
  EXPECT_TRUE(read_ones.winograd);
}

TEST(DeviceFlagValues, AreWithinTheirBounds) {
  struct Bounds {
    const char* flag;
    std::optional<double> least, most;
  };
  for (const Bounds& expected : {Bounds{"gradient_repacking", 0, {}},
                                 {"powersgd_rank", 1, 256},
                                 {"powersgd_start_iter", 0, {}},
                                 {"powersgd_min_compression_rate", 1, 1e6},
                                 {"topk_share", 1e-6, 1},
                                 {"rank_deadline", 0.5, 1e6},
                                 {"rank_start_deadline", 0.5, 1e6},
                                 {"gpu_memory_frac_for_testing", 0, {}}}) {
    const core::FlagSpec* const flag = tf_cnn_flags().find(expected.flag);
    ASSERT_NE(flag, nullptr) << expected.flag;
    EXPECT_EQ(flag->lower_bound, expected.least) << expected.flag;
    EXPECT_EQ(flag->upper_bound, expected.most) << expected.flag;
  }
}

// A command with some of the flags declares a part of them.
TEST(DeviceFlagValues, AreDeclaredInParts) {
  core::FlagTable scale, all_reduce, memory;
  declare_loss_scale_flags(scale);
  declare_all_reduce_flags(all_reduce);
  declare_memory_flags(memory);
  EXPECT_THAT(scale.names(), ElementsAre("fp16_loss_scale", "fp16_enable_auto_loss_scale",
                                         "fp16_inc_loss_scale_every_n", "loss_scale_rule", "loss_scale_raise_factor",
                                         "loss_scale_lower_factor", "loss_scale_lower_after", "loss_scale_most_skips"));
  EXPECT_THAT(all_reduce.names(),
              ElementsAre("all_reduce_spec", "hierarchical_copy", "network_topology", "gradient_repacking",
                          "agg_small_grads_max_bytes", "agg_small_grads_max_group"));
  EXPECT_THAT(memory.names(), ElementsAre("gpu_memory_frac_for_testing", "use_unified_memory", "allow_growth"));
  DeviceOptions options;
  read_all_reduce_flags(core::parse_flags(all_reduce, {"--all_reduce_spec=ring#2", "--gradient_repacking=4",
                                                       "--agg_small_grads_max_bytes=9", "--hierarchical_copy"}),
                        options);
  EXPECT_EQ(options.all_reduce_spec, "ring#2");
  EXPECT_EQ(options.gradient_repacking, 4);
  EXPECT_EQ(options.agg_small_grads_max_bytes, 9);
  EXPECT_EQ(options.agg_small_grads_max_group, 10);
  EXPECT_TRUE(options.hierarchical_copy);
}

}  // namespace
}  // namespace trainyard::frontends::device_options_test
