#include "launcher/job/attempt_runner.h"

#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

#include "launcher/failure/post_mortem.h"
#include "launcher/failure/recorded_error.h"
#include "launcher/failure/report.h"
#include "launcher/ranks/rank_plans.h"
#include "launcher/ranks/standard_input.h"
#include "runtime/base/token.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

constexpr std::chrono::seconds kLeftoverLimit{10};
// How long the reader of the output of a job that was told to end may read nothing.
constexpr std::chrono::seconds kReaderPatience{5};
// Within this time a signal that comes again is the same one.
constexpr std::chrono::milliseconds kSameSignal{500};

std::string make_job_id() {
  return token_to_hex(make_token()).substr(0, 12);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

AttemptRunner::AttemptRunner(const LaunchContext& context)
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
                .ranks = options_.ranks}),
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

JobIdentity AttemptRunner::identity(int restarts) const {
  return {.job_id = outcome_.job_id,
          .run_id = options_.nodes.run_id,
          .role = options_.torchrun.role,
          .error_folder = context_.error_folder,
          .world = options_.ranks,
          .ranks = options_.ranks,
          .attempt = restarts,
          .restarts = restarts,
          .restarted = restarts > 0,
          .max_restarts = options_.supervision.max_restarts,
          .cores = cores_with_time(),
          .gpus = options_.placement.gpus,
          .gpus_per_rank = options_.placement.gpus_per_rank};
}

Status AttemptRunner::run(JobIdentity job, const std::function<void()>& when_started) {
  ActivityBoard board(options_.ranks);
  job.activity = board.path();
  Supervisor supervisor(loop_, relay_, descendants_,
                        {.attempt = job.attempt,
                         .job_deadline = deadline_,
                         .grace = options_.supervision.grace,
                         .on_failure = [&board] { board.tell_of_failure(); }});
  supervisor_ = &supervisor;
  Status started = run_ranks(job, supervisor, board, when_started);
  monitor_.end_attempt();
  supervisor_ = nullptr;
  all_ended_ = descendants_.kill_all(kLeftoverLimit);
  for (int rank = 0; rank < job.ranks; ++rank) relay_.drain(job.first_rank + rank);
  if (started.ok()) close_attempt(supervisor, board);
  return started;
}

// To their end. An exception is an error as any other: whatever runs is to be ended.
Status AttemptRunner::run_ranks(const JobIdentity& job, Supervisor& supervisor,
                                const ActivityBoard& board,
                                const std::function<void()>& when_started) {
  try {
    SpawnCrew crew;
    DLAUNCH_RETURN_IF_ERROR(start_ranks(job, crew, supervisor));
    monitor_.begin_attempt(job, supervisor, board);
    if (when_started) when_started();
    supervisor.run();
    return {};
  } catch (const std::exception& error) {
    return Status(StatusCode::kIo, error.what());
  }
}

Status AttemptRunner::start_ranks(const JobIdentity& job, SpawnCrew& crew, Supervisor& supervisor) {
  const SpawnPlan plan{.path = context_.program,
                       .command = options_.command,
                       .signal_mask = context_.signals.original,
                       .inherited = context_.inherited,
                       .terminal_group = context_.terminal_group};
  const auto input = StandardInput::open(options_.output.standard_input, job.first_rank, job.ranks,
                                         context_.terminal_group);
  if (!input.ok()) return input.status();
  supervisor.leave_alone(input->copier());
  const std::vector<RankStart> starts = plan_ranks(options_, job, *input);
  relay_.begin_attempt();
  DLAUNCH_RETURN_IF_ERROR(keep_logs(job, starts));
  return crew.start(plan, starts, job.cores,
                    [&](Rank started) { supervisor.add(std::move(started)); });
}

// Before anything has run another folder may still be chosen; after that the job goes on without
// files.
Status AttemptRunner::keep_logs(const JobIdentity& job, const std::vector<RankStart>& starts) {
  bool told = false;
  for (const RankStart& start : starts) {
    Status kept = relay_.keep_logs(job.attempt, start.rank);
    if (kept.ok()) continue;
    if (job.attempt == 0) return kept;
    if (!std::exchange(told, true)) {
      relay_.write_line("dlaunch: " + kept.to_string() +
                        "; the job goes on, what cannot be written is not kept");
    }
  }
  return {};
}

// Completes what is known of an attempt that has ended.
void AttemptRunner::close_attempt(const Supervisor& supervisor, const ActivityBoard& board) {
  AttemptOutcome attempt = supervisor.outcome();
  attempt.limit = options_.supervision.timeout.value_or(std::chrono::nanoseconds());
  add_post_mortem(attempt, {.relay = relay_,
                            .board = board,
                            .kernel = kernel_,
                            .host = outcome_.host,
                            .error_folder = context_.error_folder,
                            .start = supervisor.start(),
                            .ready_after = options_.supervision.ready_after});
  remove_error_files(context_.error_folder);
  // Only a report tells of those before; there may be very many.
  if (options_.supervision.report.empty() && !outcome_.attempts.empty()) {
    outcome_.attempts.back() = AttemptOutcome();
  }
  outcome_.attempts.push_back(std::move(attempt));
}

void AttemptRunner::tell_about(const AttemptOutcome& attempt) {
  if (attempt.failure) relay_.reveal(attempt.failure->rank);
  const bool shown = attempt.failure && relay_.shown_last(attempt.failure->rank);
  const bool interrupted =
      attempt.cause == AttemptOutcome::Cause::kSignal && attempt.signal == SIGINT;
  // Behind ^C, which the terminal shows, and perhaps a progress bar on stdout.
  if (interrupted && relay_.writes_to_terminal()) relay_.write_line("");
  for (const std::string& line : make_report(attempt, !shown)) relay_.write_line(line);
}

bool AttemptRunner::finish_output() {
  return relay_.finish(patience_with_readers(), loses_patience());
}

bool AttemptRunner::wait_for_reader(int descriptor) {
  bool ready = false;
  bool late = false;
  if (!loop_.add(descriptor, EPOLLOUT, [&] { ready = true; })) return true;
  std::optional<EventLoop::TimerId> timer;
  if (const auto patience = patience_with_readers()) {
    timer = loop_.call_at(EventLoop::Clock::now() + *patience, [&] { late = true; });
  }
  const auto give_up = loses_patience();
  while (!ready && !late && !give_up()) loop_.run_once();
  if (timer) loop_.cancel(*timer);
  loop_.remove(descriptor);
  return ready;
}

// How long a reader may read nothing; without a limit if nobody has told the job to end.
std::optional<std::chrono::milliseconds> AttemptRunner::patience_with_readers() const {
  const bool timed_out = deadline_ && EventLoop::Clock::now() >= *deadline_;
  if (!stopped() && !timed_out) return std::nullopt;
  return kReaderPatience;
}

// Whether the user does, from now on.
std::function<bool()> AttemptRunner::loses_patience() const {
  return [this, before = interruptions_] { return guard_gone_ || interruptions_ != before; };
}

void AttemptRunner::end_elsewhere() {
  if (supervisor_ != nullptr) supervisor_->end_elsewhere();
}

void AttemptRunner::on_signal(int signal, bool seen_by_terminal_group) {
  const bool interrupts = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  if ((interrupts || signal == SIGQUIT) && is_repetition(signal)) return;
  if (signal == SIGQUIT) return monitor_.report("what the ranks are doing (SIGQUIT):");
  if (signal == SIGTSTP || signal == SIGCONT) monitor_.set_stopped(signal == SIGTSTP);
  if (interrupts) {
    interrupted_by_ = signal;
    ++interruptions_;
  }
  if (supervisor_ != nullptr) supervisor_->handle_signal(signal, seen_by_terminal_group);
}

// What is sent once may come twice: `timeout` signals its child and then the child's group, and
// `pkill dlaunch` finds the guard, which passes the signal on, and the launcher.
bool AttemptRunner::is_repetition(int signal) {
  const auto now = EventLoop::Clock::now();
  const auto [last, is_first] = last_signals_.try_emplace(signal, now);
  if (is_first) return false;
  if (now - last->second < kSameSignal) return true;
  last->second = now;
  return false;
}

void AttemptRunner::on_guard_gone() {
  loop_.remove(context_.guard_pipe);
  guard_gone_ = true;
  if (when_guard_goes_) when_guard_goes_();
  if (supervisor_ != nullptr) supervisor_->abandon();
}

}  // namespace dlaunch
