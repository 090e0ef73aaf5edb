// A text as a graph. What is accepted is written and read again as the same graph.
#include <cstdlib>
#include <string_view>

#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/nn/graph/graph_json.h"
#include "trainyard/nn/graph/graph_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  formats::expect_value_or_error([&] {
    const nn::Graph graph = nn::parse_graph_json(text, "fuzz");
    const std::string written = nn::graph_json(graph);
    const nn::Graph again = nn::parse_graph_json(written, "again");
    if (nn::graph_json(again) != written || nn::graph_text(again) != nn::graph_text(graph)) std::abort();
  });
  return 0;
}
