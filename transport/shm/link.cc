#include "transport/shm/link.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace dlaunch {
namespace {

// Lines that are read, and fragments that are written, before others get their turn.
constexpr int kLinesPerTurn = 64;
constexpr int kFragmentsPerTurn = 8;
// A fragment fills this part of the bulk area at most, so that writing and reading overlap.
constexpr std::uint32_t kFragmentsPerBulk = 4;

Status garbage(const char* what) {
  return Status(StatusCode::kProtocol, std::string("malformed shared memory: ") + what);
}

}  // namespace

ShmLink::ShmLink(EndpointContext& context, int peer, SharedGroup& group, int member, RingMemory out,
                 RingMemory in)
    : context_(context),
      peer_(peer),
      group_(group),
      member_(member),
      out_(out),
      in_(in),
      receiver_(context, peer),
      fragment_bytes_(out.shape.bulk_bytes / kFragmentsPerBulk) {}

// --- sending

void ShmLink::send(Transfer& transfer) {
  Outgoing outgoing{.transfer = &transfer};
  if (!has_sends() && write_some(outgoing)) return context_.complete(transfer, Status());
  queue_.push_back(outgoing);
}

void ShmLink::flush() {
  while (has_sends() && write_some(queue_[first_])) {
    context_.complete(*queue_[first_].transfer, Status());
    if (++first_ == queue_.size()) {
      queue_.clear();
      first_ = 0;
    } else if (first_ >= 64 && first_ * 2 >= queue_.size()) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
  }
}

// Writes one message as far as the ring takes it; true if all of it has been written.
bool ShmLink::write_some(Outgoing& outgoing) {
  const Transfer& transfer = *outgoing.transfer;
  if (transfer.bytes <= kRingInlineBytes) {
    if (!out_.has_line()) return false;
    RingLineContent content{.tag = transfer.tag, .signature = transfer.signature, .content = {}};
    if (transfer.bytes > 0) std::memcpy(content.content, transfer.data, transfer.bytes);
    put_line(RingLineKind::kMessage, static_cast<std::uint8_t>(transfer.bytes), content);
    return true;
  }
  for (int turn = 0; turn < kFragmentsPerTurn; ++turn) {
    if (!write_fragment(outgoing)) return false;
    if (outgoing.written == transfer.bytes) return true;
  }
  return false;
}

bool ShmLink::write_fragment(Outgoing& outgoing) {
  const Transfer& transfer = *outgoing.transfer;
  const std::size_t bytes = std::min(transfer.bytes - outgoing.written, fragment_bytes_);
  if (!out_.has_line() || out_.bulk_room() < bytes) return false;
  out_.put_bulk(transfer.data + outgoing.written, bytes);
  outgoing.written += bytes;
  RingLineContent content{};
  if (outgoing.begun) {
    content.set_number(0, bytes);
    put_line(RingLineKind::kFragment, RingWriter::kNumbers, content);
    return true;
  }
  outgoing.begun = true;
  content.tag = transfer.tag;
  content.signature = transfer.signature;
  content.set_number(0, transfer.bytes);
  content.set_number(1, bytes);
  put_line(RingLineKind::kMessage, RingWriter::kNumbers, content);
  return true;
}

void ShmLink::put_line(RingLineKind kind, std::uint8_t inline_bytes,
                       const RingLineContent& content) {
  out_.put_line(kind, inline_bytes, content);
  group_.wake(member_);
}

void ShmLink::fail_transfers(const Status& why) {
  receiver_.fail_receives(why);
  for (std::size_t i = first_; i < queue_.size(); ++i) context_.complete(*queue_[i].transfer, why);
  queue_.clear();
  first_ = 0;
}

// --- receiving

Status ShmLink::read() {
  for (int turn = 0; turn < kLinesPerTurn; ++turn) {
    const RingReader::State state = in_.look();
    if (state == RingReader::State::kEmpty) break;
    if (state == RingReader::State::kGarbage) return garbage("a line out of turn");
    DLAUNCH_RETURN_IF_ERROR(take(in_.take_line()));
    if (in_.give_credit()) group_.wake(member_);
  }
  return Status();
}

Status ShmLink::take(const RingReader::Line& line) {
  if (line.kind == RingLineKind::kFragment && receiver_.in_message()) {
    if (line.inline_bytes != RingWriter::kNumbers) return garbage("a fragment without length");
    return take_fragment(line.content.number(0));
  }
  if (line.kind != RingLineKind::kMessage || receiver_.in_message()) {
    return garbage("a line of the wrong kind");
  }
  const RingLineContent& content = line.content;
  if (line.inline_bytes <= kRingInlineBytes) {
    return receiver_.deliver(content.tag, content.signature, {content.content, line.inline_bytes});
  }
  const std::uint64_t bytes = content.number(0);
  if (line.inline_bytes != RingWriter::kNumbers || bytes <= kRingInlineBytes ||
      bytes > kMaxMessageBytes) {
    return garbage("a message of an impossible length");
  }
  DLAUNCH_RETURN_IF_ERROR(receiver_.begin(content.tag, content.signature, bytes));
  return take_fragment(content.number(1));
}

Status ShmLink::take_fragment(std::uint64_t bytes) {
  const std::span<std::byte> rest = receiver_.destination();
  if (bytes == 0 || bytes > rest.size() || bytes > in_.bulk_bytes()) {
    return garbage("a fragment of an impossible length");
  }
  in_.take_bulk(rest.data(), bytes);
  receiver_.advance(bytes);
  return Status();
}

}  // namespace dlaunch
