// --graph_file and --partitioned_graph_file_prefix: writes a model's graph to a file, as text for a name that ends in
// txt, else as ONNX with the weights.
#pragma once

#include <string>

#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::frontends {

// Prints "Writing GraphDef as text to PATH", or "as binary", and writes the graph of the main output. `what` is
// "GraphDef" or "partitioned GraphDef". Makes the folder, and replaces a file. Throws kUnsupported for ONNX when
// parameters are on an accelerator or a layer has no ONNX form, and kIo, kNoSpace.
void write_graph_file(const std::string& path, const nn::Graph& graph, const nn::ParameterSet& parameters,
                      const std::string& what, const Print& print);

// Returns the file of a device by tf_cnn_benchmarks' rule: "out/part_cpu_0.txt" of "out/part.txt" and "/cpu:0".
std::string partition_path(const std::string& prefix, const std::string& device);

}  // namespace trainyard::frontends
