#include "runtime/comm/operation.h"

#include "runtime/collective/signature.h"

namespace dlaunch {

void Operation::begin() {
  if (copy.used()) {
    copy.load();
    assignment.input = copy.input();
    assignment.output = copy.output();
    shared_assignment.input = copy.input();
    shared_assignment.output = copy.output();
  }
  if (shared) {
    shared_execution.start(shared_assignment);
  } else {
    execution.start(assignment);
  }
}

void Operation::cancel(const Status& why) {
  if (shared) {
    shared_execution.cancel(why);
  } else {
    execution.cancel(why);
  }
}

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

ActivityReporter::Call Operation::activity() const {
  if (!is_collective()) {
    return {.kind = outgoing ? ActivityKind::kSend : ActivityKind::kReceive,
            .tag = message.tag.sequence,
            .dtype = static_cast<DType>(message.signature.dtype),
            .count = message.signature.count,
            .bytes = message.bytes,
            .peer = message.peer};
  }
  const MessageSignature& call = assignment.signature;
  const auto dtype = static_cast<DType>(call.dtype);
  const std::size_t element = assignment.record != nullptr ? record.bytes : size_of(dtype);
  return {.operation = to_string(static_cast<CollectiveKind>(call.operation)),
          .sequence = sequence,
          .dtype = dtype,
          .count = call.count,
          .bytes = call.count * element};
}

}  // namespace dlaunch
