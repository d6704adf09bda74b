#include "launcher/launch_job.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "launcher/binding.h"
#include "launcher/descendants.h"
#include "launcher/event_loop.h"
#include "launcher/free_port.h"
#include "launcher/output_relay.h"
#include "launcher/rank_environment.h"
#include "launcher/report.h"
#include "launcher/spawn.h"
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

int fail(const std::string& why, int exit_code = kLauncherFailure) {
  std::fprintf(stderr, "dlaunch: %s\n", why.c_str());
  return exit_code;
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

// Reads signals from a signalfd and hands them to the supervisor.
class SignalSource {
 public:
  SignalSource(EventLoop& loop, Supervisor& supervisor, const sigset_t& signals)
      : loop_(loop),
        supervisor_(supervisor),
        descriptor_(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)) {
    if (descriptor_.get() < 0) {
      throw std::system_error(errno, std::generic_category(), "signalfd");
    }
    loop_.add(descriptor_.get(), EPOLLIN, [this] { read_signals(); });
  }
  ~SignalSource() { loop_.remove(descriptor_.get()); }
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

 private:
  void read_signals() {
    signalfd_siginfo info{};
    while (read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        // After the other events of this round, so that ranks are seen in the order they ended.
        loop_.call_at(EventLoop::Clock::now(), [this] { supervisor_.reap_children(); });
      } else {
        // The guard, which passes signals on, attaches whether the terminal has sent it.
        supervisor_.handle_signal(signal, info.ssi_code == SI_QUEUE && info.ssi_int != 0);
      }
    }
  }

  EventLoop& loop_;
  Supervisor& supervisor_;
  Descriptor descriptor_;
};

std::string make_job_id() {
  return token_to_hex(make_token()).substr(0, 12);
}

Status start_ranks(const LaunchContext& context, const JobIdentity& job, Supervisor& supervisor) {
  const SpawnPlan plan{.path = context.program,
                       .command = context.options.command,
                       .signal_mask = context.signals.original,
                       .inherited = context.inherited,
                       .terminal_group = context.terminal_group,
                       .cores = context.options.placement.bind == PlacementOptions::Bind::kCore
                                    ? core_shares(job.ranks)
                                    : std::vector<cpu_set_t>()};
  for (int rank = 0; rank < job.ranks; ++rank) {
    auto started = spawn_rank(plan, rank, rank_environment(job, rank, environ));
    if (!started.ok()) return started.status();
    supervisor.add(*std::move(started));
  }
  return {};
}

void write_report(const JobOutcome& outcome, OutputRelay& relay) {
  std::vector<std::string> last_lines;
  if (outcome.first_failed && !relay.shown_last(*outcome.first_failed)) {
    last_lines = relay.last_lines(*outcome.first_failed);
  }
  for (const std::string& line : make_report(outcome, last_lines)) relay.write_line(line);
}

}  // namespace

int launch_job(const LaunchContext& context) {
  raise_descriptor_limit();
  const JobOptions& options = context.options;
  JobIdentity job{.job_id = make_job_id(),
                  .token = make_token(),
                  .ranks = options.ranks,
                  .cores = usable_cores()};
  auto store = StoreServer::start(
      {.port = options.nodes.store_port, .token = job.token, .logger = make_logger("dlaunch")});
  if (!store.ok()) return fail(store.status().to_string());
  job.store_address = "127.0.0.1:" + std::to_string((*store)->port());
  const auto master_port = find_free_port();
  if (!master_port) return fail("no free port for MASTER_PORT");
  job.master_port = *master_port;

  EventLoop loop;
  OutputRelay relay(loop, STDERR_FILENO);
  Supervisor supervisor(loop, relay, options.supervision);
  const SignalSource signals(loop, supervisor, context.signals.handled);
  bool guard_gone = false;
  loop.add(context.guard_pipe, EPOLLIN, [&] {
    guard_gone = true;
    loop.remove(context.guard_pipe);
    supervisor.abandon();
  });

  const Status started = start_ranks(context, job, supervisor);
  if (!started.ok()) {
    kill_all_descendants(kLeftoverLimit);
    return fail(started.to_string(), exit_code_of(started));
  }
  supervisor.run();
  const bool all_ended = kill_all_descendants(kLeftoverLimit);
  for (int rank = 0; rank < options.ranks; ++rank) relay.drain(rank);
  if (guard_gone) {
    relay.write_line("dlaunch: its guarding process was killed; all ranks were ended");
  } else {
    write_report(supervisor.outcome(), relay);
  }
  if (!all_ended) relay.write_line("dlaunch: some processes of the job could not be killed");
  relay.flush(kFlushLimit);
  return guard_gone ? kLauncherFailure : supervisor.outcome().exit_code();
}

}  // namespace dlaunch
