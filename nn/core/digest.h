// Digest: recognises bytes that have changed. BLAKE2b with 128 bits, from libsodium.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch::nn {

/// One thread at a time.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  /// Of all that was added, as 32 hexadecimal digits. Nothing can be added afterwards.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(std::span<const std::byte> bytes);
inline std::string digest_of(std::string_view text) {
  return digest_of(std::as_bytes(std::span(text)));
}

}  // namespace dlaunch::nn
