// The order of additions is TensorFlow's, bit for bit: tools/golden/all_reduce.py has run its algorithms on the same
// values.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::all_reduce_order_test {
namespace {

// values() of all_reduce.py.
at::Tensor values_of(int rank, int64_t elements) {
  at::Tensor values = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) {
    const auto whole = static_cast<float>((i * 7919 + rank * 104729 + 17) % 2003 - 1001);
    values.mutable_data_ptr<float>()[i] = whole / 7.0F * std::exp2(static_cast<float>((i + 3 * rank) % 5 - 2));
  }
  return values;
}

std::vector<at::Tensor> values_of_all(int ranks, int64_t elements) {
  std::vector<at::Tensor> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(values_of(rank, elements));
  return values;
}

// Algorithm, machines, replicas of each.
using Case = std::tuple<std::string, int, int>;

const std::map<Case, std::vector<at::Tensor>>& sums_of_tensorflow() {
  static const auto all = [] {
    std::map<Case, std::vector<at::Tensor>> sums;
    std::ifstream file("trainyard/parallel/testdata/all_reduce.txt");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("#")) continue;
      std::istringstream words(line);
      std::string algorithm;
      int machines = 0, replicas = 0;
      int64_t elements = 0;
      words >> algorithm >> machines >> replicas >> elements;
      at::Tensor sum = at::empty({elements}, at::kInt);
      for (int64_t i = 0; i < elements; ++i) {
        uint32_t bits = 0;
        words >> std::hex >> bits;
        sum.mutable_data_ptr<int32_t>()[i] = static_cast<int32_t>(bits);
      }
      sums[{algorithm, machines, replicas}].push_back(sum.view(at::kFloat));
    }
    return sums;
  }();
  return all;
}

void expect_sums(const Communicators& group, const std::vector<at::Tensor>& sums) {
  for (const at::Tensor& sum : sums) {
    const std::vector<at::Tensor> results =
        all_reduced(group, values_of_all(static_cast<int>(group.size()), sum.numel()));
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_TRUE(have_equal_bits(results[rank], sum)) << sum.numel() << " elements, rank " << rank;
    }
  }
}

TEST(AllReduceOrder, IsThatOfTensorFlowOverThreads) {
  int cases = 0;
  for (const auto& [name, sums] : sums_of_tensorflow()) {
    const auto& [algorithm, machines, replicas] = name;
    if (machines > 1) continue;
    SCOPED_TRACE(algorithm + " of " + std::to_string(replicas));
    expect_sums(make_thread_communicators(replicas, all_reduce_options(algorithm).choice()), sums);
    ++cases;
  }
  EXPECT_GT(cases, 20);
}

TEST(AllReduceOrder, IsThatOfTensorFlowOverMachines) {
  int cases = 0;
  for (const auto& [name, sums] : sums_of_tensorflow()) {
    const auto& [algorithm, machines, replicas] = name;
    if (machines == 1) continue;
    const AlgorithmChoice choose = all_reduce_options(algorithm).choice();
    // A process for all replicas of a machine, and one for each.
    for (const int processes : {1, replicas}) {
      SCOPED_TRACE(algorithm + " of " + std::to_string(machines) + " x " + std::to_string(replicas) + ", " +
                   std::to_string(processes) + " processes a machine");
      std::vector<int> replicas_of;
      std::vector<std::string> machine_of;
      for (int p = 0; p < machines * processes; ++p) {
        replicas_of.push_back(replicas / processes);
        machine_of.push_back("machine " + std::to_string(p / processes));
      }
      expect_sums(connect(make_engines(machines * processes), replicas_of, kLongDeadline, choose,
                          HostExchange::kMessages, machine_of),
                  sums);
      ++cases;
    }
  }
  EXPECT_GT(cases, 16);
}

// The values tell orders apart: with four replicas, each algorithm gives bits of its own.
TEST(AllReduceOrder, DiffersBetweenAlgorithms) {
  const auto& sums = sums_of_tensorflow();
  const auto at_96 = [&](const std::string& algorithm) { return sums.at({algorithm, 1, 4}).back(); };
  const std::vector<at::Tensor> four = {at_96("ring"), at_96("rechd"), at_96("pscpu/pscpu"), at_96("xring#2")};
  for (size_t i = 0; i < four.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(have_equal_bits(four[i], four[j])) << i << " " << j;
  }
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_order_test
