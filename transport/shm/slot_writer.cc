#include "transport/shm/slot_writer.h"

#include <chrono>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "runtime/base/copy_memory.h"

namespace dlaunch {
namespace {

// Shorter copies are always ordinary ones.
constexpr std::size_t kLeastStreamed = 2048;
// From here on ordinary copies do not stay in the writer's first-level cache, and what is copied
// from a longer vector need not have been there.
constexpr std::size_t kLong = std::size_t{32} << 10;
// Bytes per second below which the readers must be far. Seen: 9 to 40 GB/s (short: 27 and more)
// near, 2.4 GB/s (short: 4.6 to 7) far.
constexpr double kFarRate = 4.5e9;
constexpr double kFarRateShort = 11e9;
// Of ordinary copies, every so many is measured if it is short; of streamed ones, every so many is
// made ordinary, to see whether the readers are still far.
constexpr unsigned kCopiesPerMeasurement = 16;
constexpr unsigned kCopiesPerTrial = 32;
constexpr int kConvincing = 2;

#if defined(__SSE2__)
void stream(std::byte* into, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(into) % kLine) % kLine;
  std::memcpy(into, from, head);
  const std::size_t end = bytes - (bytes - head) % kLine;
  for (std::size_t at = head; at < end; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* line = reinterpret_cast<__m128i*>(into + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  std::memcpy(into + end, from + end, bytes - end);
  _mm_sfence();  // streaming stores are ordered with nothing else
}
#else
void stream(std::byte* into, const std::byte* from, std::size_t bytes) {
  std::memcpy(into, from, bytes);
}
#endif

}  // namespace

void SlotWriter::copy(std::byte* into, const std::byte* from, std::size_t bytes, std::size_t of) {
  if (bytes < kLeastStreamed) {
    if (bytes > 0) std::memcpy(into, from, bytes);
  } else if (measures(bytes)) {
    copy_and_measure(into, from, bytes, of);
  } else if (far_) {
    stream(into, from, bytes);
  } else {
    copy_memory(into, from, bytes);
  }
}

bool SlotWriter::measures(std::size_t bytes) {
  ++copies_;
  if (contradictions_ > 0) return true;
  if (far_) return copies_ % kCopiesPerTrial == 0;
  return bytes >= kLong || copies_ % kCopiesPerMeasurement == 0;
}

void SlotWriter::copy_and_measure(std::byte* into, const std::byte* from, std::size_t bytes,
                                  std::size_t of) {
  const auto begin = std::chrono::steady_clock::now();
  copy_memory(into, from, bytes);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double limit = of >= kLong ? kFarRate : kFarRateShort;
  const bool looks_far = static_cast<double>(bytes) < limit * took.count();
  contradictions_ = looks_far == far_ ? 0 : contradictions_ + 1;
  if (contradictions_ < kConvincing) return;
  far_ = looks_far;
  contradictions_ = 0;
}

}  // namespace dlaunch
