#include "runtime/collective/executor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/collective/reduction.h"

namespace dlaunch {
namespace {

// How many segments of a message may be on their way while an earlier one is reduced.
constexpr std::size_t kStagingSlots = 4;

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

// A scratch vector's length in bytes may differ from run to run; its memory only grows.
std::byte* at_least(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
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

std::size_t PlanExecution::segments_of(std::size_t count) const {
  return std::max<std::size_t>(1, (count + segment_elements_ - 1) / segment_elements_);
}

Slice PlanExecution::segment(Slice whole, std::size_t index) const {
  const std::size_t begin = index * segment_elements_;
  return {whole.region, whole.offset + begin, std::min(segment_elements_, whole.count - begin)};
}

void PlanExecution::start(const Assignment& assignment) {
  assignment_ = assignment;
  segment_elements_ = kSegmentBytes / size_of(assignment.dtype);
  step_ = 0;
  done_ = false;
  status_ = Status();
  at_least(scratch_, bytes(assignment.plan->scratch));
  begin_step();
}

void PlanExecution::begin_step() {
  if (step_ == assignment_.plan->steps.size()) return end(Status());
  const PlanStep& step = assignment_.plan->steps[step_];
  for (const PlannedCopy& copy : step.copies) {
    std::byte* into = address(copy.into);
    const std::byte* from = address(copy.from);
    // In place, the two are the same memory, or (reduce_scatter) overlap.
    if (copy.into.count > 0 && into != from) std::memmove(into, from, bytes(copy.into.count));
  }
  if (assignment_.op == ReduceOp::kAvg) {
    for (const Slice& slice : step.divisions) {
      divide(assignment_.dtype, address(slice), slice.count, endpoint_.world_size());
    }
  }
  lay_out_recvs(step);
  // Receives first: a message that finds its receive posted is not copied.
  for (Incoming& incoming : incoming_) {
    while (incoming.posted < std::min(incoming.slots, incoming.segments)) post_recv(incoming);
  }
  post_sends(step);
}

// Sizes transfers_ and staging_ for the whole step, because neither may move once transfers are in
// flight.
void PlanExecution::lay_out_recvs(const PlanStep& step) {
  send_count_ = 0;
  sends_retired_ = 0;
  for (const PlannedSend& send : step.sends) send_count_ += segments_of(send.from.count);
  incoming_.clear();
  recvs_open_ = step.recvs.size();
  std::size_t transfer_count = send_count_;
  std::size_t staging_bytes = 0;
  for (const PlannedRecv& recv : step.recvs) {
    Incoming incoming{.planned = &recv, .first = transfer_count, .staging = staging_bytes};
    incoming.segments = segments_of(recv.into.count);
    const std::size_t size = bytes(recv.into.count);
    incoming.staged = recv.landing != Landing::kCopy && needs_staging(step, recv);
    incoming.slots =
        incoming.staged ? std::min(kStagingSlots, incoming.segments) : incoming.segments;
    transfer_count += incoming.slots;
    if (incoming.staged) staging_bytes += std::min(size, incoming.slots * kSegmentBytes);
    incoming_.push_back(incoming);
  }
  if (transfers_.size() < transfer_count) transfers_.resize(transfer_count);
  at_least(staging_, staging_bytes);
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

void PlanExecution::prepare(Transfer& transfer, int peer, std::byte* data, std::size_t size) const {
  transfer.reset();
  transfer.peer = peer;
  transfer.tag = assignment_.tag;
  transfer.signature = assignment_.signature;
  transfer.data = data;
  transfer.bytes = size;
}

void PlanExecution::post_sends(const PlanStep& step) {
  std::size_t next = 0;
  for (const PlannedSend& send : step.sends) {
    for (std::size_t i = 0; i < segments_of(send.from.count); ++i) {
      const Slice part = segment(send.from, i);
      Transfer& transfer = transfers_[next++];
      prepare(transfer, send.peer, address(part), bytes(part.count));
      endpoint_.start_send(transfer);
    }
  }
}

void PlanExecution::post_recv(Incoming& incoming) {
  const std::size_t slot = incoming.posted % incoming.slots;
  const Slice part = segment(incoming.planned->into, incoming.posted++);
  std::byte* data =
      incoming.staged ? staging_.data() + incoming.staging + slot * kSegmentBytes : address(part);
  Transfer& transfer = transfers_[incoming.first + slot];
  prepare(transfer, incoming.planned->peer, data, bytes(part.count));
  endpoint_.start_recv(transfer);
}

bool PlanExecution::advance() {
  bool progress = false;
  while (!done_) {
    bool moved = retire_sends();
    for (Incoming& incoming : incoming_) {
      if (!done_) moved = receive(incoming) || moved;
    }
    progress = progress || moved;
    if (done_) break;
    if (recvs_open_ == 0 && sends_retired_ == send_count_) {
      ++step_;
      begin_step();
      progress = true;
    } else if (!moved) {
      break;
    }
  }
  return progress;
}

bool PlanExecution::retire_sends() {
  const std::size_t before = sends_retired_;
  while (sends_retired_ < send_count_ && transfers_[sends_retired_].done()) {
    const Status& status = transfers_[sends_retired_].status();
    if (!status.ok()) {
      end(status);
      return true;
    }
    ++sends_retired_;
  }
  return sends_retired_ != before;
}

// Takes in the segments that have arrived, in order.
bool PlanExecution::receive(Incoming& incoming) {
  bool moved = false;
  while (incoming.landed < incoming.posted) {
    const std::size_t index = incoming.landed;
    const Transfer& transfer = transfers_[incoming.first + index % incoming.slots];
    if (!transfer.done()) break;
    if (!transfer.status().ok()) {
      end(transfer.status());
      return true;
    }
    if (incoming.staged && send_reads(segment(incoming.planned->into, index))) break;
    land(incoming, index);
    ++incoming.landed;
    moved = true;
    if (incoming.posted < incoming.segments) post_recv(incoming);
    if (incoming.landed == incoming.segments) --recvs_open_;
  }
  return moved;
}

// True while a send of this step still reads memory that `slice` covers.
bool PlanExecution::send_reads(Slice slice) const {
  const std::byte* begin = address(slice);
  for (std::size_t i = sends_retired_; i < send_count_; ++i) {
    const Transfer& send = transfers_[i];
    if (!send.done() && overlap(begin, bytes(slice.count), send.data, send.bytes)) return true;
  }
  return false;
}

void PlanExecution::land(const Incoming& incoming, std::size_t index) {
  const PlannedRecv& recv = *incoming.planned;
  if (recv.landing == Landing::kCopy) return;
  const Slice part = segment(recv.into, index);
  std::byte* into = address(part);
  std::byte* with = address(segment(recv.with, index));
  std::byte* received = transfers_[incoming.first + index % incoming.slots].data;
  const bool received_left = recv.landing == Landing::kReduceReceivedFirst;
  if (into == with) {  // received into staging, reduced onto what is there
    accumulate(assignment_.op, assignment_.dtype, into, received, part.count,
               received_left ? AccumulatorSide::kRight : AccumulatorSide::kLeft);
    return;
  }
  accumulate(assignment_.op, assignment_.dtype, received, with, part.count,
             received_left ? AccumulatorSide::kLeft : AccumulatorSide::kRight);
  if (received != into) std::memcpy(into, received, bytes(part.count));
}

std::vector<int> PlanExecution::waiting_for() const {
  std::vector<int> peers;
  if (done_) return peers;
  for (std::size_t i = sends_retired_; i < send_count_; ++i) {
    if (!transfers_[i].done()) peers.push_back(transfers_[i].peer);
  }
  for (const Incoming& incoming : incoming_) {
    if (incoming.landed < incoming.segments) peers.push_back(incoming.planned->peer);
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
  for (std::size_t i = sends_retired_; i < send_count_; ++i) {
    if (!transfers_[i].done()) endpoint_.cancel(transfers_[i], status);
  }
  for (const Incoming& incoming : incoming_) {
    for (std::size_t i = incoming.landed; i < incoming.posted; ++i) {
      Transfer& transfer = transfers_[incoming.first + i % incoming.slots];
      if (!transfer.done()) endpoint_.cancel(transfer, status);
    }
  }
}

}  // namespace dlaunch
