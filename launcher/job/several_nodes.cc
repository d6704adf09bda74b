#include "launcher/job/several_nodes.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "launcher/failure/json_report.h"
#include "launcher/failure/report.h"
#include "launcher/nodes/addresses.h"
#include "launcher/nodes/node_report.h"
#include "launcher/ranks/free_port.h"
#include "launcher/supervision/signals.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/host_address.h"
#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

SeveralNodes::SeveralNodes(AttemptRunner& runner, const LaunchContext& context,
                           std::uint16_t master_port)
    : runner_(runner),
      context_(context),
      session_(runner.loop(), runner.relay(),
               describe_node(context.nodes, context.options, runner.outcome().job_id,
                             runner.outcome().host, master_port)),
      look_(runner.monitor(), session_) {
  // To the other nodes this one goes when its ranks do, not when they have gone.
  runner_.when_guard_goes([this] { session_.fall_silent(); });
}

SeveralNodes::~SeveralNodes() {
  runner_.when_guard_goes(nullptr);
}

JobEnd SeveralNodes::run() {
  EventLoop& loop = runner_.loop();
  std::optional<EventLoop::TimerId> timer;
  if (runner_.deadline()) timer = loop.call_at(*runner_.deadline(), [this] { timed_out_ = true; });
  Status launched;
  while (const auto round = session_.next_round([this] { return interrupted(); })) {
    launched = run_round(*round);
    if (!launched.ok()) break;
  }
  if (timer) loop.cancel(*timer);
  if (launched.ok() && interrupted() && !runner_.guard_gone()) session_.end_between(interruption());
  if (!launched.ok()) return JobEnd::not_launched(launched);
  tell_if_nothing_runs();
  return end();
}

EndedRecord SeveralNodes::interruption() const {
  using How = EndedRecord::How;
  if (runner_.guard_gone()) {
    return {.how = How::kSignal,
            .exit_code = kLauncherFailure,
            .error = "its guarding process was killed"};
  }
  if (timed_out_) {
    return {.how = How::kTimeout, .exit_code = kLauncherTimeout, .error = "--timeout passed"};
  }
  return {.how = How::kSignal,
          .exit_code = 128 + runner_.interrupted_by(),
          .error = "ended by " + signal_name(runner_.interrupted_by())};
}

// Of a node whose ranks have finished.
std::optional<NodeSession::Departure> SeveralNodes::departure() const {
  if (!interrupted()) return std::nullopt;
  // A signal to any node ends a job that is not elastic; what befalls the node, as its loss, need
  // not. Without the store there is no job.
  const bool elastic = context_.nodes.least < context_.nodes.most;
  return NodeSession::Departure{
      .ended = interruption(),
      .silent = (elastic || runner_.guard_gone()) && !session_.hosts_store(),
      .lost = runner_.guard_gone()};
}

Status SeveralNodes::run_round(const RoundRecord& round) {
  runner_.outcome().job_id = round.job_id;
  runner_.outcome().restarts = round.restarts;
  runner_.outcome().max_restarts = round.max_restarts;
  tell_what_counts(round);
  Status launched = check_options(round);
  if (launched.ok()) {
    // The other nodes may have ended the round already.
    launched = runner_.run(identity_in(round), [this] {
      session_.when_round_stops([this] { runner_.end_elsewhere(); });
    });
  }
  session_.when_round_stops(nullptr);
  end_round(round, launched);
  return launched;
}

// Restarts are those of the whole job.
void SeveralNodes::tell_what_counts(const RoundRecord& round) {
  if (std::exchange(told_what_counts_, true)) return;
  const SupervisionOptions& own = context_.options.supervision;
  const auto tell = [&](const std::string& option, const std::string& job,
                        const std::string& here) {
    if (job == here) return;
    runner_.relay().write_line("dlaunch: " + option + " " + job +
                               " of the node with the store counts, not " + here + " here");
  };
  tell("--max-restarts", std::to_string(round.max_restarts), std::to_string(own.max_restarts));
  if (round.max_restarts == 0) return;
  tell("--restart-delay", seconds(std::chrono::milliseconds(round.restart_delay_ms)),
       seconds(own.restart_delay));
}

// Only now is it known which ranks there are. In an elastic job they come and go.
Status SeveralNodes::check_options(const RoundRecord& round) const {
  if (context_.nodes.least != context_.nodes.most) return {};
  const std::string why = unknown_rank(context_.options.output, round.world);
  return why.empty() ? Status() : Status(StatusCode::kMismatch, why);
}

JobIdentity SeveralNodes::identity_in(const RoundRecord& round) const {
  JobIdentity job = runner_.identity(round.restarts);
  job.job_id = round.job_id;
  job.attempt = round.number;
  job.restarted = round.restarted;
  job.max_restarts = round.max_restarts;
  job.token = context_.nodes.token;
  job.store_address = session_.store_address(round);
  job.store_prefix = std::string(node_keys::kAttempt) + std::to_string(round.number) + "/";
  job.master_address = without_brackets(round.master_address);
  job.master_port = static_cast<std::uint16_t>(round.master_port);
  const NodeSettings& nodes = context_.nodes;
  if (!nodes.master_address.empty()) job.master_address = nodes.master_address;
  if (nodes.master_port != 0) job.master_port = nodes.master_port;
  job.interface = nodes.local_address;
  job.node = session_.node_of(round);
  job.nodes = static_cast<int>(round.nodes.size());
  job.first_rank = round.nodes[static_cast<std::size_t>(job.node)].first_rank;
  job.world = round.world;
  for (std::size_t node = 0; node < round.nodes.size(); ++node) {
    if (static_cast<int>(node) == job.node) continue;
    const RoundRecord::Node& other = round.nodes[node];
    job.others.push_back({static_cast<int>(node), other.host, other.first_rank, other.ranks});
  }
  return job;
}

// Tells the other nodes how the round ended here, and the user how it ended on all of them.
void SeveralNodes::end_round(const RoundRecord& round, const Status& launched) {
  if (runner_.guard_gone()) return;  // to them this node is lost
  if (!launched.ok()) {
    session_.end_round(not_started(launched, JobEnd::not_launched(launched).exit_code));
    return;
  }
  AttemptOutcome& attempt = runner_.outcome().attempts.back();
  EndedRecord ended = ended_record(attempt);
  if (const auto port = find_free_port(); port.ok()) ended.master_port = *port;
  ended.leftovers = !runner_.all_ended();
  const std::string all = round.outcomes ? attempt_report(attempt, runner_.outcome().host,
                                                          store_protocol::kMostValueBytes)
                                         : "";
  const NodeSession::User user{.departure = [this] { return departure(); },
                               .signals = [this] { return runner_.interruptions(); }};
  if (!session_.end_round(ended, all, user)) return tell_without_verdict(attempt);
  const auto& verdict = session_.verdict();
  const bool about_other = !is_about(*verdict, attempt);
  if (about_other) {
    for (const std::string& line : make_node_report(*verdict)) runner_.relay().write_line(line);
  }
  take_verdict(*verdict, attempt);
  if (!context_.options.supervision.report.empty()) collect_outcomes(round, *verdict, attempt);
  runner_.tell_about(attempt);
  if (!about_other && !verdict->reason.empty())
    runner_.relay().write_line("dlaunch: " + verdict->reason);
  leaves_ = ended.how == EndedRecord::How::kSignal || ended.how == EndedRecord::How::kTimeout;
  const std::string next = describe_next(*verdict);
  if (!leaves_ && !next.empty()) runner_.relay().write_line(next);
}

// For --report.
void SeveralNodes::collect_outcomes(const RoundRecord& round, const VerdictRecord& verdict,
                                    AttemptOutcome& attempt) {
  const std::vector<std::string> texts = session_.outcomes(round);
  attempt.node = session_.node_of(round);
  for (std::size_t node = 0; node < round.nodes.size(); ++node) {
    if (static_cast<int>(node) == attempt.node) continue;
    const bool lost = std::ranges::count(verdict.lost, static_cast<int>(node)) > 0;
    attempt.others.push_back({.node = static_cast<int>(node),
                              .host = round.nodes[node].host,
                              .first_rank = round.nodes[node].first_rank,
                              .ranks = round.nodes[node].ranks,
                              .lost = lost,
                              .text = texts[node]});
  }
}

void SeveralNodes::tell_if_nothing_runs() {
  if (!runner_.outcome().attempts.empty()) {
    const bool starts_again = session_.verdict() && !session_.over();
    if (interrupted() && !leaves_ && starts_again && !runner_.guard_gone())
      runner_.relay().write_line("dlaunch: " + interruption().error + " before the next start");
    return;
  }
  if (timed_out_) {
    runner_.relay().write_line("dlaunch: ended after --timeout, while waiting for other nodes");
  }
  if (runner_.interrupted_by() != 0) {
    runner_.relay().write_line("dlaunch: ended by " + signal_name(runner_.interrupted_by()) +
                               " while waiting for other nodes");
  }
}

void SeveralNodes::tell_without_verdict(const AttemptOutcome& attempt) {
  if (runner_.guard_gone()) return;  // which is told
  runner_.tell_about(attempt);
  if (session_.left()) {
    runner_.relay().write_line("dlaunch: " + interruption().error +
                               " after the ranks of this node had finished; the job goes on");
  }
  if (session_.gave_up()) {
    runner_.relay().write_line("dlaunch: " + interruption().error +
                               " before the ranks of the other nodes had ended");
  }
}

JobEnd SeveralNodes::end() const {
  if (runner_.guard_gone()) return {};  // which says more
  if (const auto& error = session_.error()) {
    return {.exit_code = error->exit_code, .error = error->why};
  }
  const auto& verdict = session_.verdict();
  if (verdict && verdict->action != VerdictRecord::Action::kAgain) {
    return {.exit_code = verdict->exit_code};
  }
  // Of a node that the others go on without, as on one node.
  if (leaves_ && runner_.outcome().attempts.back().exit_code() == kExitOk) return {};
  if (timed_out_) return {.exit_code = kLauncherTimeout};
  if (runner_.interrupted_by() != 0) return {.exit_code = 128 + runner_.interrupted_by()};
  const auto& attempts = runner_.outcome().attempts;
  if (attempts.empty()) return {.exit_code = kLauncherFailure, .error = "no ranks were started"};
  return {.exit_code = attempts.back().exit_code()};
}

}  // namespace dlaunch
