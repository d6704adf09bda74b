// What collectives and point-to-point messages write into MessageSignature and MessageTag, so that
// ranks that call different things find out.
//
// Messages of one kind of traffic between two ranks arrive in the order sent, so the tag carries no
// step: the first message of a foreign operation meets the receive that waits and is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/collective/types.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// MessageTag::context: the kinds of traffic on one endpoint.
enum class Traffic : std::uint32_t { kCollective = 0, kPointToPoint = 1, kAnnouncement = 2 };

/// MessageSignature::operation beside the CollectiveKinds.
inline constexpr std::uint8_t kPointToPointOperation = 0;
inline constexpr std::uint8_t kAnnouncementOperation = 255;

/// MessageSignature::reduce_op: the reduction, `record` for one of the caller's own, and the order
/// of its operands.
std::uint8_t reduction_code(ReduceOp op, bool record, ReduceOrder order);

/// "all_reduce sum f32[1000] ring", "broadcast i64[3] root 2", "message f32[10]".
std::string describe_call(const MessageSignature& signature);

/// The same with the history of a collective, for the text of a mismatch. A SignaturePrinter.
std::string describe_signature(const MessageSignature& signature);

/// A hash of unequal counts, odd; 0 for none. Goes into MessageSignature::extra.
std::uint32_t hash_counts(std::span<const std::size_t> counts);

/// What takes the place of that hash in a reduction of records of `bytes` bytes.
std::uint32_t record_details(std::size_t bytes, std::span<const std::size_t> counts);
/// The longest record that it can describe.
inline constexpr std::size_t kMostRecordBytes = 0xffff;

/// In place of that hash in the all_gather of a split. Even, as hashes of counts never are.
inline constexpr std::uint32_t kSplitDetails = 2;

/// The hash of all collective calls so far, one after the other. It travels in the other half of
/// MessageSignature::extra: calls that differed without any message meeting a wrong receive (each
/// side only sent) are found out by the next collective at the latest.
class CallHistory {
 public:
  std::uint32_t hash() const { return hash_; }
  void append(const MessageSignature& signature);

 private:
  std::uint32_t hash_ = 0;
};

/// MessageSignature::extra from its two halves.
constexpr std::uint64_t signature_extra(std::uint32_t counts, std::uint32_t history) {
  return (std::uint64_t{history} << 32) | counts;
}

}  // namespace dlaunch
