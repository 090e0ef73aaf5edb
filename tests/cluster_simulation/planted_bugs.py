#!/usr/bin/env python3
"""The mistakes that the simulated cluster must find (docs/design/simulated_cluster.md).

Each is a change of one place of the library's sources: scenario, name, file, the text that is there, and what stands there
with the mistake, which PLANTED switches on. The simulation of planted mistakes is linked with copies of these files.

usage: planted_bugs.py --sources              prints the files, separated by semicolons
       planted_bugs.py --copy=FILE OUTPUT     writes a file with the mistakes in it
       planted_bugs.py --list=OUTPUT          writes a line "scenario TAB name" for each mistake
Run it in the root of the tree. Fails when a text does not occur exactly once.
"""
import pathlib
import sys

HUB = "trainyard/parallel/process_group/process_hub.cpp"
CONNECTION = "trainyard/parallel/process_group/group_connection.cpp"
LIVENESS = "trainyard/parallel/process_group/liveness.cpp"
FRAME = "trainyard/core/sockets/frame.cpp"
SOCKET = "trainyard/core/sockets/socket.cpp"
TCP = "trainyard/parallel/collectives/tcp/tcp_transport.cpp"
ENGINE = "trainyard/parallel/collectives/process_engine.cpp"
AGREEMENT = "trainyard/parallel/collectives/call_agreement.cpp"
COMMUNICATOR = "trainyard/parallel/collectives/process_communicator.cpp"
PLAN = "trainyard/parallel/collectives/plan/plan_run.cpp"
BUCKETS = "trainyard/parallel/collectives/gradient_buckets.cpp"
SERVICE = "trainyard/parallel/servers/server_service.cpp"
UPDATES = "trainyard/parallel/servers/server_updates.cpp"
SERVERS = "trainyard/parallel/servers/server_connections.cpp"
AGENT = "trainyard/parallel/launch/agent.cpp"
LISTENER = "trainyard/parallel/launch/agent_listener.cpp"
ATTEMPT = "trainyard/parallel/launch/attempt.cpp"
KEEPER = "trainyard/parallel/launch/keeper.cpp"
LAUNCH = "trainyard/parallel/launch/launch.cpp"
PROCESS = "trainyard/parallel/launch/process.cpp"
LINES = "trainyard/parallel/launch/lines.cpp"
TERMINAL = "trainyard/parallel/launch/terminal.cpp"
WRITER = "trainyard/train/checkpoint/checkpoint_writer.cpp"
STORE = "trainyard/train/checkpoint/checkpoint_store.cpp"

# Also copied, because they call functions of the files above, which the compiler may have put into them.
CALLERS = ["trainyard/parallel/process_group/process_group.cpp", "trainyard/parallel/collectives/collective_operation.cpp",
           "trainyard/parallel/servers/parameter_server.cpp", "trainyard/parallel/servers/server_group.cpp",
           "trainyard/parallel/launch/supervised_mpirun.cpp"]

MISTAKES = [
    # The process group.
    ("training", "a text of one rank is counted for two", HUB,
     "call.came[static_cast<size_t>(rank)] = true;",
     "call.came[static_cast<size_t>(rank)] = true;\n"
     "    if (PLANTED) call.came[static_cast<size_t>((rank + 1) % options_.size)] = true;"),
    ("training", "a rank of an earlier training is let in", HUB,
     "if (hello.token != options_.token)",
     "if (hello.token != options_.token && !(PLANTED))"),
    ("training", "the hub judges by the calendar's clock", HUB,
     "if (const auto error = liveness_.judge(now)) fail(*error);",
     "static const auto began = HubClock::now().time_since_epoch() - std::chrono::system_clock::now().time_since_epoch();\n"
     "        const auto calendar = HubClock::time_point(std::chrono::system_clock::now().time_since_epoch() + began);\n"
     "        if (const auto error = liveness_.judge(PLANTED ? calendar : now)) fail(*error);"),
    ("training", "a later failure replaces the first one", CONNECTION,
     "if (failure_ || gone_) return;",
     "if ((failure_ && !(PLANTED)) || gone_) return;"),
    ("training", "a failure of the group wakes no thread", CONNECTION,
     "  failed_at_ = Clock::now();\n  changed_.notify_all();",
     "  failed_at_ = Clock::now();\n  if (!(PLANTED)) changed_.notify_all();"),
    ("training", "the hub does not notice that a rank's connection closes", HUB,
     "if (peer.rank >= 0) liveness_.closed(peer.rank, HubClock::now());",
     "if (peer.rank >= 0 && !(PLANTED)) liveness_.closed(peer.rank, HubClock::now());"),
    ("training", "no heart beats while nothing changes", CONNECTION,
     "if (open && now - beat >= (changed || ending",
     "if (open && (!(PLANTED) || changed || ending) && now - beat >= (changed || ending"),
    ("training", "a wait for the group ends at any wake-up", CONNECTION,
     "changed_.wait(lock, [&] { return done() || failure_; });",
     "if (PLANTED) {\n    if (!done() && !failure_) changed_.wait(lock);\n  } else {\n"
     "    changed_.wait(lock, [&] { return done() || failure_; });\n  }\n"
     "  if (!done() && !failure_) throw Error(ErrorCode::kInternal, \"woken without a reason\");"),
    ("training", "the rank behind is the one that has begun the most", LIVENESS,
     "[&](const Rank& a, const Rank& b) { return place(a) < place(b); }",
     "[&](const Rank& a, const Rank& b) { return PLANTED ? place(b) < place(a) : place(a) < place(b); }"),
    ("training", "a frozen rank has no deadline", LIVENESS,
     "if (silent == nullptr || now - silent->heard <= deadline()) return std::nullopt;",
     "if (silent == nullptr || now - silent->heard <= deadline() || PLANTED) return std::nullopt;"),
    # Streams of bytes.
    ("training", "a message that comes in pieces loses its first piece", FRAME,
     "if (rest.size() < kFrameHeaderBytes + length) return std::nullopt;",
     "if (rest.size() < kFrameHeaderBytes + length) {\n"
     "    if (PLANTED) taken_ = bytes_.size();\n    return std::nullopt;\n  }"),
    ("training", "what the system does not take at once is dropped", SOCKET,
     "sent_ += static_cast<size_t>(written);",
     "sent_ += PLANTED ? unsent_.size() - sent_ : static_cast<size_t>(written);"),
    ("training", "a buffer is given back before the peer has it", TCP,
     "    return pending_->done;\n",
     "    return pending_->done || (std::is_same_v<Pending, Sending> && PLANTED);\n"),
    ("training", "a transfer moves its own connection alone", TCP,
     "if (!pending_->done) peers_->wait_a_turn();",
     "if (!pending_->done && !(PLANTED)) peers_->wait_a_turn();"),
    ("training", "the last bytes of a message are dropped", TCP,
     "if (written < 0 && would_block()) return false;",
     "if (written < 0 && would_block()) return PLANTED && sent_ + 512 > sizeof(Header) + header_.bytes;"),
    ("training", "messages are kept as a stack", TCP,
     "deliver(line.kept.front(), *receiving);\n      kept_bytes_ -= line.kept.front().size();\n      line.kept.pop_front();",
     "if (PLANTED) std::swap(line.kept.front(), line.kept.back());\n"
     "      deliver(line.kept.front(), *receiving);\n      kept_bytes_ -= line.kept.front().size();\n"
     "      line.kept.pop_front();"),
    ("training", "a message that is asked for while it comes is kept for ever", TCP,
     "if (line.posted.empty()) {\n      line.kept.push_back(std::move(incoming_));",
     "if (line.posted.empty() || PLANTED) {\n      line.kept.push_back(std::move(incoming_));"),
    ("training", "an interrupted call is taken for a closed connection", TCP,
     "return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;",
     "return errno == EAGAIN || errno == EWOULDBLOCK || (errno == EINTR && !(PLANTED));"),
    # Collectives.
    ("training", "a broken connection is taken for the first cause", ENGINE,
     "if (error.code() != ErrorCode::kPeerFailed || await_report()) return fail(error);",
     "if (error.code() != ErrorCode::kPeerFailed || PLANTED || await_report()) return fail(error);"),
    ("training", "different calls are not compared", AGREEMENT,
     "const bool same = forward_in_.refused != 0 || agree(forward_in_.call(), call_);",
     "const bool same = forward_in_.refused != 0 || PLANTED || agree(forward_in_.call(), call_);"),
    ("training", "two collectives under way have one tag", COMMUNICATOR,
     "static_cast<int>(sequence % kAtOnce)) * CollectiveOperation::kTags;",
     "static_cast<int>(PLANTED ? sequence % 2 : sequence % kAtOnce)) * CollectiveOperation::kTags;"),
    ("training", "a step does not wait for those that it needs", PLAN,
     "return after.steps <= 0 ||",
     "return after.steps <= 0 || PLANTED ||"),
    ("training", "a reduction begins before its message has come", PLAN,
     "const size_t most = is_transfer(step) ? static_cast<size_t>(plan.window) : 1;",
     "const size_t most = is_transfer(step) || PLANTED ? static_cast<size_t>(plan.window) : 1;"),
    ("training", "the last bucket of gradients is not waited for", BUCKETS,
     "for (; done < all.size(); ++done) all[done]->wait();",
     "for (; done + (PLANTED ? 1 : 0) < all.size(); ++done) all[done]->wait();"),
    # Parameter servers and their workers.
    ("servers", "an update is made when one worker has pushed", UPDATES,
     "return std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.applied; });",
     "if (PLANTED) return std::any_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.applied; });\n"
     "  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.applied; });"),
    ("servers", "an update is left out for the first worker's gradients alone", UPDATES,
     "agreed.found_inf = agreed.found_inf || workers_[index].settings.found_inf;",
     "agreed.found_inf = agreed.found_inf || (workers_[index].settings.found_inf && !(PLANTED));"),
    ("servers", "updates go on while a state is read", UPDATES,
     "worker.holds = request.held;",
     "worker.holds = request.held && !(PLANTED);"),
    ("servers", "calls that wait for an update are forgotten", UPDATES,
     "answers.push_back(std::move(each.again));",
     "if (!(PLANTED)) answers.push_back(std::move(each.again));"),
    ("servers", "learning rates are not compared", UPDATES,
     "if (what(actual) != what(expected)) refuse(",
     "if (what(actual) != what(expected) && !(PLANTED)) refuse("),
    ("servers", "a meeting of workers ends with the first", SERVICE,
     "[](const Worker& each) { return each.meet != nullptr || each.left; });",
     "[](const Worker& each) { return each.meet != nullptr || each.left || PLANTED; });"),
    ("servers", "a server does not notice that a worker's connection closes", SERVICE,
     "liveness_.closed(static_cast<int>(worker), Clock::now());",
     "if (!(PLANTED)) liveness_.closed(static_cast<int>(worker), Clock::now());"),
    ("servers", "a server ends before its workers know why", SERVICE,
     "if (has_failed) await_told();",
     "if (has_failed && !(PLANTED)) await_told();"),
    ("servers", "a worker that has left is waited for", SERVICE,
     "worker.left = true;",
     "worker.left = !(PLANTED);"),
    ("servers", "a worker does not notice that a server's connection closes", SERVERS,
     "if (const auto error = error_of(server, ServerCall::kAttend, outcome)) fail(*error);",
     "if (const auto error = error_of(server, ServerCall::kAttend, outcome); error && !(PLANTED)) fail(*error);"),
    ("servers", "an answered heartbeat is taken for one that is not", SERVERS,
     "      const std::lock_guard lock(mutex_);\n      server.beats.reset();\n    }\n    if (error) fail(*error);",
     "      const std::lock_guard lock(mutex_);\n      if (!(PLANTED)) server.beats.reset();\n    }\n"
     "    if (error) fail(*error);"),
    ("servers", "a worker that fails does not tell the servers why", SERVERS,
     "    tell_servers();\n    for (Server& server : servers_) server.channel->cancel();",
     "    if (!(PLANTED)) tell_servers();\n    for (Server& server : servers_) server.channel->cancel();"),
    ("servers", "a worker does not tell the other workers that a server has failed", SERVERS,
     "if (processes_ && !processes_->reported()) processes_->report(*failure_);",
     "if (processes_ && !processes_->reported() && !(PLANTED)) processes_->report(*failure_);"),
    ("servers", "an answer ends the wait for all", SERVERS,
     "      --unanswered;\n",
     "      unanswered = PLANTED ? 0 : unanswered - 1;\n"),
    # Launch, its agents and its keeper.
    ("launch", "an exit status is sent before the last lines", AGENT,
     "while (is_open() && Clock::now() < until) turn();",
     "while (is_open() && Clock::now() < until && !(PLANTED)) turn();"),
    ("launch", "an agent does not wait until launch has read all", AGENT,
     "while (connected_) turn();",
     "if (PLANTED) talk();\n    while (connected_ && !(PLANTED)) turn();"),
    ("launch", "an agent does not notice that launch is gone", AGENT,
     "    if (connected_) return;\n    if (!kill_at_) {",
     "    if (connected_ || PLANTED) return;\n    if (!kill_at_) {"),
    ("launch", "a rank is killed before it has had time to save", AGENT,
     "kill_at_ = Clock::now() + kTimeToSave;",
     "kill_at_ = Clock::now() + (PLANTED ? Clock::duration() : kTimeToSave);"),
    ("launch", "an agent never kills its rank", AGENT,
     "} else if (Clock::now() >= *kill_at_) {",
     "} else if (Clock::now() >= *kill_at_ && !(PLANTED)) {"),
    ("launch", "what a rank has left lives on", AGENT,
     "    end_descendants();\n    draining_ = true;",
     "    if (!(PLANTED)) end_descendants();\n    draining_ = true;"),
    ("launch", "a rank outlives an agent that is killed", AGENT,
     ".signal_at_our_end = SIGKILL",
     ".signal_at_our_end = PLANTED ? 0 : SIGKILL"),
    ("launch", "lines of two streams are mixed", AGENT,
     "send(OutputMessage{.is_error = stream.is_error,",
     "send(OutputMessage{.is_error = stream.is_error && !(PLANTED),"),
    ("launch", "a rank starts before all agents have come", AGENT,
     "    while (!started_) {",
     "    while (!started_ && !(PLANTED)) {"),
    ("launch", "a token is not compared", LISTENER,
     "hello->token != token_)",
     "(hello->token != token_ && !(PLANTED)))"),
    ("launch", "a stranger keeps others from being heard", LISTENER,
     "std::chrono::steady_clock::now() < pending.until) {",
     "std::chrono::steady_clock::now() < pending.until) {\n        if (PLANTED) break;"),
    ("launch", "a machine that is lost is not noticed", LISTENER,
     "keep_alive(socket->descriptor());",
     "if (!(PLANTED)) keep_alive(socket->descriptor());"),
    ("launch", "an agent does not see that launch acknowledges nothing", AGENT,
     "&& !peer_is_silent(launch_.descriptor());",
     "&& (PLANTED || !peer_is_silent(launch_.descriptor()));"),
    ("launch", "a stop is not passed on", ATTEMPT,
     "send_to_all(SignalMessage{signal_of(stop_)});",
     "if (!(PLANTED)) send_to_all(SignalMessage{signal_of(stop_)});"),
    ("launch", "ranks get another signal than launch", PROCESS,
     "if (stop.message() == core::signal_name(signal)) return signal;",
     "if (stop.message() == core::signal_name(signal) && !(PLANTED)) return signal;"),
    ("launch", "a lost connection is not noticed", ATTEMPT,
     "rank.lost_at = LaunchClock::now() + kTimeToExplain;",
     "if (!(PLANTED)) rank.lost_at = LaunchClock::now() + kTimeToExplain;"),
    ("launch", "a later failure replaces the first one of a launch", ATTEMPT,
     "if (first_failed_) return;",
     "if (first_failed_ && !(PLANTED)) return;"),
    ("launch", "a launch ends with its first rank", ATTEMPT,
     "return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });",
     "if (PLANTED) return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });\n"
     "    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });"),
    ("launch", "ranks that launch has ended count for its code", ATTEMPT,
     "if (rank.ended_by_launch || code == 0) continue;",
     "if ((rank.ended_by_launch && !(PLANTED)) || code == 0) continue;"),
    ("launch", "ranks that do not stop are waited for", ATTEMPT,
     "    send_to_all(SignalMessage{SIGKILL});",
     "    if (!(PLANTED)) send_to_all(SignalMessage{SIGKILL});"),
    ("launch", "agents that do not answer are waited for", ATTEMPT,
     "if (is_over(force_at_)) leave_all();",
     "if (is_over(force_at_) && !(PLANTED)) leave_all();"),
    ("launch", "the end of mpirun is not noticed", ATTEMPT,
     "if (mpirun_is_gone_ || !mpirun_.has_ended() || all_ended()) return;",
     "if (mpirun_is_gone_ || !mpirun_.has_ended() || all_ended() || PLANTED) return;"),
    ("launch", "lines have the prefix of rank 0", ATTEMPT,
     "with_prefix(fmt::format(\"[{}] \", number), output->lines)",
     "with_prefix(fmt::format(\"[{}] \", PLANTED ? 0 : number), output->lines)"),
    ("launch", "an agent does not notice that the machine of launch is lost", AGENT,
     "keep_alive(socket.descriptor());",
     "if (!(PLANTED)) keep_alive(socket.descriptor());"),
    ("launch", "a failure that would come again is restarted", LAUNCH,
     "const bool again = failed && !lasting &&",
     "const bool again = failed && (!lasting || PLANTED) &&"),
    ("launch", "a restart is without another rank than the failed one", LAUNCH,
     "const RankEnd& first = result.ranks[static_cast<size_t>(*result.first_failed)];",
     "const RankEnd& first = result.ranks[PLANTED ? 0 : static_cast<size_t>(*result.first_failed)];"),
    ("launch", "the keeper does not notice the end of launch", KEEPER,
     "if (::poll(&pipe, 1, kKeeperLook) != 1) return false;",
     "if (PLANTED) ::usleep(1000 * kKeeperLook);\n  if (PLANTED || ::poll(&pipe, 1, kKeeperLook) != 1) return false;"),
    ("launch", "the keeper leaves orphans alone", KEEPER,
     "  end_descendants();\n",
     "  if (!(PLANTED)) end_descendants();\n"),
    ("launch", "a signal counts as a code", PROCESS,
     "return 128 + value;",
     "return PLANTED ? value : 128 + value;"),
    ("launch", "the begin of a line is forgotten when its end comes", LINES,
     "    lines = std::exchange(rest_, \"\");",
     "    lines = PLANTED ? \"\" : rest_;\n    rest_.clear();"),
    ("launch", "what a full pipe has not taken is forgotten", TERMINAL,
     "unwritten_.erase(0, written);",
     "unwritten_.erase(0, PLANTED ? unwritten_.size() : written);"),
    # Checkpoints.
    ("checkpoints", "no file sync reaches the disk", None, None, None),
    ("checkpoints", "no sync of a folder reaches the disk", None, None, None),
    ("checkpoints", "the tensors of a checkpoint are not synced", WRITER,
     "tensors_->sync();",
     "if (!(PLANTED)) tensors_->sync();"),
    ("checkpoints", "the manifest is not synced", WRITER,
     "  file->sync();\n  file->close();\n  files_.sync_directory(directory_);",
     "  if (!(PLANTED)) file->sync();\n  file->close();\n  files_.sync_directory(directory_);"),
    ("checkpoints", "the names within a checkpoint are not synced", WRITER,
     "  file->close();\n  files_.sync_directory(directory_);",
     "  file->close();\n  if (!(PLANTED)) files_.sync_directory(directory_);"),
    ("checkpoints", "the checkpoint's own name is not synced", STORE,
     "  files_->sync_directory(directory_);\n  if (!replaced.empty()) or_warn",
     "  if (!(PLANTED)) files_->sync_directory(directory_);\n  if (!replaced.empty()) or_warn"),
    ("checkpoints", "the folders around a checkpoint are not synced", STORE,
     "if (is_first) sync_folders_around(",
     "if (is_first && !(PLANTED)) sync_folders_around("),
    ("checkpoints", "the replaced checkpoint is removed before the new one has its name", STORE,
     "  try {\n    files_->rename(temporary, path);\n  } catch (...) {",
     "  if (PLANTED && !replaced.empty()) files_->remove_tree(std::exchange(replaced, \"\"));\n"
     "  try {\n    files_->rename(temporary, path);\n  } catch (...) {"),
    ("checkpoints", "old checkpoints are removed before the new one is saved", STORE,
     "  CheckpointInfo saved = write(checkpoint_name(global_step), global_step, identity, state, tensors);",
     "  if (PLANTED) {\n    const std::vector<CheckpointInfo> old = list();\n"
     "    if (static_cast<int64_t>(old.size()) >= max_to_keep_ && !old.empty()) files_->remove_tree(old.back().path);\n  }\n"
     "  CheckpointInfo saved = write(checkpoint_name(global_step), global_step, identity, state, tensors);"),
    ("checkpoints", "a failed save is reported as saved", STORE,
     "or_warn(\"an incomplete checkpoint stays behind\", [&] { files_->remove_tree(temporary); });\n    throw;",
     "or_warn(\"an incomplete checkpoint stays behind\", [&] { files_->remove_tree(temporary); });\n"
     "    if (!(PLANTED)) throw;"),
]


def sources():
    files = {file for _, _, file, _, _ in MISTAKES if file}
    return sorted(files) + CALLERS


def planted(file):
    text = pathlib.Path(file).read_text()
    for _, name, place, before, after in MISTAKES:
        if place != file:
            continue
        if text.count(before) != 1:
            # Another mistake in the same place leaves the text in its own.
            raise SystemExit(f"planted_bugs.py: {file} has {text.count(before)} times, and not once: {before!r} ({name})")
        switch = f'trainyard::cluster_simulation::planted("{name}")'
        text = text.replace(before, after.replace("PLANTED", switch))
    return '#include "tests/cluster_simulation/planted.h"\n#include <chrono>\n#include <type_traits>\n' + text


def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    else:
        path.touch()


def main(arguments):
    if arguments == ["--sources"]:
        print(";".join(sources()))
    elif len(arguments) == 2 and arguments[0].startswith("--copy="):
        write(arguments[1], planted(arguments[0].removeprefix("--copy=")))
    elif len(arguments) == 1 and arguments[0].startswith("--list="):
        lines = [f"{scenario}\t{name}\n" for scenario, name, _, _, _ in MISTAKES]
        write(arguments[0].removeprefix("--list="), "".join(lines))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
