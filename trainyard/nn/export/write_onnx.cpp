#include "trainyard/nn/export/write_onnx.h"

#include "trainyard/formats/tensors/onnx.h"
#include "trainyard/nn/export/onnx_model.h"

namespace trainyard::nn {

void write_onnx(const std::string& path, const Graph& graph, const ParameterSet& set, const Quantization* quantization,
                core::FileSystem& files) {
  formats::write_onnx(path, to_onnx(graph, set, quantization), files);
}

}  // namespace trainyard::nn
