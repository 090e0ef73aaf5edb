// Processes that MPI starts and that exchange tensors, for tests/processes/processes_test.py and for measuring.
//
//   mpirun -n 2 trainyard_exchange_check sums 2,2       rank 0 prints a digest of sums over 2 + 2 replicas
//   mpirun -n 2 trainyard_exchange_check disagree 1,1   each process prints the error of calls that differ
//   mpirun -n 2 trainyard_exchange_check time 1,1 100   rank 0 prints how long a sum of 100 MiB takes
//   mpirun -n 2 trainyard_exchange_check descriptors 1,1   each process prints what a group leaves open and in /dev/shm
//
// Another argument, "messages", has them exchange messages where they would share memory, and "spec=xring#2" has them
// use the algorithms of an all_reduce_spec.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/collectives/process_communicator.h"

namespace {

using namespace trainyard;
using Communicators = std::vector<std::unique_ptr<core::Communicator>>;

constexpr auto kDeadline = std::chrono::seconds(60);

int number_of(const std::string& list, int process) {
  size_t at = 0;
  for (; process > 0; --process) at = list.find(',', at) + 1;
  return std::atoi(list.c_str() + at);
}

void on_replicas(Communicators& communicators, const std::function<void(core::Communicator&)>& body) {
  std::vector<core::Thread> threads;
  for (const auto& communicator : communicators) {
    threads.emplace_back(core::ThreadOptions{.name = "replica"}, [&body, own = communicator.get()] { body(*own); });
  }
  for (core::Thread& thread : threads) thread.join();
}

at::Tensor values_of(int rank, int64_t elements) {
  core::RandomStream stream(7, "values", {static_cast<uint64_t>(rank)});
  at::Tensor values = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) values.mutable_data_ptr<float>()[i] = 10 * stream.normal();
  return values;
}

// FNV-1a.
void add_to_digest(uint64_t& digest, const at::Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) digest = (digest ^ bytes[i]) * 0x100000001b3;
}

void sums(Communicators& communicators) {
  std::vector<uint64_t> digests(communicators.size(), 0xcbf29ce484222325);
  const int first = communicators[0]->rank();
  on_replicas(communicators, [&](core::Communicator& self) {
    uint64_t& digest = digests[static_cast<size_t>(self.rank() - first)];
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{1'000'003}}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        at::Tensor tensor = values_of(self.rank(), elements).to(type);
        self.all_reduce(tensor, core::ReduceOp::kMean);
        add_to_digest(digest, tensor);
        self.broadcast(tensor, self.size() - 1);
        add_to_digest(digest, tensor);
      }
      for (const at::Tensor& each : self.all_gather(values_of(self.rank(), elements / 10))) {
        add_to_digest(digest, each);
      }
    }
    self.barrier();
  });
  for (const uint64_t digest : digests) std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
}

void disagree(Communicators& communicators) {
  on_replicas(communicators, [](core::Communicator& self) {
    try {
      self.all_reduce(at::full({self.rank() == 1 ? 7 : 500'000}, 1.0F), core::ReduceOp::kSum);
      std::printf("rank %d went on\n", self.rank());
    } catch (const core::Error& error) {
      std::printf("%s", fmt::format("rank {}: {}\n", self.rank(), error.what()).c_str());
    }
  });
}

// Seconds of a call, between ranks that begin together.
double time_of(core::Communicator& self, int times, const std::function<void()>& work) {
  work();
  self.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

void measure(Communicators& communicators, int mebibytes) {
  on_replicas(communicators, [&](core::Communicator& self) {
    const auto tensor_of = [&](int64_t elements, bool exchanged) {
      at::Tensor tensor = exchanged ? self.new_exchanged(elements, at::kFloat) : at::Tensor();
      return tensor.defined() ? tensor : at::full({elements}, 1.0F);
    };
    for (const bool exchanged : {true, false}) {
      for (const int64_t elements : {int64_t{256}, int64_t{16'384}, int64_t{mebibytes} * 262'144}) {
        at::Tensor tensor = tensor_of(elements, exchanged), copy = at::full({elements}, 1.0F);
        const int times = elements > 100'000 ? 10 : 2000;
        const double sum = time_of(self, times, [&] { self.all_reduce(tensor, core::ReduceOp::kMean); });
        const double plain = time_of(
            self, times, [&] { std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes()); });
        self.barrier();
        if (self.rank() != 0) continue;
        std::printf("%7ld KiB %s: %10.1f us, a copy by each rank %10.1f us\n", elements / 256,
                    exchanged ? "of the exchange's memory" : "of any memory           ", 1e6 * sum, 1e6 * plain);
      }
    }
  });
}

// Prints which descriptors of shared memory are open, and which files of /dev/shm are mapped that are not MPI's.
void print_descriptors(const char* when) {
  std::string text = when;
  for (const auto& link : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(link, gone).string();
    if (!gone && target.find("memfd") != std::string::npos) text += " " + target;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find("/dev/shm/");
    if (path != std::string::npos && line.find("vader") == std::string::npos) text += " " + line.substr(path);
  }
  std::printf("%s\n", text.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  const std::string task = count > 1 ? arguments[1] : "", replicas = count > 2 ? arguments[2] : "1";
  const std::string last = arguments[count - 1];
  try {
    const auto exchange = parallel::start_mpi(kDeadline);
    if (task == "descriptors") print_descriptors("before:");
    Communicators communicators = parallel::make_process_communicators(
        exchange, number_of(replicas, exchange->process()), kDeadline,
        parallel::AllReduceOptions{.spec = last.starts_with("spec=") ? last.substr(5) : ""}.choice(),
        last == "messages" ? parallel::HostExchange::kMessages : parallel::HostExchange::kSharedMemory);
    if (task == "sums") sums(communicators);
    if (task == "disagree") disagree(communicators);
    if (task == "descriptors") {
      sums(communicators);
      print_descriptors("after:");
    }
    if (task == "time") {
      measure(communicators, count > 3 ? std::atoi(arguments[3]) : 100);
      const parallel::Traffic sent = exchange->sent();
      if (exchange->process() == 0) std::printf("sent %ld messages, %ld bytes\n", sent.messages, sent.bytes);
    }
    if (task != "disagree") exchange->finish(kDeadline);
    std::fflush(stdout);
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
