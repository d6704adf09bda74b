#include "runtime/collective/executor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/collective/scratch.h"

namespace dlaunch {
namespace {

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

}  // namespace

std::byte* PlanExecution::address(Slice slice) const {
  std::byte* base = nullptr;
  switch (slice.region) {
    case Region::kInput:
      base = const_cast<std::byte*>(assignment_.input);  // a send only reads it
      break;
    case Region::kOutput:
      base = assignment_.output;
      break;
    case Region::kScratch:
      base = const_cast<std::byte*>(scratch_.data());
      break;
  }
  return slice.count == 0 ? base : base + bytes(slice.offset);
}

Slice PlanExecution::segment(Slice whole, std::size_t index) const {
  const std::size_t begin = index * segment_elements_;
  return {whole.region, whole.offset + begin, std::min(segment_elements_, whole.count - begin)};
}

void PlanExecution::start(const Assignment& assignment) {
  done_ = false;
  status_ = Status();
  assignment_ = assignment;
  elements_.assign(assignment.dtype, assignment.op, assignment.record, endpoint_.world_size());
  segment_elements_ = std::max<std::size_t>(1, kSegmentBytes / elements_.size());
  step_ = 0;
  at_least(scratch_, bytes(assignment.plan->scratch));
  begin_step();
}

void PlanExecution::begin_step() {
  if (step_ == assignment_.plan->steps.size()) return end(Status());
  const PlanStep& step = assignment_.plan->steps[step_];
  compute(step);
  lay_out(step);
  // Receives first: a message that finds its receive posted is not copied.
  for (Incoming& incoming : incoming_) {
    while (incoming.posted < incoming.slots) post_recv(incoming);
  }
  for (Message& outgoing : outgoing_) {
    while (outgoing.posted < outgoing.slots) post_send(outgoing);
  }
}

void PlanExecution::compute(const PlanStep& step) {
  for (const PlannedCopy& copy : step.copies) {
    std::byte* into = address(copy.into);
    const std::byte* from = address(copy.from);
    // In place, the two are the same memory, or (reduce_scatter) overlap.
    if (copy.into.count > 0 && into != from) std::memmove(into, from, bytes(copy.into.count));
  }
  for (const PlannedReduction& reduction : step.reductions) {
    operands_.clear();
    for (const Slice& operand : reduction.operands) operands_.push_back(address(operand));
    elements_.reduce(address(reduction.into), operands_, reduction.into.count, reduction.complete);
  }
  for (const Slice& slice : step.divisions) elements_.divide(address(slice), slice.count);
}

// Sizes transfers_ and staging_ for the whole step, because neither may move once transfers are in
// flight.
void PlanExecution::lay_out(const PlanStep& step) {
  outgoing_.clear();
  incoming_.clear();
  transfers_used_ = 0;
  open_ = step.sends.size() + step.recvs.size();
  for (const PlannedSend& send : step.sends) {
    outgoing_.push_back(message(send.from, send.peer, kSegmentsInFlight));
  }
  std::size_t staging_bytes = 0;
  for (const PlannedRecv& recv : step.recvs) {
    const bool staged = recv.landing != Landing::kCopy && needs_staging(step, recv);
    Incoming incoming{message(recv.into, recv.peer, staged ? kSegmentsInFlight : SIZE_MAX), &recv,
                      staged, staging_bytes};
    if (staged) staging_bytes += std::min(bytes(recv.into.count), incoming.slots * segment_bytes());
    incoming_.push_back(incoming);
  }
  if (transfers_.size() < transfers_used_) transfers_.resize(transfers_used_);
  at_least(staging_, staging_bytes);
}

PlanExecution::Message PlanExecution::message(Slice slice, int peer, std::size_t most_slots) {
  // A count of zero is a message too.
  const std::size_t segments =
      std::max<std::size_t>(1, (slice.count + segment_elements_ - 1) / segment_elements_);
  const std::size_t slots = std::min(segments, most_slots);
  const std::size_t first = std::exchange(transfers_used_, transfers_used_ + slots);
  return {.slice = slice, .peer = peer, .first = first, .slots = slots, .segments = segments};
}

// True unless the message can be received where it will be reduced: that memory must hold neither
// the other operand nor, if the caller made output and input overlap, what this step still sends.
bool PlanExecution::needs_staging(const PlanStep& step, const PlannedRecv& recv) const {
  const std::size_t size = bytes(recv.into.count);
  const auto covers = [&](const Slice& slice) {
    return size > 0 && slice.count > 0 &&
           overlap(address(recv.into), size, address(slice), bytes(slice.count));
  };
  return covers(recv.with) ||
         std::any_of(step.sends.begin(), step.sends.end(),
                     [&](const PlannedSend& send) { return covers(send.from); });
}

void PlanExecution::prepare(Transfer& transfer, const Message& message, std::byte* data,
                            std::size_t size) const {
  transfer.reset();
  transfer.peer = message.peer;
  transfer.tag = assignment_.tag;
  transfer.signature = assignment_.signature;
  if (assignment_.pairwise_counts) transfer.signature.count = message.slice.count;
  transfer.data = data;
  transfer.bytes = size;
}

void PlanExecution::post_send(Message& outgoing) {
  const std::size_t index = outgoing.posted++;
  const Slice part = segment(outgoing.slice, index);
  Transfer& sent = transfer(outgoing, index);
  prepare(sent, outgoing, address(part), bytes(part.count));
  endpoint_.start_send(sent);
}

void PlanExecution::post_recv(Incoming& incoming) {
  const std::size_t index = incoming.posted++;
  const Slice part = segment(incoming.slice, index);
  std::byte* data = incoming.staged ? staging_.data() + incoming.staging +
                                          index % incoming.slots * segment_bytes()
                                    : address(part);
  Transfer& received = transfer(incoming, index);
  prepare(received, incoming, data, bytes(part.count));
  endpoint_.start_recv(received);
}

bool PlanExecution::advance() {
  bool progress = false;
  while (!done_) {
    bool moved = false;
    for (Message& outgoing : outgoing_) {
      if (!done_ && outgoing.open()) moved = advance_send(outgoing) || moved;
    }
    for (Incoming& incoming : incoming_) {
      if (!done_ && incoming.open()) moved = advance_recv(incoming) || moved;
    }
    progress = progress || moved;
    if (done_) break;
    if (open_ == 0) {
      ++step_;
      begin_step();
      progress = true;
    } else if (!moved) {
      break;
    }
  }
  return progress;
}

// Takes note of the segments that have gone, in order, and hands over the next ones.
bool PlanExecution::advance_send(Message& outgoing) {
  bool moved = false;
  while (outgoing.finished < outgoing.posted) {
    const Transfer& sent = transfer(outgoing, outgoing.finished);
    if (!sent.done()) break;
    if (!sent.status().ok()) {
      end(sent.status());
      return true;
    }
    ++outgoing.finished;
    moved = true;
    if (outgoing.posted < outgoing.segments) post_send(outgoing);
    if (!outgoing.open()) --open_;
  }
  return moved;
}

// Takes in the segments that have arrived, in order.
bool PlanExecution::advance_recv(Incoming& incoming) {
  bool moved = false;
  while (incoming.finished < incoming.posted) {
    const std::size_t index = incoming.finished;
    const Transfer& received = transfer(incoming, index);
    if (!received.done()) break;
    if (!received.status().ok()) {
      end(received.status());
      return true;
    }
    if (incoming.staged && send_reads(segment(incoming.slice, index))) break;
    land(incoming, index);
    ++incoming.finished;
    moved = true;
    if (incoming.posted < incoming.segments) post_recv(incoming);
    if (!incoming.open()) --open_;
  }
  return moved;
}

// True while a send of this step is still to read memory that `slice` covers.
bool PlanExecution::send_reads(Slice slice) const {
  return std::any_of(outgoing_.begin(), outgoing_.end(), [&](const Message& outgoing) {
    if (!outgoing.open() || outgoing.slice.count == 0) return false;
    const std::size_t gone = outgoing.finished * segment_elements_;
    return overlap(address(slice), bytes(slice.count), address(outgoing.slice) + bytes(gone),
                   bytes(outgoing.slice.count - gone));
  });
}

void PlanExecution::land(const Incoming& incoming, std::size_t index) {
  const PlannedRecv& recv = *incoming.planned;
  if (recv.landing == Landing::kCopy) return;
  const Slice part = segment(recv.into, index);
  const void* with = address(segment(recv.with, index));
  const void* received = transfer(incoming, index).data;
  const void* operands[] = {with, received};
  if (recv.landing == Landing::kReduceReceivedFirst) std::swap(operands[0], operands[1]);
  elements_.reduce(address(part), operands, part.count, false);
}

std::vector<int> PlanExecution::waiting_for() const {
  std::vector<int> peers;
  if (done_) return peers;
  for (const Message& outgoing : outgoing_) {
    if (outgoing.open()) peers.push_back(outgoing.peer);
  }
  for (const Incoming& incoming : incoming_) {
    if (incoming.open()) peers.push_back(incoming.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void PlanExecution::cancel(const Status& why) {
  if (!done_) end(why);
}

void PlanExecution::end(const Status& status) {
  done_ = true;
  if (status.ok()) return;
  status_ = status.within("step " + std::to_string(step_));
  // Whatever is still in flight refers to memory that the caller is about to get back.
  const auto withdraw = [&](const Message& message) {
    for (std::size_t i = message.finished; i < message.posted; ++i) {
      if (!transfer(message, i).done()) endpoint_.cancel(transfer(message, i), status);
    }
  };
  for (const Message& outgoing : outgoing_) withdraw(outgoing);
  for (const Incoming& incoming : incoming_) withdraw(incoming);
}

}  // namespace dlaunch
