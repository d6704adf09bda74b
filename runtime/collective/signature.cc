#include "runtime/collective/signature.h"

#include <cstdio>

#include "runtime/base/dtype.h"

namespace dlaunch {
namespace {

// In MessageSignature::reduce_op.
constexpr std::uint8_t kRecordReduction = 0x7f;
constexpr std::uint8_t kRankOrder = 0x80;

// A word at a time, because every call goes through it: xor, multiply, and the high bits of the
// product back into the low ones. Folded to 32 bits.
class Hash {
 public:
  void add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15U;
    state_ ^= state_ >> 29;
  }
  std::uint32_t folded() const { return static_cast<std::uint32_t>(state_ ^ (state_ >> 32)); }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325U;
};

std::string typed_count(const MessageSignature& signature) {
  return std::string(to_string(static_cast<DType>(signature.dtype))) + "[" +
         std::to_string(signature.count) + "]";
}

std::string hexadecimal(std::uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

}  // namespace

std::uint8_t reduction_code(ReduceOp op, bool record, ReduceOrder order) {
  const auto code = record ? kRecordReduction : static_cast<std::uint8_t>(op);
  return order == ReduceOrder::kRanks ? code | kRankOrder : code;
}

std::string describe_call(const MessageSignature& signature) {
  if (signature.operation == kPointToPointOperation) return "message " + typed_count(signature);
  if (signature.operation == kAnnouncementOperation) return "announcement";
  const auto kind = static_cast<CollectiveKind>(signature.operation);
  const auto details = static_cast<std::uint32_t>(signature.extra);
  std::string text(to_string(kind));
  if (kind == CollectiveKind::kBarrier) return text;
  if (kind == CollectiveKind::kAllGather && details == kSplitDetails) return "split";
  const bool reduces = kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter ||
                       kind == CollectiveKind::kAllReduce;
  const bool record = reduces && (signature.reduce_op & kRecordReduction) == kRecordReduction;
  if (record) {
    text += " record(" + std::to_string(details >> 16) + " bytes)[" +
            std::to_string(signature.count) + "]";
  } else {
    if (reduces) {
      const auto op = static_cast<ReduceOp>(signature.reduce_op & kRecordReduction);
      text += " " + std::string(to_string(op));
    }
    text += " " + typed_count(signature);
  }
  if (signature.root >= 0) text += " root " + std::to_string(signature.root);
  if (signature.algorithm != 0) {
    text += " " + std::string(to_string(static_cast<Algorithm>(signature.algorithm)));
  }
  if (reduces && (signature.reduce_op & kRankOrder) != 0) text += " in rank order";
  const std::uint32_t counts = record ? details & 0xffffU : details;
  if (counts == 0) return text;
  if (kind == CollectiveKind::kAllToAll) return text + " unequal";
  return text + (kind == CollectiveKind::kAllReduce ? " pieces #" : " counts #") +
         hexadecimal(counts);
}

std::string describe_signature(const MessageSignature& signature) {
  const auto history = static_cast<std::uint32_t>(signature.extra >> 32);
  const std::string call = describe_call(signature);
  return history == 0 ? call : call + " (after calls #" + hexadecimal(history) + ")";
}

std::uint32_t hash_counts(std::span<const std::size_t> counts) {
  if (counts.empty()) return 0;
  Hash hash;
  for (const std::size_t count : counts) hash.add(count);
  return hash.folded() | 1U;  // never 0, which means equal parts
}

std::uint32_t record_details(std::size_t bytes, std::span<const std::size_t> counts) {
  return static_cast<std::uint32_t>(bytes << 16) | (hash_counts(counts) & 0xffffU);
}

void CallHistory::append(const MessageSignature& signature) {
  Hash hash;
  hash.add(hash_);
  hash.add(signature.count);
  hash.add((std::uint64_t{static_cast<std::uint32_t>(signature.root)} << 32) |
           (std::uint64_t{signature.operation} << 24) | (std::uint64_t{signature.dtype} << 16) |
           (std::uint64_t{signature.reduce_op} << 8) | signature.algorithm);
  hash.add(signature.extra);
  hash_ = hash.folded();
}

}  // namespace dlaunch
