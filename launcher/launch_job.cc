#include "launcher/launch_job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launcher/activity_board.h"
#include "launcher/binding.h"
#include "launcher/descendants.h"
#include "launcher/event_loop.h"
#include "launcher/free_port.h"
#include "launcher/job_monitor.h"
#include "launcher/json_report.h"
#include "launcher/memory_account.h"
#include "launcher/node_report.h"
#include "launcher/node_session.h"
#include "launcher/output_relay.h"
#include "launcher/post_mortem.h"
#include "launcher/rank_environment.h"
#include "launcher/rank_plans.h"
#include "launcher/report.h"
#include "launcher/restart_policy.h"
#include "launcher/signal_source.h"
#include "launcher/signals.h"
#include "launcher/spawn.h"
#include "launcher/standard_input.h"
#include "launcher/supervisor.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"

namespace dlaunch {
namespace {

constexpr std::chrono::seconds kLeftoverLimit{10};
constexpr std::chrono::seconds kFlushLimit{5};
// Three per rank, and a connection of each to the store. More than this many descriptors nobody
// needs, and some programs walk over all they might have.
constexpr rlim_t kMostDescriptors = 65536;

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMostDescriptors));
  setrlimit(RLIMIT_NOFILE, &limit);
}

int exit_code_of(const Status& spawn_error) {
  switch (spawn_error.code()) {
    case StatusCode::kNotFound:
      return kLauncherNotFound;
    case StatusCode::kInvalidArgument:
      return kLauncherNotExecutable;
    default:
      return kLauncherFailure;
  }
}

std::string make_job_id() {
  return token_to_hex(make_token()).substr(0, 12);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// A job from its start to its end. Its members are called by the event loop's thread.
class Job {
 public:
  explicit Job(const LaunchContext& context);
  ~Job() { loop_.remove(context_.guard_pipe); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run();

 private:
  Status run_alone();
  Status run_on_nodes();
  JobIdentity identity(int restarts) const;
  JobIdentity identity_in(const RoundRecord& round) const;
  Status run_attempt(JobIdentity job);
  void end_round(const Status& launched);
  Status start_ranks(const JobIdentity& job, Supervisor& supervisor);
  void close_attempt(const Supervisor& supervisor, const ActivityBoard& board);
  void tell_about(const AttemptOutcome& attempt);
  bool restart();
  int exit_code_after(const Status& launched) const;
  int finish(const Status& launched);

  void on_signal(int signal, bool seen_by_terminal_group);
  void on_guard_gone();

  const LaunchContext& context_;
  const JobOptions& options_;
  std::optional<EventLoop::Clock::time_point> deadline_;  // --timeout
  MemoryAccount memory_;
  EventLoop loop_;
  OutputRelay relay_;
  JobOutcome outcome_;
  JobMonitor monitor_;
  RestartPolicy restarts_;
  std::optional<ReportFile> report_;
  Supervisor* supervisor_ = nullptr;  // of the attempt that is running
  std::optional<NodeSession> nodes_;  // if there are several
  bool stopped_ = false;              // no further attempt, whatever happens
  int interrupted_by_ = 0;            // the signal that did
  bool timed_out_ = false;            // --timeout passed while the nodes gathered
  bool guard_gone_ = false;
  bool all_ended_ = true;
  SignalSource signals_;
};

Job::Job(const LaunchContext& context)
    : context_(context),
      options_(context.options),
      relay_(loop_, options_.output),
      outcome_({.job_id = make_job_id(),
                .host = host_name(),
                .command = options_.command,
                .max_restarts = options_.supervision.max_restarts,
                .attempts = {}}),
      monitor_(loop_, relay_, outcome_,
               {.stall_after = options_.supervision.stall_after,
                .signal_mask = context.signals.original,
                .world = options_.ranks}),
      restarts_(
          {.most = options_.supervision.max_restarts, .delay = options_.supervision.restart_delay}),
      signals_(loop_, context.signals.handled,
               {.on_signal = [this](int signal, bool seen) { on_signal(signal, seen); },
                .on_child =
                    [this] {
                      if (supervisor_ != nullptr) supervisor_->reap_children();
                    }}) {
  if (options_.supervision.timeout)
    deadline_ = EventLoop::Clock::now() + *options_.supervision.timeout;
  loop_.add(context.guard_pipe, EPOLLIN, [this] { on_guard_gone(); });
}

int Job::run() {
  if (!options_.supervision.report.empty()) {
    auto report = ReportFile::open(options_.supervision.report);
    if (!report.ok()) return finish(report.status());
    report_ = *std::move(report);
  }
  return finish(context_.nodes.several() ? run_on_nodes() : run_alone());
}

// Every attempt has a store and a secret of its own, so that nothing of an earlier one gets in.
Status Job::run_alone() {
  for (int number = 0;; ++number) {
    JobIdentity job = identity(number);
    job.token = make_token();
    const auto store = StoreServer::start(
        {.port = options_.nodes.store_port, .token = job.token, .logger = make_logger("dlaunch")});
    if (!store.ok()) return store.status();
    job.store_address = "127.0.0.1:" + std::to_string((*store)->port());
    const auto master_port = find_free_port();
    if (!master_port) return Status(StatusCode::kIo, "no free port for MASTER_PORT");
    job.master_port = *master_port;
    DLAUNCH_RETURN_IF_ERROR(run_attempt(job));
    if (!restart()) return {};
  }
}

JobIdentity Job::identity(int restarts) const {
  return {.job_id = outcome_.job_id,
          .world = options_.ranks,
          .ranks = options_.ranks,
          .attempt = restarts,
          .restarts = restarts,
          .max_restarts = options_.supervision.max_restarts,
          .cores = usable_cores(),
          .gpus = options_.placement.gpus,
          .gpus_per_rank = options_.placement.gpus_per_rank};
}

// The nodes share one store and one secret; attempts are kept apart by the beginning of their keys.
Status Job::run_on_nodes() {
  const auto master_port = find_free_port();
  if (!master_port) return Status(StatusCode::kIo, "no free port for MASTER_PORT");
  nodes_.emplace(
      loop_, relay_,
      describe_node(context_.nodes, options_, outcome_.job_id, outcome_.host, *master_port));
  std::optional<EventLoop::TimerId> timer;
  if (deadline_) timer = loop_.call_at(*deadline_, [this] { timed_out_ = true; });
  while (const auto round = nodes_->next_round([this] { return stopped_ || timed_out_; })) {
    Status launched = run_attempt(identity_in(*round));
    end_round(launched);
    if (!launched.ok()) return launched;
  }
  if (timer) loop_.cancel(*timer);
  if (!outcome_.attempts.empty()) return {};
  if (timed_out_) relay_.write_line("dlaunch: ended after --timeout, before all nodes had come");
  if (interrupted_by_ != 0) {
    relay_.write_line("dlaunch: ended by " + signal_name(interrupted_by_) +
                      " before all nodes had come");
  }
  return {};
}

JobIdentity Job::identity_in(const RoundRecord& round) const {
  JobIdentity job = identity(round.restarts);
  job.job_id = round.job_id;
  job.attempt = round.number;
  job.token = context_.nodes.token;
  job.store_address = nodes_->store_address(round);
  job.store_prefix = "attempt " + std::to_string(round.number) + "/";
  job.master_address = round.master_address;
  job.master_port = static_cast<std::uint16_t>(round.master_port);
  job.node = nodes_->node_of(round);
  job.nodes = static_cast<int>(round.nodes.size());
  job.first_rank = round.nodes[static_cast<std::size_t>(job.node)].first_rank;
  job.world = round.world;
  return job;
}

// Tells the other nodes how the round ended here, and the user how it ended on all of them.
void Job::end_round(const Status& launched) {
  if (guard_gone_) return;  // to them this node is lost
  if (!launched.ok()) return nodes_->end_round(not_started(launched, exit_code_of(launched)));
  AttemptOutcome& attempt = outcome_.attempts.back();
  nodes_->end_round(ended_record(attempt));
  const auto& verdict = nodes_->verdict();
  if (nodes_->error() || !verdict) return;
  if (!is_about(*verdict, attempt)) {
    for (const std::string& line : make_node_report(*verdict)) relay_.write_line(line);
    // What failed here was not the first.
    attempt.failure.reset();
    if (attempt.cause == AttemptOutcome::Cause::kRankFailed) {
      attempt.cause = AttemptOutcome::Cause::kElsewhere;
    }
  }
  tell_about(attempt);
  if (const std::string next = describe_next(*verdict); !next.empty()) relay_.write_line(next);
}

Status Job::run_attempt(JobIdentity job) {
  const ActivityBoard board(options_.ranks);
  job.activity = board.path();
  Supervisor supervisor(
      loop_, relay_,
      {.attempt = job.attempt, .job_deadline = deadline_, .grace = options_.supervision.grace});
  supervisor_ = &supervisor;
  Status started = start_ranks(job, supervisor);
  monitor_.begin_attempt(supervisor, board);
  if (started.ok()) {
    if (nodes_) nodes_->when_round_stops([&] { supervisor.end_elsewhere(); });
    supervisor.run();
    if (nodes_) nodes_->when_round_stops(nullptr);
  }
  monitor_.end_attempt();
  supervisor_ = nullptr;
  all_ended_ = kill_all_descendants(kLeftoverLimit);
  for (int rank = 0; rank < job.ranks; ++rank) relay_.drain(job.first_rank + rank);
  if (started.ok()) close_attempt(supervisor, board);
  return started;
}

Status Job::start_ranks(const JobIdentity& job, Supervisor& supervisor) {
  const SpawnPlan plan{.path = context_.program,
                       .command = options_.command,
                       .signal_mask = context_.signals.original,
                       .inherited = context_.inherited,
                       .terminal_group = context_.terminal_group};
  const auto input = StandardInput::open(options_.output.standard_input, job.first_rank, job.ranks,
                                         context_.terminal_group);
  if (!input.ok()) return input.status();
  for (const RankStart& start : plan_ranks(options_, job, *input)) {
    DLAUNCH_RETURN_IF_ERROR(relay_.keep_logs(job.attempt, start.rank));
    auto started = spawn_rank(plan, start);
    if (!started.ok()) return started.status();
    supervisor.add(*std::move(started));
  }
  return {};
}

// Completes what is known of an attempt that has ended, and tells the user.
void Job::close_attempt(const Supervisor& supervisor, const ActivityBoard& board) {
  AttemptOutcome attempt = supervisor.outcome();
  attempt.limit = options_.supervision.timeout.value_or(std::chrono::nanoseconds());
  add_post_mortem(attempt, {.relay = relay_,
                            .board = board,
                            .memory = memory_,
                            .host = outcome_.host,
                            .start = supervisor.start(),
                            .ready_after = options_.supervision.ready_after});
  // With several nodes that has to wait for the others.
  if (!guard_gone_ && !nodes_) tell_about(attempt);
  outcome_.attempts.push_back(std::move(attempt));
}

void Job::tell_about(const AttemptOutcome& attempt) {
  if (attempt.failure) relay_.reveal(attempt.failure->rank);
  const bool shown = attempt.failure && relay_.shown_last(attempt.failure->rank);
  for (const std::string& line : make_report(attempt, !shown)) relay_.write_line(line);
}

// Waits for the time of the next attempt; false if there is to be none.
bool Job::restart() {
  const AttemptOutcome& last = outcome_.attempts.back();
  if (stopped_ || guard_gone_ || !all_ended_) return false;
  const auto decision = restarts_.after(last);
  if (!decision.line.empty()) relay_.write_line(decision.line);
  if (!decision.restart) return false;
  const auto resume = EventLoop::Clock::now() + decision.delay;
  if (deadline_ && resume >= *deadline_) {
    relay_.write_line("dlaunch: no restart: --timeout will have passed");
    return false;
  }
  bool over = false;
  const auto timer = loop_.call_at(resume, [&] { over = true; });
  while (!over && !stopped_) loop_.run_once();
  loop_.cancel(timer);
  return !stopped_;
}

int Job::exit_code_after(const Status& launched) const {
  if (guard_gone_) return kLauncherFailure;
  if (!launched.ok()) return exit_code_of(launched);
  if (nodes_) {
    const auto& verdict = nodes_->verdict();
    if (nodes_->error()) return nodes_->error()->exit_code;
    if (verdict && verdict->action != VerdictRecord::Action::kAgain) return verdict->exit_code;
    if (timed_out_) return kLauncherTimeout;
    if (interrupted_by_ != 0) return 128 + interrupted_by_;
  }
  return outcome_.attempts.back().exit_code();
}

int Job::finish(const Status& launched) {
  std::string error = launched.ok() ? "" : launched.to_string();
  if (nodes_ && nodes_->error()) error = nodes_->error()->why;
  if (guard_gone_) error = "its guarding process was killed; all ranks were ended";
  if (!all_ended_) relay_.write_line("dlaunch: some processes of the job could not be killed");
  int exit_code = exit_code_after(launched);
  if (!error.empty()) relay_.write_line("dlaunch: " + error);
  if (report_) {
    const Status written = report_->write(json_report(outcome_, exit_code, error));
    if (!written.ok()) {
      relay_.write_line("dlaunch: " + written.to_string());
      if (exit_code == kExitOk) exit_code = kLauncherFailure;
    }
  }
  relay_.finish(kFlushLimit);
  return exit_code;
}

void Job::on_signal(int signal, bool seen_by_terminal_group) {
  if (signal == SIGQUIT) return monitor_.report("what the ranks are doing (SIGQUIT):");
  const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  stopped_ = stopped_ || ends;
  if (ends) interrupted_by_ = signal;
  if (supervisor_ != nullptr) supervisor_->handle_signal(signal, seen_by_terminal_group);
}

void Job::on_guard_gone() {
  loop_.remove(context_.guard_pipe);
  guard_gone_ = true;
  stopped_ = true;
  if (supervisor_ != nullptr) supervisor_->abandon();
}

}  // namespace

int launch_job(const LaunchContext& context) {
  raise_descriptor_limit();
  return Job(context).run();
}

}  // namespace dlaunch
