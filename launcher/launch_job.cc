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
#include "launcher/output_relay.h"
#include "launcher/post_mortem.h"
#include "launcher/rank_environment.h"
#include "launcher/rank_plans.h"
#include "launcher/report.h"
#include "launcher/restart_policy.h"
#include "launcher/signal_source.h"
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
  Status run_attempt(int number);
  Status start_ranks(const JobIdentity& job, Supervisor& supervisor);
  void close_attempt(const Supervisor& supervisor, const ActivityBoard& board);
  bool restart();
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
  bool stopped_ = false;              // no further attempt, whatever happens
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
  int number = 0;
  Status launched = run_attempt(number);
  while (launched.ok() && restart()) launched = run_attempt(++number);
  return finish(launched);
}

// Every attempt has a store and a secret of its own, so that nothing of an earlier one gets in.
Status Job::run_attempt(int number) {
  const ActivityBoard board(options_.ranks);
  JobIdentity job{.job_id = outcome_.job_id,
                  .token = make_token(),
                  .activity = board.path(),
                  .world = options_.ranks,
                  .ranks = options_.ranks,
                  .restarts = number,
                  .max_restarts = options_.supervision.max_restarts,
                  .cores = usable_cores(),
                  .gpus = options_.placement.gpus,
                  .gpus_per_rank = options_.placement.gpus_per_rank};
  auto store = StoreServer::start(
      {.port = options_.nodes.store_port, .token = job.token, .logger = make_logger("dlaunch")});
  if (!store.ok()) return store.status();
  job.store_address = "127.0.0.1:" + std::to_string((*store)->port());
  const auto master_port = find_free_port();
  if (!master_port) return Status(StatusCode::kIo, "no free port for MASTER_PORT");
  job.master_port = *master_port;

  Supervisor supervisor(
      loop_, relay_,
      {.attempt = number, .job_deadline = deadline_, .grace = options_.supervision.grace});
  supervisor_ = &supervisor;
  Status started = start_ranks(job, supervisor);
  monitor_.begin_attempt(supervisor, board);
  if (started.ok()) supervisor.run();
  monitor_.end_attempt();
  supervisor_ = nullptr;
  all_ended_ = kill_all_descendants(kLeftoverLimit);
  for (int rank = 0; rank < options_.ranks; ++rank) relay_.drain(rank);
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
    DLAUNCH_RETURN_IF_ERROR(relay_.keep_logs(job.restarts, start.rank));
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
  if (!guard_gone_) {
    if (attempt.failure) relay_.reveal(attempt.failure->rank);
    const bool shown = attempt.failure && relay_.shown_last(attempt.failure->rank);
    for (const std::string& line : make_report(attempt, !shown)) relay_.write_line(line);
  }
  outcome_.attempts.push_back(std::move(attempt));
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

int Job::finish(const Status& launched) {
  std::string error = launched.ok() ? "" : launched.to_string();
  if (guard_gone_) error = "its guarding process was killed; all ranks were ended";
  if (!all_ended_) relay_.write_line("dlaunch: some processes of the job could not be killed");
  int exit_code = launched.ok() ? outcome_.attempts.back().exit_code() : exit_code_of(launched);
  if (guard_gone_) exit_code = kLauncherFailure;
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
