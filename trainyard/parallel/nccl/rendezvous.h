// Where processes that train together find each other, and agree before and beside what their GPUs exchange: a store of
// names and texts (c10d::TCPStore) that rank 0 serves. Launchers say which process is which by the variables that
// torchrun sets, too:
//
//   RANK, WORLD_SIZE           which of how many processes this is
//   LOCAL_RANK                 which of those on this machine
//   MASTER_ADDR, MASTER_PORT   where rank 0 serves the store
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

struct ProcessRank {
  int rank = 0, size = 1, local_rank = 0;
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  bool served_by_launcher = false;  // rank 0 need not serve: torchrun does (TORCHELASTIC_USE_AGENT_STORE)
};

using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> read_environment(const std::string& name);
// Reads those variables. Throws kInvalidArgument with the variable that is missing or makes no sense.
ProcessRank read_process_rank(const ReadVariable& read = read_environment);

// The meeting place. All ranks make the collective calls in the same order, each from one thread; any thread may make
// the others. A call that waits throws kTimeout after the deadline, with the ranks that it waited for, and kPeerFailed
// when another rank has reported an error or the store has gone.
class Rendezvous {
 public:
  // Collective. Throws kIo where rank 0 cannot serve at the port, kInvalidArgument where two processes have the same
  // rank or another number of ranks.
  Rendezvous(ProcessRank process, std::chrono::milliseconds deadline);
  // Does not wait for anybody, but lets the others hear when it comes before leave(). Rank 0's ends the store.
  ~Rendezvous();

  int rank() const { return process_.rank; }
  int size() const { return process_.size; }
  const ProcessRank& process() const { return process_; }

  // Collective: returns rank 0's text, which may hold any bytes. `what` is for messages, and the same on all ranks.
  std::string from_first(const std::string& what, const std::string& text);
  // Collective: returns each rank's text, in rank order.
  std::vector<std::string> gather(const std::string& what, const std::string& text);
  // The last collective. When rank 0's returns, nobody needs the store any more.
  void leave();

  // Leaves a note for rank 0, which it looks at when it likes. The last note stays.
  void tell_first(const std::string& text);
  std::optional<std::string> told();  // on rank 0

  // Ends what the others wait for, with this error. The first error stays.
  void report(const core::Error& error);
  // Returns the error that was reported, as kPeerFailed.
  std::optional<core::Error> reported();

 private:
  class Store;
  // Waits for the texts of `ranks`, each in a key of its own.
  std::vector<std::string> await(const std::string& name, const std::string& what, const std::vector<int>& ranks);
  void join();

  const ProcessRank process_;
  const std::chrono::milliseconds deadline_;
  int64_t calls_ = 0, paced_ = 0;
  bool left_ = false;
  std::deque<std::string> served_;  // by rank 0, and not deleted
  std::unique_ptr<Store> store_;
};

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
