#include "launcher/failure/kernel_fault.h"

#include <charconv>
#include <cstdint>
#include <optional>

namespace dlaunch {
namespace {

// No program may map what is below (vm.mmap_min_addr).
constexpr std::uint64_t kLowestAddress = 65536;

// How far from the stack pointer a stack that is used up is first touched: below it by what pushes,
// above it by a frame that it has been lowered for.
constexpr std::uint64_t kBelowStackPointer = 65536;
constexpr std::uint64_t kAboveStackPointer = 16384;

std::optional<std::uint64_t> number_after(std::string_view line, std::string_view name) {
  const auto at = line.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = line.data() + line.size();
  const auto read = std::from_chars(line.data() + at + name.size(), end, number, 16);
  if (read.ec != std::errc()) return std::nullopt;
  return number;
}

// "in OBJECT[OFFSET,START+SIZE]"; before Linux 6.4 "in OBJECT[START+SIZE]", which tells no place in
// the file.
std::string place_in(std::string_view line) {
  const auto error = line.find(" error");
  const auto in = line.find(" in ", error);
  const auto bracket = line.find('[', in);
  if (error == std::string_view::npos || bracket == std::string_view::npos) return "";
  std::string place = "in " + std::string(line.substr(in + 4, bracket - in - 4));
  const auto inside = line.substr(bracket + 1, line.find(']', bracket) - bracket - 1);
  const auto comma = inside.find(',');
  if (comma != std::string_view::npos) place += "+0x" + std::string(inside.substr(0, comma));
  return place;
}

std::string pointer_in_words(std::uint64_t address, std::uint64_t stack_pointer) {
  const bool stack =
      address + kBelowStackPointer >= stack_pointer && address < stack_pointer + kAboveStackPointer;
  const char* what = address < kLowestAddress ? "a null pointer"
                     : stack                  ? "the stack is used up"
                                              : "a bad pointer";
  char digits[17] = {};
  std::to_chars(digits, digits + 16, address, 16);
  return std::string(what) + " (address 0x" + digits + ")";
}

}  // namespace

std::string kernel_fault(std::string_view line, pid_t pid) {
  const std::string thread = "[" + std::to_string(pid) + "]";
  const auto at = line.find(thread);
  if (at == std::string_view::npos) return "";
  const std::string_view story = line.substr(at + thread.size());
  const std::string place = place_in(story);
  const std::string where = place.empty() ? "" : ", " + place;
  if (story.starts_with(": segfault at ")) {
    const auto address = number_after(story, " at ");
    const auto stack_pointer = number_after(story, " sp ");
    if (!address || !stack_pointer) return "";
    return pointer_in_words(*address, *stack_pointer) + where;
  }
  if (story.starts_with(" general protection fault ")) return "a bad pointer" + where;
  return story.starts_with(" trap ") ? place : "";
}

}  // namespace dlaunch
