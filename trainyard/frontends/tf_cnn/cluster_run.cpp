#include "trainyard/frontends/tf_cnn/cluster_run.h"

#include <optional>
#include <ostream>
#include <regex>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;

// What a worker or the controller says in a meeting of theirs.
enum class Said : int64_t { kStep, kEnd, kStop };

std::string end_text(const RunStatistics& statistics, const std::string& lines) {
  core::BodyWriter body;
  body.number(static_cast<int64_t>(Said::kEnd)).text(lines).number(statistics.num_workers).number(statistics.num_steps);
  body.real(statistics.average_wall_time).real(statistics.images_per_sec);
  body.number(statistics.last_average_loss ? 1 : 0).real(statistics.last_average_loss.value_or(0));
  body.number(statistics.stopped_by_signal ? 1 : 0);
  return body.take();
}

RunStatistics read_statistics(core::BodyReader& body) {
  RunStatistics statistics{.num_workers = body.number(), .num_steps = body.number()};
  statistics.average_wall_time = body.real();
  statistics.images_per_sec = body.real();
  const bool has_loss = body.number() != 0;
  const double loss = body.real();
  if (has_loss) statistics.last_average_loss = loss;
  statistics.stopped_by_signal = body.number() != 0;
  return statistics;
}

// The controller is rank 0 of a group of its own, worker i rank i + 1.
std::unique_ptr<parallel::ProcessGroup> meet_controller(const DeviceOptions& options, int rank) {
  const HostAddress address = parse_host(options.cluster.controller_host, "controller_host");
  return std::make_unique<parallel::ProcessGroup>(
      parallel::ProcessRank{.rank = rank,
                            .size = static_cast<int>(options.cluster.worker_hosts.size()) + 1,
                            .local_rank = 0,
                            .master_address = address.host,
                            .master_port = address.port},
      parallel::ProcessGroupOptions{.deadlines = controller_deadlines(options)});
}

// Returns a text in which ranks of that group have the names of their processes.
std::string with_names(const std::string& text) {
  static const std::regex rank("\\brank (\\d+)\\b");
  std::string named;
  auto from = text.begin();
  for (std::sregex_iterator match(text.begin(), text.end(), rank), end; match != end; ++match) {
    named.append(from, text.begin() + match->position());
    const std::string number = (*match)[1];
    // A longer number is no rank.
    named += number == "0"       ? "the controller"
             : number.size() > 6 ? match->str()
                                 : fmt::format("worker {}", std::stoi(number) - 1);
    from = text.begin() + match->position() + match->length();
  }
  return named.append(from, text.end());
}

Error with_names(const Error& error) {
  core::ErrorDetail detail = error.detail();
  for (std::string* text : {&detail.problem, &detail.where, &detail.expected, &detail.actual, &detail.remedy})
    *text = with_names(*text);
  return {error.code(), detail};
}

// Calls `work`, whose errors name processes instead of ranks.
template <typename Work>
auto named(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw with_names(error);
  }
}

// Ends the training for all workers when this process is asked to stop.
class ServerStop {
 public:
  ServerStop(parallel::ParameterServer& server, const core::StopToken& stop, const std::string& name)
      : thread_({.name = "stop"}, [this, &server, stop, name] {
          constexpr auto kTurn = std::chrono::milliseconds(50);
          while (!ended_.stop_requested()) {
            if (stop.wait_for(kTurn)) {
              server.fail(Error(ErrorCode::kCancelled,
                                {.problem = fmt::format("{} was asked to stop", name), .actual = stop.message()}));
              return;
            }
          }
        }) {}
  ~ServerStop() { end_.request_stop(core::StopReason::kRequested, "the server has ended"); }

 private:
  core::StopSource end_;
  const core::StopToken ended_ = end_.token();
  core::Thread thread_;  // last: it uses the above
};

}  // namespace

RunStatistics run_parameter_server(const TfCnnOptions& options, std::ostream& out, const core::StopToken& stop) {
  options.validate();
  check_cluster(options.device);
  check_served_update(options);
  const ClusterOptions& cluster = options.device.cluster;
  core::log::set_origin(fmt::format("ps {}", cluster.task_index));
  parallel::ParameterServer server(parameter_server_options(options.device, options.threads.intra_op_threads),
                                   {make_optimizer(options)});
  fmt::print(out, "Running parameter server {}\n", cluster.task_index);
  out.flush();
  const ServerStop ends(server, stop, cluster.process_name());
  server.wait();
  const parallel::ParameterServer::Status status = server.status();
  core::log::info("all workers have left: {} updates of {} elements", status.updates, status.end - status.begin);
  return {.num_workers = static_cast<int64_t>(cluster.worker_hosts.size()),
          .stopped_by_signal = stop.reason() == core::StopReason::kSignal};
}

RunStatistics run_controller(const TfCnnOptions& options, std::ostream& out, const core::StopToken& stop) {
  options.validate();
  check_cluster(options.device);
  core::log::set_origin("controller");
  return named([&] {
    const auto group = meet_controller(options.device, 0);
    RunStatistics statistics;
    for (int64_t step = -1;; ++step) {
      group->progress("step", step);
      const Said wish = stop.stop_requested() ? Said::kStop : Said::kStep;
      const std::vector<std::string> said =
          group->gather("a step of all workers", core::BodyWriter().number(static_cast<int64_t>(wish)).take());
      core::BodyReader worker(said.at(1));
      const auto what = static_cast<Said>(worker.number());
      out << worker.text() << std::flush;
      if (what != Said::kEnd) continue;
      statistics = read_statistics(worker);
      break;
    }
    group->progress("exit");
    group->leave();
    if (const auto error = group->reported()) throw Error(*error);
    return statistics;
  });
}

ControllerLink::ControllerLink(const DeviceOptions& options) : prints_(options.cluster.task_index == 0) {
  if (!prints_) lines_.setstate(std::ios::badbit);  // nothing is kept
  named([&] { group_ = meet_controller(options, static_cast<int>(options.cluster.task_index) + 1); });
}

ControllerLink::~ControllerLink() = default;

std::string ControllerLink::take_lines() {
  if (!prints_) return "";
  std::string lines = std::move(lines_).str();
  lines_.str("");
  return lines;
}

bool ControllerLink::report(int64_t step) {
  return named([&] {
    group_->progress("step", step);
    const std::vector<std::string> said =
        group_->gather("a step of all workers",
                       core::BodyWriter().number(static_cast<int64_t>(Said::kStep)).text(take_lines()).take());
    return static_cast<Said>(core::BodyReader(said.at(0)).number()) == Said::kStop;
  });
}

void ControllerLink::end(const RunStatistics& statistics) {
  named([&] {
    static_cast<void>(group_->gather("a step of all workers", end_text(statistics, take_lines())));
    group_->progress("exit");
    group_->leave();
    if (const auto error = group_->reported()) throw Error(*error);
  });
}

void ControllerLink::fail(const Error& error) {
  // Among the workers a rank is a worker's own number.
  static const std::regex rank("\\brank (\\d+)");
  core::ErrorDetail detail = error.detail();
  for (std::string* text : {&detail.problem, &detail.where, &detail.expected, &detail.actual, &detail.remedy}) {
    *text = std::regex_replace(*text, rank, "worker $1");
  }
  group_->report({error.code(), detail});
}

void ControllerReport::before_train(train::Trainer&) {
  static_cast<void>(link_->report(-1));
}

void ControllerReport::after_step(train::Trainer& trainer, const train::StepView& view) {
  if (link_->report(view.own_step)) trainer.stop("the controller was asked to stop");
}

}  // namespace trainyard::frontends
