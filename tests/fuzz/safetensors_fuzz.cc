// Files of tensors: each is either read or refused with a DataError, and what was read is what its
// header says.
//
// Input: a byte. If it is even, then a file. If it is odd, then two bytes of how much data there
// is, and a header: so the header's length, which it would have to guess, is right.
#include <cstring>
#include <string>

#include "nn/checkpoint/safetensors.h"
#include "nn/data/dataset.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

namespace dlaunch::fuzz {
namespace {

std::string with_length(std::string_view header) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header);
}

void read_tensors(const nn::SafetensorsFile& file, std::size_t file_bytes) {
  std::size_t read = 0;
  for (const auto& [name, entry] : file.tensors()) {
    if (!entry.obstacle.empty()) {
      read += entry.end - entry.begin;
      continue;
    }
    const auto size = static_cast<std::uint64_t>(entry.shape.size()) * size_of(entry.dtype);
    require(size == entry.end - entry.begin, "a tensor has the size of its shape");
    try {
      require(file.read(name).size() == size, "a tensor is read as a whole");
    } catch (const nn::DataError& wrong_checksum) {
      require(*wrong_checksum.what() != '\0', "a refusal has a reason");
    }
    read += size;
  }
  require(read < file_bytes, "tensors do not overlap");
}

void open_and_read(const std::string& content) {
  const MemoryFile memory(content);
  try {
    read_tensors(nn::SafetensorsFile(memory.path()), content.size());
  } catch (const nn::DataError& refused) {
    require(*refused.what() != '\0', "a refusal has a reason");
  }
}

}  // namespace

std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  const std::string two =
      R"({"__metadata__": {"a": "b"}, "w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},)"
      R"( "b": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]}})";
  // What two checksums are, the empty name's of the rest of the metadata, which here is none.
  const std::string checked =
      R"({"__metadata__": {"dlaunch.digests": "{\"\":\"x\",\"w\":\"y\"}"},)"
      R"( "w": {"dtype": "U8", "shape": [0, 3, 1, 9], "data_offsets": [0, 0]}})";
  return {"\0"s + with_length(two) + std::string(10, '\1'),
          "\1\12\0"s + two,
          "\1\0\0"s + checked,
          "\1\0\0{}"s,
          "\0"s + with_length("[1, 2]"),
          "\0\xff\xff\xff\xff\xff\xff\xff\xff{}"s};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dlaunch::fuzz::Input input(data, size);
  if (input.take_byte() % 2 == 0) {
    dlaunch::fuzz::open_and_read(std::string(input.rest()));
    return 0;
  }
  const std::size_t low = input.take_byte();
  const std::size_t bytes = low + input.take_byte() * std::size_t{256};
  dlaunch::fuzz::open_and_read(dlaunch::fuzz::with_length(input.rest()) + std::string(bytes, '\0'));
  return 0;
}
