#include "runtime/comm/lane.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "runtime/collective/reduction.h"
#include "runtime/collective/selection.h"
#include "runtime/comm/validation.h"

namespace dlaunch {
namespace {

// How long a collective stands still before its rank announces it; less if its time is short.
constexpr std::chrono::nanoseconds kStandstill = std::chrono::milliseconds(300);

std::chrono::nanoseconds standstill(std::chrono::nanoseconds timeout) {
  return std::min(kStandstill, timeout / 4);
}

Algorithm resolve(const CollectiveCall& call, int world) {
  if (call.kind != CollectiveKind::kAllReduce || call.algorithm != Algorithm::kAuto) {
    return call.algorithm;
  }
  return choose_all_reduce(call.output.bytes(), world);
}

// Unequal parts; equal ones are the same operation whether they were written out or not.
std::span<const std::size_t> unequal_counts(const CollectiveCall& call) {
  const bool equal = std::ranges::all_of(
      call.counts, [&](std::size_t count) { return count == call.counts.front(); });
  return equal ? std::span<const std::size_t>() : call.counts;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllReduce;
}

// "rank 3", "ranks 1, 4 and 7", "ranks 1, 2, 3, ... (250 in all)".
std::string list_of(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;
  if (ranks.empty()) return "its own work";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMost) return text + ", ... (" + std::to_string(ranks.size()) + " in all)";
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string in_seconds(std::chrono::nanoseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

Lane::Lane(std::unique_ptr<Endpoint> endpoint)
    : rank_(endpoint->rank()),
      world_(endpoint->world_size()),
      plans_(rank_, world_),
      announcements_(std::make_unique<Announcements>(*endpoint)),
      endpoint_(std::move(endpoint)) {}

std::unique_ptr<Operation> Lane::prepare(const Request& request, std::chrono::nanoseconds timeout) {
  std::unique_ptr<Operation> operation;
  if (spare_.empty()) {
    operation = std::make_unique<Operation>(*endpoint_);
  } else {
    operation = std::move(spare_.back());
    spare_.pop_back();
  }
  operation->widened = false;
  operation->announced = false;
  operation->timeout = timeout;
  operation->deadline = Deadline::after(timeout);
  operation->announce_at = Deadline::after(standstill(timeout));
  if (const auto* call = std::get_if<CollectiveCall>(&request)) {
    prepare_collective(*operation, *call);
  } else {
    prepare_message(*operation, std::get<MessageCall>(request));
  }
  return operation;
}

void Lane::recycle(std::unique_ptr<Operation> operation) {
  operation->plan.reset();
  operation->outcome.reset();
  spare_.push_back(std::move(operation));
}

void Lane::prepare_collective(Operation& operation, const CollectiveCall& asked) {
  CollectiveCall call = asked;
  call.algorithm = resolve(asked, world_);
  call.counts = unequal_counts(asked);
  const DType dtype = call.kind == CollectiveKind::kGather ||
                              call.kind == CollectiveKind::kAllGather ||
                              call.kind == CollectiveKind::kReduce
                          ? call.input.dtype
                          : call.output.dtype;
  const bool barrier = call.kind == CollectiveKind::kBarrier;
  operation.sequence = next_sequence_++;
  operation.plan = plans_.plan_for(call);
  operation.assignment = {
      .plan = operation.plan.get(),
      .input = static_cast<const std::byte*>(call.input.data),
      .output = static_cast<std::byte*>(call.output.data),
      .dtype = barrier ? DType::kU8 : dtype,
      .op = call.op,
      .tag = {.sequence = operation.sequence,
              .context = static_cast<std::uint32_t>(Traffic::kCollective)},
      .signature = {
          .count = total_count(call, rank_, world_),
          .root = call.root,
          .operation = static_cast<std::uint8_t>(call.kind),
          .dtype = static_cast<std::uint8_t>(barrier ? DType::kU8 : dtype),
          .reduce_op = static_cast<std::uint8_t>(reduces(call.kind) ? call.op : ReduceOp::kSum),
          .algorithm = static_cast<std::uint8_t>(call.algorithm),
          .extra = signature_extra(hash_counts(call.counts), history_.hash())}};
  history_.append(operation.assignment.signature);
  const bool integer = dtype == DType::kI32 || dtype == DType::kU8;
  if (reduces(call.kind) && call.op == ReduceOp::kAvg && integer) widen_average(operation, call);
}

void Lane::widen_average(Operation& operation, const CollectiveCall& call) {
  const bool receives = call.kind != CollectiveKind::kReduce || call.root == rank_;
  operation.widened = true;
  operation.narrow_input = call.input;
  operation.narrow_output = receives ? call.output : Buffer();
  operation.assignment.dtype = DType::kI64;
}

void Lane::prepare_message(Operation& operation, const MessageCall& call) {
  operation.sequence = 0;
  operation.outgoing = call.outgoing;
  operation.plan = plans_.plan_for_message(call.outgoing, call.peer, call.data.count);
  auto* data = static_cast<std::byte*>(call.data.data);
  operation.assignment = {
      .plan = operation.plan.get(),
      .input = data,
      .output = data,
      .dtype = call.data.dtype,
      .tag = {.sequence = call.tag, .context = static_cast<std::uint32_t>(Traffic::kPointToPoint)},
      .signature = {.count = call.data.count,
                    .operation = kPointToPointOperation,
                    .dtype = static_cast<std::uint8_t>(call.data.dtype)}};
}

void Lane::start(Operation& operation) {
  if (operation.is_collective()) {
    const Status clash =
        announcements_->entered(operation.sequence, operation.assignment.signature);
    if (!clash.ok()) endpoint_->fail(clash);
  }
  if (operation.widened) {
    const ConstBuffer& input = operation.narrow_input;
    operation.wide_input.resize(input.count);
    operation.wide_output.resize(operation.narrow_output.count);
    widen(input.dtype, input.data, operation.wide_input.data(), input.count);
    operation.assignment.input = reinterpret_cast<const std::byte*>(operation.wide_input.data());
    operation.assignment.output = reinterpret_cast<std::byte*>(operation.wide_output.data());
  }
  operation.execution.start(operation.assignment);
}

bool Lane::drive(Operation& operation) {
  if (operation.execution.advance()) {
    operation.announce_at = Deadline::after(standstill(operation.timeout));
  }
  if (!operation.execution.done()) watch(operation);
  if (!operation.execution.done()) return false;
  const Buffer& output = operation.narrow_output;
  if (operation.widened && operation.execution.status().ok()) {
    narrow(output.dtype, operation.wide_output.data(), output.data, output.count);
  }
  return true;
}

// Looks after an operation that waits.
void Lane::watch(Operation& operation) {
  if (operation.deadline.expired()) return give_up(operation, timed_out(operation));
  if (!operation.is_collective()) return;
  if (!operation.announced && operation.announce_at.expired()) {
    operation.announced = true;
    announcements_->announce(operation.sequence, operation.assignment.signature);
  }
  if (!operation.announced) return;
  if (const Status clash = announcements_->check(); !clash.ok()) give_up(operation, clash);
}

void Lane::give_up(Operation& operation, const Status& why) {
  operation.execution.cancel(why);
  endpoint_->fail(why);  // even if nothing of it was in flight
}

Status Lane::timed_out(const Operation& operation) const {
  // Of the ranks waited for, those that are in the same collective only wait themselves.
  std::vector<int> missing = operation.execution.waiting_for();
  if (operation.announced) {
    const std::vector<int> silent = announcements_->silent(operation.sequence);
    std::vector<int> both;
    std::ranges::set_intersection(missing, silent, std::back_inserter(both));
    if (!both.empty()) {
      missing = both;
    } else if (!silent.empty()) {
      missing = silent;
    }
  }
  return Status(StatusCode::kTimeout, "timed out after " + in_seconds(operation.timeout) +
                                          " waiting for " + list_of(missing));
}

Status Lane::result(const Operation& operation) const {
  const Status& status = operation.execution.status();
  if (status.ok()) return status;
  std::string name = operation.name();
  // Calls that look alike may follow different ones (see CallHistory).
  if (status.code() == StatusCode::kMismatch && operation.sequence > 1) {
    name += " after " + describe_call(announcements_->own(operation.sequence - 1));
  }
  return status.within(std::move(name));
}

Deadline Lane::next_check(const Operation& operation) {
  if (!operation.is_collective() || operation.announced) return operation.deadline;
  return earliest(operation.deadline, operation.announce_at);
}

}  // namespace dlaunch
