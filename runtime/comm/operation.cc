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

MessageEnd Operation::message_end() const {
  return {.signature = message.signature,
          .tag = message.tag.sequence,
          .peer = message.peer,
          .outgoing = outgoing};
}

std::string Operation::name() const {
  return is_collective() ? describe_numbered(assignment.signature, sequence)
                         : describe_message(message_end());
}

std::vector<int> Operation::waiting_for() const {
  if (!is_collective())
    return message.peer == kAnyRank ? std::vector<int>() : std::vector{message.peer};
  return shared ? shared_execution.waiting_for() : execution.waiting_for();
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
