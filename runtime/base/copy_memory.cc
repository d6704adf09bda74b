#include "runtime/base/copy_memory.h"

#include <cstdint>
#include <cstring>

#include "runtime/base/multiversion.h"

namespace dlaunch {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)
// Shorter copies memcpy() makes by vector instructions, too.
constexpr std::size_t kLeast = 2048;

using Vector [[gnu::vector_size(32), gnu::aligned(1), gnu::may_alias]] = long long;
constexpr std::size_t kAtOnce = 4 * sizeof(Vector);

struct Block {
  Vector a, b, c, d;
};

inline void copy_block(std::byte* into, const std::byte* from) {
  const auto& source = *reinterpret_cast<const Block*>(from);
  auto& target = *reinterpret_cast<Block*>(into);
  const Vector a = source.a, b = source.b, c = source.c, d = source.d;
  target.a = a;
  target.b = b;
  target.c = c;
  target.d = d;
}

/// At least kAtOnce bytes. The first and the last block are copied where they are, those between
/// them where `into` is aligned.
DLAUNCH_MULTIVERSION
void copy_blocks(std::byte* into, const std::byte* from, std::size_t bytes) {
  copy_block(into, from);
  std::size_t at = sizeof(Vector) - reinterpret_cast<std::uintptr_t>(into) % sizeof(Vector);
  for (; at + kAtOnce <= bytes; at += kAtOnce) copy_block(into + at, from + at);
  copy_block(into + bytes - kAtOnce, from + bytes - kAtOnce);
}
#endif

}  // namespace

void copy_by_vectors(void* into, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
#if defined(__x86_64__) && defined(__GNUC__)
  if (bytes >= kLeast)
    return copy_blocks(static_cast<std::byte*>(into), static_cast<const std::byte*>(from), bytes);
#endif
  std::memcpy(into, from, bytes);
}

void copy_memory(void* into, const void* from, std::size_t bytes) {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool by_vectors = __builtin_cpu_is("amd") != 0;
  if (by_vectors) return copy_by_vectors(into, from, bytes);
#endif
  if (bytes > 0) std::memcpy(into, from, bytes);
}

}  // namespace dlaunch
