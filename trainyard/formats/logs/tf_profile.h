// Writes the costs of operations as a tensorflow.tfprof.ProfileProto (tensorflow/core/profiler/tfprof_log.proto), the
// content of tf_cnn_benchmarks' --tfprof_file, which TensorFlow's profiler reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainyard::formats {

// One run of an operation.
struct TfExecution {
  std::string device;    // "/job:localhost/replica:0/task:0/device:CPU:0"
  int64_t start_us = 0;  // since the Unix epoch
  int64_t duration_us = 0;
};

struct TfProfileNode {
  int64_t id = 0;  // unique in the profile
  std::string name, op;
  std::vector<int64_t> inputs;                             // ids
  std::vector<int64_t> shape;                              // of the output, with the batch
  std::string device;                                      // of its first run; empty: it did not run
  int64_t float_ops = 0;                                   // a run
  std::map<int64_t, std::vector<TfExecution>> executions;  // by step
};

struct TfProfile {
  std::vector<TfProfileNode> nodes;
  std::vector<int64_t> steps;
};

// Returns the serialized message. Names that are not UTF-8 have other bytes replaced by '?', since protobuf refuses
// them.
std::string tf_profile_proto(const TfProfile& profile);

}  // namespace trainyard::formats
