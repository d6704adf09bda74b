// SeveralNodes: this node's part of a job on several. The nodes share one store and one secret;
// attempts (rounds) are kept apart by the beginning of their keys. Belongs to the event loop's
// thread.
#pragma once

#include <cstdint>

#include "launcher/job/attempt_runner.h"
#include "launcher/job/job_end.h"
#include "launcher/job/launch_context.h"
#include "launcher/nodes/node_look.h"
#include "launcher/nodes/node_session.h"

namespace dlaunch {

class SeveralNodes {
 public:
  /// Both outlive it. `master_port`: for the first round, should this be its first node.
  SeveralNodes(AttemptRunner& runner, const LaunchContext& context, std::uint16_t master_port);
  ~SeveralNodes();
  SeveralNodes(const SeveralNodes&) = delete;
  SeveralNodes& operator=(const SeveralNodes&) = delete;

  /// Takes part until the job has ended on all nodes.
  JobEnd run();

 private:
  JobIdentity identity_in(const RoundRecord& round) const;
  Status check_options(const RoundRecord& round) const;
  Status run_round(const RoundRecord& round);
  void end_round(const RoundRecord& round, const Status& launched);
  void collect_outcomes(const RoundRecord& round, const VerdictRecord& verdict,
                        AttemptOutcome& attempt);
  bool interrupted() const { return runner_.stopped() || timed_out_; }
  EndedRecord interruption() const;
  std::optional<NodeSession::Departure> departure() const;
  JobEnd end() const;
  void tell_if_nothing_runs();
  void tell_without_verdict(const AttemptOutcome& attempt);
  void tell_what_counts(const RoundRecord& round);

  AttemptRunner& runner_;
  const LaunchContext& context_;
  NodeSession session_;
  const NodeLook look_;
  bool told_what_counts_ = false;
  bool timed_out_ = false;  // --timeout passed
  bool leaves_ = false;     // its user has ended the last round that it had
};

}  // namespace dlaunch
