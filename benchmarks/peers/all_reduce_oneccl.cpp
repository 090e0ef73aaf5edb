// Times oneCCL's all-reduce; prints one JSON line (exchange_sides.py says what it means).
//
// usage: mpiexec -n RANKS all_reduce_oneccl ADDRESS_FILE BYTES:TIMES...
// ADDRESS_FILE: a file that does not exist, through which rank 0 tells its address.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include <oneapi/ccl.hpp>

namespace {

constexpr double kSecondsForEach = 1.5;
constexpr int kLeastTimes = 5;

int from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : -1;
}

ccl::shared_ptr_class<ccl::kvs> meet(int rank, const std::string& path) {
  if (rank == 0) {
    auto kvs = ccl::create_main_kvs();
    const ccl::kvs::address_type address = kvs->get_address();
    std::ofstream(path + ".part", std::ios::binary).write(address.data(), static_cast<std::streamsize>(address.size()));
    std::rename((path + ".part").c_str(), path.c_str());
    return kvs;
  }
  ccl::kvs::address_type address;
  for (std::ifstream file;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    file.open(path, std::ios::binary);
    if (file.read(address.data(), static_cast<std::streamsize>(address.size()))) break;
    file.clear();
  }
  return ccl::create_kvs(address);
}

class Ranks {
 public:
  explicit Ranks(ccl::communicator& communicator) : communicator_(communicator) {}

  void sum(std::vector<float>& values) {
    ccl::allreduce(values.data(), values.data(), values.size(), ccl::datatype::float32, ccl::reduction::sum,
                   communicator_)
        .wait();
  }

  // Returns the seconds of `times` all-reduces one after the other, of the slowest rank.
  double time_some(std::vector<float>& values, int times) {
    ccl::barrier(communicator_).wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) sum(values);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ccl::allreduce(&seconds, &seconds, 1, ccl::datatype::float64, ccl::reduction::max, communicator_).wait();
    return seconds;
  }

 private:
  ccl::communicator& communicator_;
};

}  // namespace

int main(int argc, char** argv) {
  const int rank = from_environment("PMI_RANK"), ranks = from_environment("PMI_SIZE");
  if (argc < 3 || rank < 0 || ranks < 1) return 2;
  ccl::init();
  auto communicator = ccl::create_communicator(ranks, rank, meet(rank, argv[1]));
  Ranks all(communicator);
  if (rank == 0) std::printf("{\"seconds\": {");
  for (int a = 2; a < argc; ++a) {
    size_t bytes = 0;
    int times = 0;
    if (std::sscanf(argv[a], "%zu:%d", &bytes, &times) != 2 || times < 1) return 2;
    std::vector<float> values(bytes / sizeof(float), 1.0F);
    all.sum(values);
    if (std::any_of(values.begin(), values.end(), [&](float value) { return value != static_cast<float>(ranks); }))
      return 3;
    std::fill(values.begin(), values.end(), 0.0F);  // zeros stay zeros, however often they are summed
    const double enough = kSecondsForEach / (all.time_some(values, 2) / 2 + 1e-9);
    if (enough < times) times = std::max(kLeastTimes, static_cast<int>(enough));
    std::vector<double> seconds;
    for (int i = 0; i < times; ++i) seconds.push_back(all.time_some(values, 1));
    std::sort(seconds.begin(), seconds.end());
    const double median = (seconds[(times - 1) / 2] + seconds[times / 2]) / 2,
                 together = all.time_some(values, times) / times;
    if (rank == 0) std::printf("%s\"%zu\": [%.9f, %.9f]", a > 2 ? ", " : "", bytes, median, together);
  }
  if (rank == 0) std::printf("}}\n");
  return 0;
}
