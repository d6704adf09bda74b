#include "runtime/comm/operation.h"

#include "runtime/collective/signature.h"

namespace dlaunch {

std::string Operation::name() const {
  const std::string call = describe_call(assignment.signature);
  const std::size_t space = call.find(' ');
  const std::string kind = call.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : call.substr(space);
  if (is_collective()) return kind + " #" + std::to_string(sequence) + rest;

  const PlanStep& step = plan->steps.front();
  std::string text = outgoing ? "send" + rest + " to rank " + std::to_string(step.sends[0].peer)
                              : "recv" + rest + " from rank " + std::to_string(step.recvs[0].peer);
  if (assignment.tag.sequence != 0) text += " tag " + std::to_string(assignment.tag.sequence);
  return text;
}

}  // namespace dlaunch
