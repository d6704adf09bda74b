// What a node tells the others when a round of their job has ended, and what its user is told.
#pragma once

#include <string>
#include <vector>

#include "launcher/failure/outcome.h"
#include "launcher/nodes/node_records.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// For the coordinator. not_started: the ranks could not be started.
EndedRecord ended_record(const AttemptOutcome& attempt);
EndedRecord not_started(const Status& why, int exit_code);

/// Whether the failure that the verdict calls the first is the one of this attempt.
bool is_about(const VerdictRecord& verdict, const AttemptOutcome& attempt);

/// Puts what the verdict says into the attempt: whose failure was the first, and why it ended.
void take_verdict(const VerdictRecord& verdict, AttemptOutcome& attempt);

/// The verdict's lines for a node other than the one whose rank failed; none if all went well.
std::vector<std::string> make_node_report(const VerdictRecord& verdict);

/// What is done after it: "dlaunch: restart in 1.00 s", or who has to come first, or why it is not;
/// empty if that was the end.
std::string describe_next(const VerdictRecord& verdict);

}  // namespace dlaunch
