#include "runtime/comm/operation.h"

#include "runtime/collective/signature.h"

namespace dlaunch {

std::string Operation::name() const {
  const std::string call = describe_call(signature());
  const std::size_t space = call.find(' ');
  const std::string kind = call.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : call.substr(space);
  if (is_collective()) return kind + " #" + std::to_string(sequence) + rest;

  std::string text = (outgoing ? "send" + rest + " to rank " : "recv" + rest + " from rank ") +
                     std::to_string(message.peer);
  if (message.tag.sequence != 0) text += " tag " + std::to_string(message.tag.sequence);
  return text;
}

}  // namespace dlaunch
