// NCCL itself, by nccl.h, loaded when it is first asked for: the copy that LibTorch's CUDA library has loaded. Its
// communicators do not block ("nonblocking", NCCL >= 2.14), so that every wait is ours.
#include "trainyard/parallel/collectives/nccl/nccl_library.h"

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/cuda/check_cuda.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode, core::cuda::check_cuda;

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 18, 0);

struct Functions {
  explicit Functions(void* library) {
    load(library, "ncclGetVersion", get_version);
    load(library, "ncclGetUniqueId", get_unique_id);
    load(library, "ncclCommInitRankConfig", init_rank);
    load(library, "ncclCommFinalize", finalize);
    load(library, "ncclCommDestroy", destroy);
    load(library, "ncclCommAbort", abort);
    load(library, "ncclCommGetAsyncError", async_error);
    load(library, "ncclGetErrorString", error_string);
    load(library, "ncclGetLastError", last_error);
    load(library, "ncclAllReduce", all_reduce);
    load(library, "ncclBroadcast", broadcast);
    load(library, "ncclAllGather", all_gather);
    load(library, "ncclGroupStart", group_start);
    load(library, "ncclGroupEnd", group_end);
  }

  // nullptr: of no communicator.
  std::string describe(ncclResult_t result, ncclComm_t comm) const {
    const char* more = last_error(comm);
    const std::string detail = more == nullptr ? "" : more;
    return fmt::format("{}{}{}", error_string(result), detail.empty() ? "" : ": ", detail);
  }

  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;

 private:
  template <typename Function>
  static void load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr) return;
    throw Error(ErrorCode::kUnsupported, {.problem = "NCCL lacks a function",
                                          .where = kFile,
                                          .expected = name,
                                          .remedy = "install NCCL 2.18 or newer (nvidia-nccl-cu13)"});
  }
};

ncclDataType_t data_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    default:
      throw Error(ErrorCode::kInternal, std::string("NCCL does not reduce ") + c10::toString(type));
  }
}

ncclRedOp_t operation(core::ReduceOp op) {
  switch (op) {
    case core::ReduceOp::kSum:
      return ncclSum;
    case core::ReduceOp::kMean:
      return ncclAvg;
    case core::ReduceOp::kMax:
      return ncclMax;
    case core::ReduceOp::kMin:
      return ncclMin;
  }
  return ncclSum;
}

class CudaMark : public DeviceMark {
 public:
  explicit CudaMark(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  bool reached() override {
    try {
      return event_.query();
    } catch (const c10::Error& error) {
      throw Error(ErrorCode::kInternal, {.problem = "a GPU has failed", .actual = error.what_without_backtrace()});
    }
  }

 private:
  c10::cuda::CUDAEvent event_;
};

class CudaNcclRank : public NcclRank {
 public:
  CudaNcclRank(std::shared_ptr<const Functions> functions, at::Device device)
      : functions_(std::move(functions)), device_(device) {}
  CudaNcclRank(const CudaNcclRank&) = delete;
  ~CudaNcclRank() override {
    if (comm == nullptr || aborted_) return;
    const c10::cuda::CUDAGuard guard(device_);
    functions_->destroy(comm);
  }

  NcclAnswer all_reduce(void* data, int64_t count, at::ScalarType type, core::ReduceOp op) override {
    const c10::cuda::CUDAGuard guard(device_);
    return answer(
        functions_->all_reduce(data, data, static_cast<size_t>(count), data_type(type), operation(op), comm, stream()));
  }
  NcclAnswer broadcast(void* data, int64_t bytes, int root) override {
    const c10::cuda::CUDAGuard guard(device_);
    return answer(functions_->broadcast(data, data, static_cast<size_t>(bytes), ncclUint8, root, comm, stream()));
  }
  NcclAnswer all_gather(const void* own, void* all, int64_t bytes) override {
    const c10::cuda::CUDAGuard guard(device_);
    return answer(functions_->all_gather(own, all, static_cast<size_t>(bytes), ncclUint8, comm, stream()));
  }

  NcclAnswer state() override {
    ncclResult_t of_comm = ncclSuccess;
    const ncclResult_t result = functions_->async_error(comm, &of_comm);
    return answer(result == ncclSuccess ? of_comm : result);
  }
  NcclAnswer finish() override {
    const c10::cuda::CUDAGuard guard(device_);
    return answer(functions_->finalize(comm));
  }
  void abort() override {
    aborted_ = true;
    const c10::cuda::CUDAGuard guard(device_);
    functions_->abort(comm);
  }

  bool recording() override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream(), &status), "whether a stream is recorded");
    return status != cudaStreamCaptureStatusNone;
  }
  std::unique_ptr<DeviceMark> mark() override { return std::make_unique<CudaMark>(current()); }

  ncclComm_t comm = nullptr;

 private:
  c10::cuda::CUDAStream current() const { return c10::cuda::getCurrentCUDAStream(device_.index()); }
  cudaStream_t stream() const { return current().stream(); }
  NcclAnswer answer(ncclResult_t result) const {
    if (result == ncclSuccess) return {};
    if (result == ncclInProgress) return {NcclAnswer::State::kInProgress};
    return {NcclAnswer::State::kFailed, functions_->describe(result, comm)};
  }

  const std::shared_ptr<const Functions> functions_;
  const at::Device device_;
  bool aborted_ = false;
};

class CudaNcclLibrary : public NcclLibrary {
 public:
  explicit CudaNcclLibrary(std::shared_ptr<const Functions> functions) : functions_(std::move(functions)) {
    check(functions_->get_version(&version_), "version");
    if (version_ >= kOldest) return;
    throw Error(ErrorCode::kUnsupported, {.problem = "NCCL is too old",
                                          .where = kFile,
                                          .expected = "2.18 or newer",
                                          .actual = version(),
                                          .remedy = "install nvidia-nccl-cu13"});
  }

  std::string version() override {
    return fmt::format("{}.{}.{}", version_ / 10000, version_ / 100 % 100, version_ % 100);
  }

  std::string unique_id() override {
    ncclUniqueId id;
    check(functions_->get_unique_id(&id), "a communicator's id");
    return {id.internal, sizeof(id.internal)};
  }

  std::vector<std::unique_ptr<NcclRank>> join(const std::string& id, int size, int first_rank,
                                              std::span<const at::Device> devices) override {
    ncclUniqueId unique;
    if (id.size() != sizeof(unique.internal)) {
      throw Error(ErrorCode::kInternal, {.problem = "the id of a NCCL communicator is not one",
                                         .expected = fmt::format("{} bytes", sizeof(unique.internal)),
                                         .actual = std::to_string(id.size())});
    }
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    std::vector<std::unique_ptr<CudaNcclRank>> ranks;
    check(functions_->group_start(), "joining");
    for (size_t i = 0; i < devices.size(); ++i) {
      ranks.push_back(std::make_unique<CudaNcclRank>(functions_, devices[i]));
      const c10::cuda::CUDAGuard guard(devices[i]);
      check(functions_->init_rank(&ranks.back()->comm, size, unique, first_rank + static_cast<int>(i), &config),
            "joining");
    }
    check(functions_->group_end(), "joining");
    return {std::make_move_iterator(ranks.begin()), std::make_move_iterator(ranks.end())};
  }

  // The kernel's run, and where the GPU is plugged in.
  std::string identity(at::Device device) override {
    std::array<char, 64> bus{};
    check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device.index()), "place of the GPU");
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    return boot + " " + bus.data();
  }

 private:
  void check(ncclResult_t result, const char* operation) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw Error(ErrorCode::kInternal, {.problem = "a call of NCCL failed",
                                       .where = operation,
                                       .actual = functions_->describe(result, nullptr),
                                       .remedy = "NCCL_DEBUG=WARN says more"});
  }

  const std::shared_ptr<const Functions> functions_;
  int version_ = 0;
};

const core::Registration<std::function<std::shared_ptr<NcclLibrary>()>> kNccl(
    nccl_libraries(), "nccl", []() -> std::shared_ptr<NcclLibrary> {
      void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);  // for as long as the process lives
      if (library == nullptr) {
        throw Error(ErrorCode::kUnsupported, {.problem = "NCCL cannot be loaded",
                                              .where = kFile,
                                              .actual = dlerror(),
                                              .remedy = "install nvidia-nccl-cu13 beside LibTorch"});
      }
      return std::make_shared<CudaNcclLibrary>(std::make_shared<const Functions>(library));
    });

}  // namespace
}  // namespace trainyard::parallel
