// Open MPI itself, by its mpi.h, loaded when it is first asked for: a process that no launcher has started pays nothing
// for it. Its constants are addresses of its variables, so they are looked up, too.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/mpi/mpi_library.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;

constexpr const char* kOpenMpiFile = "libmpi.so.40";

struct OpenMpi {
  OpenMpi() {
    // Its plugins look for its names among those of the whole process.
    void* const library = dlopen(kOpenMpiFile, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      throw Error(ErrorCode::kUnsupported, {.problem = "Open MPI cannot be loaded",
                                            .where = kOpenMpiFile,
                                            .actual = why == nullptr ? "" : why,
                                            .remedy = "install it: apt-get install openmpi-bin"});
    }
    load(library, "MPI_Init_thread", init_thread);
    load(library, "MPI_Finalize", finalize);
    load(library, "MPI_Comm_rank", comm_rank);
    load(library, "MPI_Comm_size", comm_size);
    load(library, "MPI_Comm_set_errhandler", set_errhandler);
    load(library, "MPI_Isend", isend);
    load(library, "MPI_Irecv", irecv);
    load(library, "MPI_Test", test);
    load(library, "MPI_Barrier", barrier);
    load(library, "MPI_Allreduce", allreduce);
    load(library, "MPI_Error_string", error_string);
    load(library, "MPI_Get_library_version", library_version);
    load(library, "ompi_mpi_comm_world", world);
    load(library, "ompi_mpi_byte", byte);
    load(library, "ompi_mpi_float", float_number);
    load(library, "ompi_mpi_op_sum", sum);
    load(library, "ompi_mpi_errors_return", errors_return);
  }

  void check(int result, const char* operation) const {
    if (result == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    error_string(result, text.data(), &length);
    throw Error(ErrorCode::kPeerFailed, {.problem = "the exchange between processes has failed",
                                         .where = operation,
                                         .actual = text.data(),
                                         .remedy = "look at what the other processes said last"});
  }

  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Comm_set_errhandler) set_errhandler;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Irecv) irecv;
  decltype(&MPI_Test) test;
  decltype(&MPI_Barrier) barrier;
  decltype(&MPI_Allreduce) allreduce;
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Get_library_version) library_version;
  MPI_Comm world;
  MPI_Datatype byte, float_number;
  MPI_Op sum;
  MPI_Errhandler errors_return;

 private:
  template <typename Symbol>
  static void load(void* library, const char* name, Symbol& symbol) {
    symbol = reinterpret_cast<Symbol>(dlsym(library, name));
    if (symbol != nullptr) return;
    throw Error(ErrorCode::kUnsupported, {.problem = "Open MPI lacks a function",
                                          .where = kOpenMpiFile,
                                          .expected = name,
                                          .remedy = "install Open MPI 4 or newer"});
  }
};

class MpiTransfer final : public Transfer {
 public:
  explicit MpiTransfer(const OpenMpi& mpi) : mpi_(mpi) {}
  MPI_Request* request() { return &request_; }

  bool done() override {
    int is_done = 0;
    mpi_.check(mpi_.test(&request_, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
    return is_done != 0;
  }

 private:
  const OpenMpi& mpi_;
  MPI_Request request_ = nullptr;
};

class MpiTransport final : public MessageTransport {
 public:
  explicit MpiTransport(std::string& version) {
    int level = 0;
    mpi_.check(mpi_.init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    mpi_.check(mpi_.set_errhandler(mpi_.world, mpi_.errors_return), "MPI_Comm_set_errhandler");
    mpi_.check(mpi_.comm_rank(mpi_.world, &process_), "MPI_Comm_rank");
    mpi_.check(mpi_.comm_size(mpi_.world, &processes_), "MPI_Comm_size");
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    mpi_.check(mpi_.library_version(text.data(), &length), "MPI_Get_library_version");
    version = text.data();
    version = version.substr(0, version.find(','));
  }

  std::unique_ptr<Transfer> send(int to, int tag, const void* data, size_t bytes) override {
    auto transfer = std::make_unique<MpiTransfer>(mpi_);
    mpi_.check(mpi_.isend(data, static_cast<int>(bytes), mpi_.byte, to, tag, mpi_.world, transfer->request()),
               "MPI_Isend");
    return transfer;
  }

  std::unique_ptr<Transfer> receive(int from, int tag, void* data, size_t bytes) override {
    auto transfer = std::make_unique<MpiTransfer>(mpi_);
    mpi_.check(mpi_.irecv(data, static_cast<int>(bytes), mpi_.byte, from, tag, mpi_.world, transfer->request()),
               "MPI_Irecv");
    return transfer;
  }

  void barrier() override { mpi_.check(mpi_.barrier(mpi_.world), "MPI_Barrier"); }
  void all_reduce_sum(float* values, int64_t elements) override {
    mpi_.check(
        mpi_.allreduce(MPI_IN_PLACE, values, static_cast<int>(elements), mpi_.float_number, mpi_.sum, mpi_.world),
        "MPI_Allreduce");
  }

  void finish() override { mpi_.check(mpi_.finalize(), "MPI_Finalize"); }

 private:
  const OpenMpi mpi_;
};

const core::Registration kOpenMpi(mpi_libraries(), "openmpi",
                                  [](std::string& version) { return std::make_unique<MpiTransport>(version); });

}  // namespace
}  // namespace trainyard::parallel
