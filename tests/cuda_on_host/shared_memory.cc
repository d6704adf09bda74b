#include "tests/cuda_on_host/shared_memory.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace dlaunch::cuda_on_host {
namespace {

constexpr int kUninitialised = 0xff;
// How the names of variables within functions of that namespace begin; kernels have no others that
// are static. (A section of their own would be simpler, but GCC puts no variable of a template
// there.)
constexpr std::string_view kPrefix = "_ZZN7dlaunch2nn4cuda";

std::vector<std::byte> read_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary | std::ios::ate);
  // Not by the link's target, which is the emulator's program where one runs this.
  std::vector<std::byte> bytes(file ? static_cast<std::size_t>(file.tellg()) : 0);
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw std::runtime_error("the program's own file cannot be read");
  return bytes;
}

// What the addresses in the program's file are relative to.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*size*/, void* result) {
        *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
        return 1;  // the program is the first
      },
      &address);
  return address;
}

template <typename T>
std::span<const T> entries(const std::vector<std::byte>& file, const Elf64_Shdr& section) {
  return {reinterpret_cast<const T*>(file.data() + section.sh_offset), section.sh_size / sizeof(T)};
}

}  // namespace

SharedMemory::SharedMemory() {
  const std::vector<std::byte> file = read_program();
  Elf64_Ehdr header{};
  std::memcpy(&header, file.data(), sizeof header);
  const std::span sections(reinterpret_cast<const Elf64_Shdr*>(file.data() + header.e_shoff),
                           header.e_shnum);
  const std::uintptr_t base = load_address();
  bool has_symbols = false;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    has_symbols = true;
    const std::span names = entries<char>(file, sections[section.sh_link]);
    for (const Elf64_Sym& symbol : entries<Elf64_Sym>(file, section)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= sections.size() ||
          sections[symbol.st_shndx].sh_type != SHT_NOBITS ||
          !std::string_view(&names[symbol.st_name]).starts_with(kPrefix))
        continue;
      variables_.emplace_back(reinterpret_cast<std::byte*>(base + symbol.st_value), symbol.st_size);
    }
  }
  if (!has_symbols) throw std::runtime_error("the program has no symbols: strip has removed them");
}

void SharedMemory::make_uninitialised() const {
  for (const std::span variable : variables_)
    std::memset(variable.data(), kUninitialised, variable.size());
}

}  // namespace dlaunch::cuda_on_host
