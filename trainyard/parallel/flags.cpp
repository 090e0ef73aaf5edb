#include "trainyard/parallel/flags.h"

namespace trainyard::parallel {
namespace {

constexpr const char* kProcesses = "training with many processes";
constexpr const char* kAlgorithms = "all-reduce algorithms";

void declare_replica_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Replicas";
  table.integer("num_gpus", 1, "devices a process; with device=cpu: replicas on threads").group(kGroup);
  table.text("gpu_indices", "", "the GPUs to use, in ring order, comma separated").group(kGroup);
  table
      .choice("variable_update", "parameter_server",
              {"parameter_server", "replicated", "distributed_replicated", "independent", "distributed_all_reduce",
               "collective_all_reduce", "horovod"},
              "where variables live and how gradients are reduced: one copy and the mean; a copy each and the sum; "
              "independent: no exchange; horovod: a process a replica, started by mpirun or trainyard launch, and the "
              "mean; collective_all_reduce: the same with num_gpus replicas a process, and the sum")
      .pending_value("distributed_replicated", kProcesses)
      .pending_value("distributed_all_reduce", kProcesses)
      .group(kGroup);
  table
      .choice("local_parameter_device", "gpu", {"cpu", "gpu", "CPU", "GPU"},
              "where parameter_server keeps the variables: where the model runs, nowhere else")
      .automatic("where the model runs")
      .group(kGroup);
  table
      .choice(
          "gradient_reduction", "auto", {"auto", "sum", "mean"},
          "how gradients of replicas are joined; auto: mean for parameter_server and distributed_replicated, else sum")
      .group(kGroup);
  table
      .boolean("sync_batch_norm", false,
               "batch norms normalize with the statistics of all replicas' batches together; on the CPU")
      .group(kGroup);
  table
      .choice("variable_consistency", "strong", {"strong", "relaxed"},
              "relaxed: each update applies the gradients of the step before, and the first one none")
      .group(kGroup);
  table
      .boolean("staged_vars", false,
               "replicas compute with the values of one update before, of variable_update=parameter_server; on the CPU")
      .group(kGroup);
}

void declare_all_reduce_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "All-reduce";
  table
      .text("all_reduce_spec", std::nullopt,
            "algorithm, or algorithm#shards, or several by size in bytes: pscpu:32k:xring; collective, of "
            "variable_update=collective_all_reduce, is there")
      .group(kGroup)
      .pending(kAlgorithms)
      .choices = {"collective"};
  table.boolean("hierarchical_copy", false, "reduce within groups of devices first").group(kGroup).pending(kAlgorithms);
  table.choice("network_topology", "dgx1", {"dgx1", "gcp_v100"}, "which devices lead the groups of hierarchical_copy")
      .group(kGroup)
      .pending(kAlgorithms);
  table.integer("gradient_repacking", 0, "join all gradients and reduce them in this many parts; 0: as they come")
      .bounds(0)
      .group(kGroup)
      .pending(kAlgorithms);
  table.boolean("compact_gradient_transfer", true, "in 16-bit training, reduce gradients in 16 bits")
      .group(kGroup)
      .translated("gradients are exchanged in fp32 either way: 16-bit training has fp32 gradients here");
  table.integer("agg_small_grads_max_bytes", 0, "join consecutive gradients smaller than this; 0: none")
      .group(kGroup)
      .pending(kAlgorithms);
  table.integer("agg_small_grads_max_group", 10, "most gradients joined so").group(kGroup).pending(kAlgorithms);
  table.integer("allreduce_merge_scope", 1, "size of the groups that share a name in the graph")
      .group(kGroup)
      .warned("names do not influence how gradients are joined; gradient_repacking and agg_small_grads_max_bytes do");
}

void declare_process_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Processes";
  table.choice("job_name", "", {"ps", "worker", "controller", ""}, "what this process is")
      .group(kGroup)
      .pending(kProcesses);
  table.text("ps_hosts", "", "host:port of each parameter server, comma separated").group(kGroup).pending(kProcesses);
  table.text("worker_hosts", "", "host:port of each worker, comma separated").group(kGroup).pending(kProcesses);
  table.text("controller_host", std::nullopt, "host:port of the controller").group(kGroup).pending(kProcesses);
  table.integer("task_index", 0, "which of the processes of its job this is")
      .group(kGroup)
      .translated("it counts with job_name alone, which is not available yet");
  table.boolean("cross_replica_sync", true, "workers wait for each other at every step")
      .group(kGroup)
      .pending(kProcesses);
  table.text("horovod_device", "", "where horovod reduces: gpu, by NCCL, or cpu, by MPI; empty: where the model runs")
      .group(kGroup);
  table.choice("horovod_reduce", "average", {"average", "sum"}, "how horovod joins the gradients of processes")
      .group(kGroup);
  table
      .real("rank_deadline", std::nullopt,
            "seconds that processes wait for one that has died, is frozen or does not go on; default 120")
      .bounds(0.5, 1e6)
      .group(kGroup);
  table.real("rank_start_deadline", std::nullopt, "the same before the first step is done; default 600")
      .bounds(0.5, 1e6)
      .group(kGroup);
  table
      .text(
          "listen_address", "",
          "address of this machine at which rank 0 meets the processes of other machines; empty: those of one machine "
          "meet on loopback")
      .group(kGroup);
  table.text("server_protocol", "grpc", "protocol of TensorFlow's servers")
      .group(kGroup)
      .warned("GPUs talk by NCCL, processes on CPUs by MPI, replicas of one process by their common memory");
}

}  // namespace

void declare_flags(core::FlagTable& table) {
  declare_replica_flags(table);
  declare_all_reduce_flags(table);
  declare_process_flags(table);
}

}  // namespace trainyard::parallel
