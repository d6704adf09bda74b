#include "transport/shm/link.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/copy_memory.h"

namespace dlaunch {
namespace {

// Lines that are read before others get their turn.
constexpr int kLinesPerTurn = 64;
// A fragment fills this part of the bulk area at most, so that writing and reading overlap.
constexpr std::uint32_t kFragmentsPerBulk = 4;

// Messages from this length on are offered. Fetching from private memory costs a system call.
constexpr std::size_t kHeapOfferBytes = std::size_t{4} << 10;
constexpr std::size_t kPrivateOfferBytes = std::size_t{128} << 10;
// Bytes that are fetched before others get their turn.
constexpr std::size_t kFetchedPerTurn = std::size_t{1} << 20;

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
  queue_.push_back({.transfer = &transfer});
  if (first_ + 1 == queue_.size()) flush();
}

void ShmLink::complete_fetched() {
  if (offered_.empty()) return;
  for (const std::uint64_t now = out_.fetched_offers(); fetched_ < now && !offered_.empty();
       ++fetched_) {
    context_.complete(*offered_.front(), Status());
    offered_.pop_front();
  }
}

void ShmLink::flush() {
  complete_fetched();
  while (has_queue()) {
    Outgoing& outgoing = queue_[first_];
    Transfer& transfer = *outgoing.transfer;
    if (!outgoing.begun && write_offer(transfer)) {
      pop_sent();
      offered_.push_back(&transfer);
    } else if (write_some(outgoing)) {
      pop_sent();
      context_.complete(transfer, Status());
    } else {
      return;
    }
  }
}

void ShmLink::pop_sent() {
  if (++first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  } else if (first_ >= 64 && first_ * 2 >= queue_.size()) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

// Offers the message if the peer can fetch it and there is room to say so.
bool ShmLink::write_offer(Transfer& transfer) {
  if (transfer.bytes < kHeapOfferBytes || !out_.has_line()) return false;
  const auto position = group_.heap_position(transfer.data, transfer.bytes);
  const bool is_private = !position.has_value();
  if (is_private && (transfer.bytes < kPrivateOfferBytes || !group_.members_readable())) {
    return false;
  }
  RingLineContent content{.tag = transfer.tag, .signature = transfer.signature, .content = {}};
  content.set_number(0, transfer.bytes);
  content.set_number(1, position.value_or(reinterpret_cast<std::uintptr_t>(transfer.data)));
  put_line(is_private ? RingLineKind::kPrivateOffer : RingLineKind::kHeapOffer,
           RingWriter::kNumbers, content);
  return true;
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
  while (outgoing.written < transfer.bytes) {
    if (!write_fragment(outgoing)) return false;
  }
  return true;
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
  if (!std::exchange(has_opened_, true)) group_.open_to(member_);
  out_.put_line(kind, inline_bytes, content);
  group_.wake(member_);
}

void ShmLink::fail_transfers(const Status& why) {
  receiver_.fail_receives(why);
  if (!offered_.empty()) out_.withdraw_offers();
  for (Transfer* transfer : offered_) context_.complete(*transfer, why);
  offered_.clear();
  for (std::size_t i = first_; i < queue_.size(); ++i) context_.complete(*queue_[i].transfer, why);
  queue_.clear();
  first_ = 0;
}

// --- receiving

Status ShmLink::read() {
  for (int turn = 0; turn < kLinesPerTurn && !receiver_.is_full(); ++turn) {
    if (fetching_) return fetch();
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
  if (receiver_.in_message()) return garbage("a message within another");
  if (line.kind != RingLineKind::kMessage) return take_offer(line);
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

Status ShmLink::take_offer(const RingReader::Line& line) {
  from_heap_ = line.kind == RingLineKind::kHeapOffer;
  const bool allowed =
      from_heap_ || (line.kind == RingLineKind::kPrivateOffer && group_.members_readable());
  if (!allowed || line.inline_bytes != RingWriter::kNumbers) {
    return garbage("a line of the wrong kind");
  }
  const std::uint64_t bytes = line.content.number(0);
  source_ = line.content.number(1);
  const std::size_t heap_bytes = group_.heap(member_).size();
  if (bytes < kHeapOfferBytes || bytes > kMaxMessageBytes ||
      (from_heap_ && (bytes > heap_bytes || source_ > heap_bytes - bytes))) {
    return garbage("an offer of an impossible length");
  }
  DLAUNCH_RETURN_IF_ERROR(receiver_.begin(line.content.tag, line.content.signature, bytes));
  fetching_ = true;
  return fetch();
}

// Goes on with fetching what the peer has offered.
Status ShmLink::fetch() {
  const std::span<std::byte> rest = receiver_.destination();
  const std::size_t bytes = std::min(rest.size(), kFetchedPerTurn);
  if (from_heap_) {
    copy_memory(rest.data(), group_.heap(member_).data() + source_, bytes);
  } else {
    DLAUNCH_RETURN_IF_ERROR(group_.read_member(member_, source_, rest.data(), bytes));
  }
  // The peer is about to say why it has given up.
  if (in_.offers_withdrawn()) return Status();
  source_ += bytes;
  if (bytes == rest.size()) {
    fetching_ = false;
    in_.finish_offer();
    group_.wake(member_);
  }
  receiver_.advance(bytes);
  return Status();
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
