#include "launcher/job/single_node.h"

#include <cstdint>
#include <string>

#include "launcher/base/store_logger.h"
#include "launcher/ranks/free_port.h"
#include "launcher/supervision/restart_policy.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"

namespace dlaunch {
namespace {

// The store cannot be started at --port, or 0 for none: most likely somebody else has the port.
Status with_advice(const Status& why, std::uint16_t port) {
  if (port == 0 || why.code() != StatusCode::kUnavailable) return why;
  return Status(why.code(), why.to_string() + "; take another --port, or none for any free one");
}

Status run_attempt(AttemptRunner& runner, int number, const LaunchContext& context) {
  const NodeSettings& nodes = context.nodes;
  runner.outcome().restarts = number;
  JobIdentity job = runner.identity(number);
  job.token = make_token();
  const auto store = StoreServer::start({.port = context.options.nodes.store_port,
                                         .token = job.token,
                                         .logger = make_store_logger()});
  if (!store.ok()) return with_advice(store.status(), context.options.nodes.store_port);
  job.store_address = "127.0.0.1:" + std::to_string((*store)->port());
  if (!nodes.master_address.empty()) job.master_address = nodes.master_address;
  job.master_port = nodes.master_port;
  if (job.master_port == 0) {
    const auto free_port = find_free_port();
    if (!free_port.ok()) return free_port.status();
    job.master_port = *free_port;
  }
  return runner.run(job);
}

// Waits for the time of the next attempt; false if there is to be none.
bool wait_for_restart(AttemptRunner& runner, RestartPolicy& policy) {
  if (runner.stopped()) return false;
  const auto decision = policy.after(runner.outcome().attempts.back());
  if (decision.restart && !runner.all_ended()) {
    runner.relay().write_line(kNoRestartBesideLeftovers);
    return false;
  }
  const auto resume = EventLoop::Clock::now() + decision.delay;
  if (decision.restart && runner.deadline() && resume >= *runner.deadline()) {
    runner.relay().write_line("dlaunch: no restart: --timeout will have passed");
    return false;
  }
  if (!decision.line.empty()) runner.relay().write_line(decision.line);
  if (!decision.restart) return false;
  bool over = false;
  const auto timer = runner.loop().call_at(resume, [&] { over = true; });
  while (!over && !runner.stopped()) runner.loop().run_once();
  runner.loop().cancel(timer);
  return !runner.stopped();
}

}  // namespace

Status run_on_single_node(AttemptRunner& runner, const LaunchContext& context) {
  const JobOptions& options = context.options;
  RestartPolicy policy(
      {.most = options.supervision.max_restarts, .delay = options.supervision.restart_delay});
  for (int number = 0;; ++number) {
    DLAUNCH_RETURN_IF_ERROR(run_attempt(runner, number, context));
    if (!runner.guard_gone()) runner.tell_about(runner.outcome().attempts.back());
    if (!wait_for_restart(runner, policy)) return {};
  }
}

}  // namespace dlaunch
