#include "runtime/collective/signature.h"

#include <cstdio>

#include "runtime/base/dtype.h"

namespace dlaunch {
namespace {

// FNV-1a, 64 bits, folded to 32.
class Hash {
 public:
  void add(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      state_ = (state_ ^ ((value >> (8 * byte)) & 0xffU)) * 0x100000001b3U;
    }
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

std::string describe_call(const MessageSignature& signature) {
  if (signature.operation == kPointToPointOperation) return "message " + typed_count(signature);
  if (signature.operation == kAnnouncementOperation) return "announcement";
  const auto kind = static_cast<CollectiveKind>(signature.operation);
  std::string text(to_string(kind));
  if (kind != CollectiveKind::kBarrier) {
    if (kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter ||
        kind == CollectiveKind::kAllReduce) {
      text += " " + std::string(to_string(static_cast<ReduceOp>(signature.reduce_op)));
    }
    text += " " + typed_count(signature);
  }
  if (signature.root >= 0) text += " root " + std::to_string(signature.root);
  if (kind == CollectiveKind::kAllReduce) {
    text += " " + std::string(to_string(static_cast<Algorithm>(signature.algorithm)));
  }
  const auto counts = static_cast<std::uint32_t>(signature.extra);
  if (counts != 0) text += " counts #" + hexadecimal(counts);
  return text;
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
